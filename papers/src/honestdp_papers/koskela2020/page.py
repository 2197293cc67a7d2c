"""The head of the paper's page: settings, words, and which results belong to which of the paper's contributions."""

from __future__ import annotations

from honestdp.optimizers.adadp import COPIES
from honestdp_papers.document import markdown_table
from honestdp_papers.koskela2020.federation import BESIDES, FULL, LEVELS, REPEATS, STEP_SIZES
from honestdp_papers.koskela2020.federation import TAU as FEDERATED_TAU
from honestdp_papers.koskela2020.training import DELTA, EPOCHS, LOT, NOISES, PUBLISHED_FIRST, TASKS
from honestdp_papers.koskela2020.variational import SETTINGS as MIXTURE

CHAPTERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "The method: its error estimate, its privacy, its tolerance (Sections 2 and 4)",
        ("lemma1", "theorem9", "theorem10", "section4_2"),
    ),
    (
        "ADADP against tuned optimizers on networks (Sections 5.2 and 5.4)",
        ("figure1a", "figure1b", "figure3", "figure4"),
    ),
    ("ADADP against private selection (Section 5.3 and the supplement)", ("table1", "figure2")),
    ("Variational inference (Section 5.5 and the supplement)", ("figure5", "figure6", "supplement-figure1")),
    (
        "Federated averaging (the supplement)",
        ("federated2a", "federated2b", "federated3a", "federated3b", "federated4"),
    ),
)
"""The paper's contributions, and the results that judge them."""

WORDS = (
    "- **sigma**, **C**, **L**, **T**, **n**, **d**: noise multiplier, clip, lot (expected size), releases, training records, "
    "weights. **eta**: the step size; **tau**: ADADP's tolerance. An **iteration** of ADADP is two releases.",
    "- **part**: the kept numbers of one population of trainings, with the version of the code that made it "
    "(`papers/results/koskela2020/parts`). **Stale**: made by code that has changed since.",
)


def settings() -> list[str]:
    """Everything that was set."""
    return [
        "The **authors' form** is that of their published code (github.com/DPBayes/ADADP) where the text is silent, and of the "
        "text where the two differ. No code of theirs is used.",
        "",
        *markdown_table(
            ["dataset", "training records", "test records", "releases", "clip", "weights", "network"],
            [
                [
                    task.title,
                    str(task.records),
                    str(task.tests),
                    str(task.steps),
                    f"{task.clip:g}",
                    str(task.weights),
                    task.words,
                ]
                for task in TASKS
            ],
        ),
        "",
        f"- Lot {LOT}, {EPOCHS} epochs, delta {DELTA:g}, sigma {', '.join(f'{noise:g}' for noise in NOISES)}. Every record is in "
        "a lot with probability L / n, independently (the authors shuffle, and account as if they drew so).",
        "- ADADP: eta0 0.1, tau 1, the step size by tau / err between 0.9 and 1.1, no step rejected; where the text says so it "
        "finds its step size for 50 epochs, which then decays by 1 / (1 + 0.1 (k - 50)) in epoch k.",
        f'- ADADP-published ("by the published code"): eta0 {PUBLISHED_FIRST:g}, tau 1, the step size by sqrt(tau / err) between '
        f"the same bounds, where err is sqrt({COPIES}) times the text's (their code sums it over {COPIES} copies of weights), "
        "steps with err above tau rejected, and no decay: it adapts to the end.",
        *MIXTURE,
        *_federated(),
    ]


def _federated() -> list[str]:
    sizes = {method: ", ".join(f"{size:.3g}" for size in some) for method, some in STEP_SIZES.items()}
    needed = ", ".join(str(level) for level in LEVELS if level != BESIDES)
    return [
        "- Federated averaging, NOT PRIVATE as in the paper (no noise, nothing clipped): "
        f"{FULL.clients} clients of {FULL.records} images of CIFAR-10, each with two classes (cars and trucks, planes and ships, "
        f"cats and dogs, birds and frogs, deer and horses); {needed} per cent of all images are dealt out at random ({BESIDES} "
        f"too where that part was trained). {FULL.rounds} rounds, in which every client makes {FULL.steps} local steps "
        f"with lots of {FULL.lot}, one epoch of its images in a new order; the average of all clients begins the next. The "
        "network is two convolutions (3x3, 64 channels, ReLU, max pool 3 by 2) and 1600-500-500-10, all trained, with "
        f"biases and torch's initial weights; images normalised by channel, not augmented. ADADP with tau "
        f"{FEDERATED_TAU:g} and rejected steps from eta0 {sizes['ADADP']}, SGD at {sizes['SGD']}, Adam at "
        f"{sizes['Adam']} (at 33 per cent); step sizes and moments are kept from round to round. "
        f"{REPEATS} runs, each with a split, initial weights and orders of its own, which the methods share. Products on the GPU "
        "are of factors rounded to 10 bits (TF32 or half precision), sums and weights float32."
    ]
