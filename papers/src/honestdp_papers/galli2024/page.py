"""The head of the paper's page: settings, words, and which results belong to which of the paper's contributions."""

from __future__ import annotations

from honestdp_papers.document import markdown_table
from honestdp_papers.galli2024.known import noise_of
from honestdp_papers.galli2024.setting import (
    AG_NEWS,
    DELTA,
    EVERY,
    FASHION,
    FIRST_CLIP,
    METHODS,
    MNIST,
    PACE,
    PRINTED_K,
    SEEDS,
    STANDIN,
    UNSTRIDED,
    candidates,
)

CHAPTERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("The method: the clip's optimum, its price, its noise", ("figure1", "figure2", "proposition1", "computation")),
    ("The comparison at budgets of whole grids (Figures 3 to 5)", ("figure3", "figure4", "figure5")),
    ("The best hyperparameters (Tables 2 to 4)", ("table2", "table3", "table4")),
    ("What the text says of its update rule, and ablations", ("updates", "momentum", "ablations")),
    ("One honest budget, and our own rules: mostly beyond the paper", ("honest", "ours")),
)
"""The paper's contributions, and the results that judge them."""

WORDS = (
    "- Methods. **Online**: OSO-DPSGD, the paper's method, which learns clip and step size; where OSO alone is said, it is this. "
    "**FixedThreshold**: DP-SGD. **FixedQuantile**: the clip follows a quantile of the norms (Andrew et al. 2021). "
    "**AdamWOSM**: Adam without its second moment, with a fixed clip (Mohapatra et al. 2022). No privacy: **NoDP**, SGD without "
    "clipping and noise; **NoDP-Adam**, the same by Adam, for which the printed step sizes are more plausible.",
    "- Rules of ours, marked (ours) beside methods of the paper. **AdamOSO**: OSO's clip with AdamWOSM's step, both learnt as "
    "Online learns its own. **AdamOSO with rho_r = 0**: its step size is AdamWOSM's and stays. Automatic clipping makes all "
    "gradients of one length, but for the smallest. **AdamWOSM, automatic**: AdamWOSM with it, and so without a clip. **OSO, "
    "automatic**, in [computation](#computation) **Online, automatic clipping**: Online with it, and without the second answer.",
    "- Forms of Online. **as printed**: Online itself. **step size held**: rho_r = 0. **momentum 0.9**: heavy-ball momentum. "
    "**nu_q 2 sigma**, **nu_q 20 sigma**: so much noise on the second answer. **C_0 = 1**: the first clip. **sign**, "
    f"**proportional**: by what of its inner product the clip moves, with the step size held; sign at rho_c {PACE:g} is the form "
    "step size held.",
    "- Selections. **compose**: every candidate is trained once, and all are charged and released. **winner**: the best alone "
    "is released. **papernot-steinke**, **envelope**: a random number of trainings, the best alone is released, by a published "
    "bound and by a sharper one of ours ([theory](../../docs/theory.md)). **one run**: no search, the whole budget for one "
    "training.",
    "- **sigma** or **nu**, **C**, **rho**, **gamma**: noise multiplier, clip, step size, quantile. **nu_g**, **nu_q**: the "
    "noises of Online's two answers, the gradient and what moves the clip. **C_0**: the first clip. **rho_c**, **rho_r**: how "
    "fast Online's clip and step size move. **k**: values of a grid's axis.",
    "- **best checkpoint**: the best of all looks at the test set, the paper's number. **last iterate**: what a budget covers.",
    "- **part**: the kept numbers of one population of trainings, with the version of the code that made it "
    "(`papers/results/galli2024/parts`). **Stale**: made by code that has changed since.",
)


def settings() -> list[str]:
    """Everything that was set."""
    rows = [
        [
            task.title,
            str(task.records),
            str(task.tests),
            f"{task.lot:.0f}",
            str(task.steps),
            str(task.weights),
            task.words,
        ]
        for task in (MNIST, FASHION, UNSTRIDED, AG_NEWS, STANDIN)
    ]
    counts = [len(candidates(method, PRINTED_K, False)) for method in METHODS]
    noises = [
        [task.title, f"{epsilon:g}", *(f"{noise_of(task, epsilon, runs, False):.2f}" for runs in counts)]
        for task in (MNIST, FASHION, STANDIN)
        for epsilon in task.epsilons
    ]
    return [
        "No code of this paper is public and it prints no network: these are the plainest networks with **exactly the printed "
        "numbers of weights**, likely the paper's and not proven to be. ReLU, the autoencoder's strides and its plain last layer "
        "are ours; stride 1 is a second try. **Plain SGD hardly trains the autoencoder of stride 2**, so that what is judged on "
        "Fashion-MNIST is judged on a network that may not be the paper's: [figure4](#figure4) has the numbers, and "
        "[ablations](#ablations) what the second try shows.",
        "",
        *markdown_table(["task", "training records", "test records", "lot", "steps", "weights", "network"], rows),
        "",
        f"- 10 epochs, delta {DELTA:g} (not printed), lots are Poisson samples. Pixels in [0, 1]; the autoencoder's loss is the "
        "squared error, a mean over the pixels; a text is 1 for each of 750 words that it has.",
        "- Steps are plain SGD's, without momentum, and initial weights are PyTorch's: neither is printed, and the printed step "
        "sizes speak for momentum ([table2](#table2), [ablations](#ablations)).",
        "- **AG News is a stand-in here**: its 120000 training texts were not to be had. Four topics of 20 Newsgroups take its "
        "place, at AG News's rate and number of steps, so that the noises are AG News's. Where the texts are at hand "
        "(`ag_news/train.csv.gz` in `HONESTDP_DATA`) they are used. What is judged on the stand-in counts as a claim of ours, "
        "not as a sentence or a number of the paper: Figure 5 and Table 4 are in neither count.",
        "- Grids: k in 5, 7, 9 values, equally apart in logarithms: C from 0.01 to 100, rho from 10^-2.5 to 10^1.5; gamma 0.1, "
        "0.3, 0.5, 0.7, 0.9. Online and AdamWOSM have k candidates, FixedThreshold k^2, FixedQuantile 5k. A budget is for the "
        "whole grid, composed by moments; repeats with other seeds are not charged, as in the paper.",
        f"- Online: C_0 {FIRST_CLIP:g}, rho_c = rho_r = {PACE:g}, nu_q = 7.124 sigma. FixedQuantile: C_0 {FIRST_CLIP:g}, the "
        "clip moves by 0.2, the released fraction is not held to [0, 1]. AdamWOSM: step 0.001.",
        "- Some parts were made while other work was on the same GPU: Fashion-MNIST's times in [computation](#computation) are "
        "rougher than their ± says.",
        f"- {SEEDS} seeds, averaged; where fewer are trained, a table says how many. Every {EVERY} steps the whole test set is "
        "looked at, and the best checkpoint counts; the last iterate is given beside it.",
        "",
        f"Noises at k = {PRINTED_K}:",
        "",
        *markdown_table(["task", "epsilon of the grid", *METHODS], noises),
    ]
