"""Mohapatra et al. 2022, "The Role of Adaptive Optimizers for Honest Private Hyperparameter Selection" (AAAI 2022)."""

from __future__ import annotations

from functools import partial

from honestdp_papers.registry import Paper, Replay, item

_item = partial(item, __name__)

PAPER = Paper(
    name="mohapatra2022",
    title="The Role of Adaptive Optimizers for Honest Private Hyperparameter Selection",
    citation="Mohapatra, Sasy, He, Kamath & Thakkar, AAAI 2022",
    items=(
        _item("figure1", "What Liu & Talwar's selection costs against composition", "costs"),
        _item("theorem1", "Liu & Talwar's bound, checked by brute force", "theorem1"),
        _item("trends", "LT's delta2, and other noises, lots and steps", "costs"),
        _item("figure6", "From how many candidates on selection is cheaper", "costs"),
        _item("table1", "The costs of the three searches, and what they cost today", "costs"),
        _item("figure2", "Step size against clip on linear regression", "regression", parts="parts"),
        _item("theorem2", "The optimal step size, predicted and measured", "regression"),
        _item("figure3", "180 settings of DPAdam", "defaults", parts="parts3"),
        _item("figure4", "DPSGD, DPMomentum and DPAdam, sigma 4", "comparison", "compared", parts="parts", noise=4.0),
        _item("figure8", "DPSGD and DPAdam, sigma 2", "comparison", "compared", parts="parts", noise=2.0),
        _item("figure9", "DPSGD and DPAdam, sigma 8", "comparison", "compared", parts="parts", noise=8.0),
        _item("figure7", "Which DPSGD candidates are ever the best", "comparison", parts="parts7"),
        _item("momentum", "Is there a good default for momentum?", "catastrophes", parts="parts_momentum"),
        _item("catastrophes", "How bad a candidate may be, and how much they vary", "catastrophes", parts="parts_of"),
        _item("figure5", "DPAdam, ADADP and DPAdamWOSM, sigma 4", "adaptive", "compared", parts="parts", noise=4.0),
        _item("figure10", "DPAdam, ADADP and DPAdamWOSM, sigma 2", "adaptive", "compared", parts="parts", noise=2.0),
        _item("figure11", "DPAdam, ADADP and DPAdamWOSM, sigma 8", "adaptive", "compared", parts="parts", noise=8.0),
        _item("theorem3", "The step size that DPAdam converges to", "adam", parts="parts"),
        _item("computation", "Time and memory of a step of DPAdam and DPAdamWOSM", "adam", parts="parts_times"),
        _item(
            "honest",
            "Every optimizer's whole grid, and Horizon's single run, at one honest budget",
            "honest",
            parts="honest_training.parts",
        ),
    ),
    chapters=(
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
    ),
    replays=(
        Replay("figure2", "figure2/grid", "900 settings of a regression"),
        Replay("figure4", "sigma4/adult-202-LR/DPAdam", "a grid of a linear model, with looks at the test records"),
        Replay("honest", "honest/adult-LR/Horizon", "a run of a linear model at an honest budget", repeats=1),
        Replay("honest", "honest/mnist-TLNN-ReLU/Horizon", "the same of a network", repeats=1),
    ),
)
