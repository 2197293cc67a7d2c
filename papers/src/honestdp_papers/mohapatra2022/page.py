"""The head of the paper's page: settings, words, and which results belong to which of the paper's contributions."""

from __future__ import annotations

from honestdp_papers.document import markdown_table
from honestdp_papers.mohapatra2022.defaults import CLIP, DECAYS, STEPS
from honestdp_papers.mohapatra2022.defaults import STEP_SIZES as ADAM_SIZES
from honestdp_papers.mohapatra2022.setting import (
    CLIPS,
    EVERY,
    LOT,
    MOMENTA,
    MORE_REPEATS,
    NOISES,
    REPEATS,
    STEP_SIZES,
    TASKS,
)

CHAPTERS = (
    (
        "Composition against selection by Liu & Talwar (Section 3)",
        ("figure1", "theorem1", "trends", "figure6", "table1"),
    ),
    ("Step size and clip are coupled (Section 4.1)", ("figure2", "theorem2")),
    (
        "DPAdam with its defaults matches a tuned DPSGD (Sections 4.2 and 5)",
        ("figure3", "figure4", "figure8", "figure9", "figure7", "momentum", "catastrophes"),
    ),
    (
        "DPAdam's step size becomes static; DPAdamWOSM (Section 6)",
        ("theorem3", "figure5", "figure10", "figure11", "computation"),
    ),
    ("Beyond the paper", ("honest",)),
)
"""The paper's contributions, and the results that judge them."""

TABLE_2 = {
    "Adult": ("Structured", 45222, 202, 2),
    "ENRON": ("Structured", 5172, 5512, 2),
    "Gisette": ("Image", 6000, 5000, 2),
    "MNIST": ("Image", 70000, 784, 10),
}
"""As printed: type, samples, dimensions, classes."""
FORMS = {
    "Adult": (
        "one-hot codes twice; numbers by the least and largest found (here: by declared ranges)",
        "the same; in honest one-hot codes once, 104 columns",
    ),
    "ENRON": ("raw counts of words (the text says [0, 1])", "counts cut at 10, divided by 10"),
    "Gisette": ("[0, 1]; here **a stand-in made from MNIST**, not Gisette", "the same"),
    "MNIST": ("pixels in [-1, 1] (the text says [0, 1])", "pixels in [0, 1]"),
}

WORDS = (
    "- **sigma**, **C**, **L**, **T**, **n**: noise multiplier, clip, lot (expected size), steps, training records. **LR**, "
    "**TLNN**: logistic regression; two linear layers with 100 units between. **Adult (202)**, **Adult (104)**: with the one-hot "
    "codes twice, as the authors have it, and once. **MNIST**, **ENRON** without more are the authors' form.",
    "- **DPAdamWOSM**: DPAdam without its second moment. **xi**: the small constant in Adam's denominator. **ADADP**: an "
    "optimizer that finds its step size from the error between one full and two half steps; **tau**: the error that it allows; "
    "**d**: the number of weights. **Effective step size**: what Adam multiplies its first moment by.",
    "- **candidate**: one setting of an optimizer's hyperparameters. **Look**: the test accuracy after every "
    f"{EVERY} steps. **Best**, **median**: of an optimizer's candidates at a look, accuracies averaged over the repeats. "
    "**Best of 4**: of 4 candidates drawn at random, which cost as much privacy as DPAdam's 4. **Pruned**: without the step "
    "sizes that are hardly ever the best ([figure7](#figure7)). **At the last step**, **averaged over training**: two criteria "
    "for comparing curves; the second was chosen after the results by the first had been seen, and both are given.",
    "- **MA**, **compose**: every candidate is trained once and all are charged; MA is the paper's moments accountant, PLD a "
    "tight one ([accounting](../../docs/accounting.md)). **LT**, **liu-talwar**: candidates are drawn and "
    "trained until a coin of bias "
    "gamma stops, at most Upsilon = log(1/delta2) / gamma times, and the best alone is released ([Liu & "
    "Talwar](../../docs/tuning.md)). **winner**: every candidate is trained once and the best alone is "
    "released. **papernot-steinke**, "
    "**envelope**: a random number of trainings, the best alone is released, by a published bound and by a sharper one of "
    "ours; **coverage** is the probability that a given candidate is trained "
    "([theory](../../docs/theory.md)). **Blow-up**: LT's cost "
    "at gamma = 1 over that of one run.",
    "- **part**: the kept numbers of one optimizer's grid on one dataset and model at one noise, every look, candidate and "
    "repeat, with the version of the code that made it (`papers/results/mohapatra2022/parts`). **Stale**: made by code that "
    "has changed since.",
    "- **Horizon**: an optimizer of ours with nothing to tune ([optimizers](../../docs/optimizers.md)).",
)


def settings() -> list[str]:
    """Everything that was set, Tables 2 and 3 among it."""
    return [
        "The **authors' form** is that of their published code "
        "(github.com/mshubhankar/The-Role-of-Adaptive-Optimizers-for-Honest-Private-Hyperparameter-Selection, and "
        "mshubhankar/ADADP for ADADP), and is what is reproduced. **Our form**, shown beside it at sigma 4 where it was "
        "trained and alone in [honest](#honest), has inputs scaled by public constants and a ReLU in the network. No code of "
        "theirs is used.",
        "",
        "Table 2, as printed, and the sizes and scalings used here. The sizes are those that Table 1's costs follow from (see "
        "[table1](#table1)); the paper's text has 80 % of every dataset for training, a delta of 1e-6 in Table 1's caption, and "
        "1/n rounded down to a power of ten in the appendix. The deltas here are a power of ten with one digit more than n "
        "has, as in the authors' notebook of figure 1, a tenth of the appendix's.",
        "",
        *markdown_table(
            [
                "dataset",
                "type",
                "samples",
                "dimensions",
                "classes",
                "training records",
                "steps",
                "delta",
                "authors' form",
                "our form",
            ],
            [
                [
                    task.plain_title,
                    *map(str, TABLE_2[task.plain_title]),
                    str(task.records),
                    str(task.steps),
                    f"{task.delta:g}",
                    *FORMS[task.plain_title],
                ]
                for task in TASKS
            ],
        ),
        "",
        "The grids. The paper's Table 3 has the first three; its text gives DPAdamWOSM and ADADP the same clips:",
        "",
        *markdown_table(
            ["optimizer", "step size", "clip", "others", "candidates"],
            [
                ["DPSGD", _listed(STEP_SIZES), _listed(CLIPS), "", str(len(STEP_SIZES) * len(CLIPS))],
                [
                    "DPMomentum",
                    _listed(STEP_SIZES),
                    _listed(CLIPS),
                    f"momentum {_listed(MOMENTA)}",
                    str(len(STEP_SIZES) * len(CLIPS) * len(MOMENTA)),
                ],
                ["DPAdam", "0.001", _listed(CLIPS), "beta1 0.9, beta2 0.999, xi 1e-8", str(len(CLIPS))],
                ["DPAdamWOSM", "0.001 / (sigma C / L + 1e-8)", _listed(CLIPS), "beta1 0.9", str(len(CLIPS))],
                ["ADADP", "its own", _listed(CLIPS), "tau = sqrt(d / 2T), no step rejected", str(len(CLIPS))],
                [
                    "ADADP-published",
                    "its own, 0.001 at first",
                    _listed(CLIPS),
                    "tau 0.1 (LR), 1 (TLNN), steps rejected",
                    "4",
                ],
            ],
        ),
        "",
        f"- Lot {LOT}, sigma {_listed(NOISES)}. Every record is in a lot with probability L / n, independently; the sum of the "
        "clipped gradients is divided by L. Loss: cross-entropy. Initial weights: torch's.",
        "- Models: LR, and TLNN, in the authors' form two linear layers **without an activation** between, in ours with a "
        f"ReLU. Every candidate is trained {REPEATS} times as in the paper, and {MORE_REPEATS} times where a grid has 4 "
        "candidates.",
        f"- Figure 3: DPAdam, step sizes {_listed(ADAM_SIZES)}, beta1 and beta2 {_listed(DECAYS)}, clip {CLIP:g}, {STEPS} steps.",
        f"- Figures 1 and 6: L = {LOT}, T = 10000, sigma 4, delta2 = 1e-20; Table 1: sigma 4, delta2 = 1e-20, steps and delta as "
        "above. The logarithm in Upsilon is said at each. Theorems 1 and 2 and trends have settings of their own, said there.",
        "- [honest](#honest): 1000 steps of lot 250 at epsilon 1 and 3, delta 1e-6, the noise that each search leaves room for.",
    ]


def _listed(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:g}" for value in values)
