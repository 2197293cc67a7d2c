"""Galli, Palamidessi & Cucinotta 2024, "Online Sensitivity Optimization in Differentially Private Learning" (AAAI 2024)."""

from __future__ import annotations

from functools import partial

from honestdp_papers.registry import Item, Paper, Replay, finish_in, head_in, parts_in, trained_in

_trained = partial(trained_in, __name__)

METHOD = (
    _trained("figure1", "The cosine of sanitised and true gradients against the clip", "cosine", "parts"),
    Item("figure2", "How one noise is shared by two answers", finish_in(f"{__name__}.frontier", "figure2")),
    Item("proposition1", "Two answers cost one", finish_in(f"{__name__}.proposition1", "proposition1")),
    _trained("computation", "What the second answer takes of a step", "burden", "parts"),
)
"""Figures 1 and 2, Proposition 1 and the text's word on compute: the method itself."""
COMPARISON = (
    _trained("figure3", "Accuracy at budgets of whole grids, MNIST", "figures", "parts3"),
    _trained("figure4", "Error of an autoencoder at budgets of whole grids, Fashion-MNIST", "figures", "parts4"),
    _trained("figure5", "Accuracy at budgets of whole grids, AG News (stand-in)", "figures", "parts5"),
    _trained("table2", "The best hyperparameters, MNIST", "tables", "parts2"),
    _trained("table3", "The best hyperparameters, Fashion-MNIST", "tables", "parts3"),
    _trained("table4", "The best hyperparameters, AG News (stand-in)", "tables", "parts4"),
)
"""Figures 3 to 5 and Tables 2 to 4."""

TEXT = (
    _trained("updates", "The clip by sign and in proportion, and how both depend on rho_c", "updates", "parts_updates"),
    Item("momentum", "The derivative of the clip with momentum", finish_in(f"{__name__}.updates", "momentum")),
    _trained(
        "ablations",
        "Online without its parts, FixedQuantile held, the autoencoder's strides",
        "ablations",
        "parts_ablations",
    ),
)
"""What the text says of the method, and ablations."""
BEYOND = (
    Item(
        "honest",
        "Does one hyperparameter less pay at one honest budget, under better selections?",
        finish_in(f"{__name__}.honest", "honest"),
        parts_in(f"{__name__}.honest_training", "parts_of"),
    ),
    _trained("ours", "OSO's clip with AdamWOSM's step, and automatic clipping", "ablations", "parts_ours"),
)
"""Beyond the paper."""

PAPER = Paper(
    head=head_in(__name__),
    name="galli2024",
    title="Online Sensitivity Optimization in Differentially Private Learning",
    citation="Galli, Palamidessi & Cucinotta, AAAI 2024",
    items=(*METHOD, *COMPARISON, *TEXT, *BEYOND),
    replays=(
        Replay("figure5", "ag-news-standin/k5/seeds0-4/AdamWOSM", "a grid of a network of words"),
        Replay("honest", "honest/ag-news-standin/seeds0-4/AdamOSO", "a run with a clip that is learnt", repeats=1),
        Replay("figure3", "mnist/k7/seeds0-4/NoDP", "a grid of a convolutional network", gpu=True),
        Replay("figure4", "fashion/k5/seed4/FixedThreshold", "a grid of an autoencoder", gpu=True),
        Replay("figure1", "cosine/mnist", "sanitised and true gradients", gpu=True),
    ),
)
