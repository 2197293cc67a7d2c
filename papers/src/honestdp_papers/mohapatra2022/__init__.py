"""Mohapatra et al. 2022, "The Role of Adaptive Optimizers for Honest Private Hyperparameter Selection" (AAAI 2022)."""

from __future__ import annotations

from functools import partial

from honestdp_papers.registry import Item, Paper, Replay, finish_in, head_in, parts_in, trained_in

_trained = partial(trained_in, __name__)


PAPER = Paper(
    head=head_in(__name__),
    name="mohapatra2022",
    title="The Role of Adaptive Optimizers for Honest Private Hyperparameter Selection",
    citation="Mohapatra, Sasy, He, Kamath & Thakkar, AAAI 2022",
    items=(
        Item(
            "figure1",
            "What Liu & Talwar's selection costs against composition",
            finish_in(f"{__name__}.costs", "figure1"),
        ),
        Item("theorem1", "Liu & Talwar's bound, checked by brute force", finish_in(f"{__name__}.theorem1", "theorem1")),
        Item("trends", "LT's delta2, and other noises, lots and steps", finish_in(f"{__name__}.trends", "trends")),
        Item("figure6", "From how many candidates on selection is cheaper", finish_in(f"{__name__}.costs", "figure6")),
        Item(
            "table1",
            "The costs of the three searches, and what they cost today",
            finish_in(f"{__name__}.table1", "table1"),
        ),
        Item(
            "figure2",
            "Step size against clip on linear regression",
            finish_in(f"{__name__}.coupling", "figure2"),
            parts_in(f"{__name__}.regression", "parts"),
        ),
        Item(
            "theorem2", "The optimal step size, predicted and measured", finish_in(f"{__name__}.theorem2", "theorem2")
        ),
        _trained("figure3", "180 settings of DPAdam", "defaults", "parts3"),
        _trained("figure4", "DPSGD, DPMomentum and DPAdam, sigma 4", "comparison", "parts4"),
        _trained("figure8", "DPSGD and DPAdam, sigma 2", "comparison", "parts8"),
        _trained("figure9", "DPSGD and DPAdam, sigma 8", "comparison", "parts9"),
        _trained("figure7", "Which DPSGD candidates are ever the best", "pruning", "parts7"),
        _trained("momentum", "Is there a good default for momentum?", "momentum", "parts_of"),
        _trained("catastrophes", "How bad a candidate may be, and how much they vary", "catastrophes", "parts_of"),
        _trained("figure5", "DPAdam, ADADP and DPAdamWOSM, sigma 4", "adaptive", "parts5"),
        _trained("figure10", "DPAdam, ADADP and DPAdamWOSM, sigma 2", "adaptive", "parts10"),
        _trained("figure11", "DPAdam, ADADP and DPAdamWOSM, sigma 8", "adaptive", "parts11"),
        Item(
            "theorem3",
            "The step size that DPAdam converges to",
            finish_in(f"{__name__}.effective", "theorem3"),
            parts_in(f"{__name__}.step_sizes", "parts"),
        ),
        Item(
            "computation",
            "Time and memory of a step of DPAdam and DPAdamWOSM",
            finish_in(f"{__name__}.computation", "computation"),
            parts_in(f"{__name__}.step_times", "parts"),
        ),
        Item(
            "honest",
            "Every optimizer's whole grid, and Horizon's single run, at one honest budget",
            finish_in(f"{__name__}.honest", "honest"),
            parts_in(f"{__name__}.honest_training", "parts"),
        ),
    ),
    replays=(
        Replay("figure2", "figure2/grid", "900 settings of a regression"),
        Replay("figure4", "sigma4/adult-202-LR/DPAdam", "a grid of a linear model, with looks at the test records"),
        Replay("honest", "honest/adult-LR/Horizon", "a run of a linear model at an honest budget", repeats=1),
        Replay("honest", "honest/mnist-TLNN-ReLU/Horizon", "the same of a network", repeats=1),
    ),
)
