"""Galli, Palamidessi & Cucinotta 2024, "Online Sensitivity Optimization in Differentially Private Learning" (AAAI 2024)."""

from __future__ import annotations

from functools import partial

from honestdp_papers.registry import Paper, Replay, item

_item = partial(item, __name__)
_figure = partial(_item, module="figures", finish="compared_task", parts="parts_of")
_table = partial(_item, module="tables", finish="best_hyperparameters", parts="parts_of")

PAPER = Paper(
    name="galli2024",
    title="Online Sensitivity Optimization in Differentially Private Learning",
    citation="Galli, Palamidessi & Cucinotta, AAAI 2024",
    items=(
        _item("figure1", "The cosine of sanitised and true gradients against the clip", "cosine", parts="parts"),
        _item("figure2", "How one noise is shared by two answers", "proposition1"),
        _item("proposition1", "Two answers cost one", "proposition1"),
        _item("computation", "What the second answer takes of a step", "burden", parts="parts"),
        _figure("figure3", "Accuracy at budgets of whole grids, MNIST", task="mnist"),
        _figure("figure4", "Error of an autoencoder at budgets of whole grids, Fashion-MNIST", task="fashion"),
        _figure("figure5", "Accuracy at budgets of whole grids, AG News (stand-in)", task="text"),
        _table("table2", "The best hyperparameters, MNIST", task="mnist"),
        _table("table3", "The best hyperparameters, Fashion-MNIST", task="fashion"),
        _table("table4", "The best hyperparameters, AG News (stand-in)", task="text"),
        _item(
            "updates",
            "The clip by sign and in proportion, and how both depend on rho_c",
            "updates",
            parts="variants.parts_updates",
        ),
        _item("momentum", "The derivative of the clip with momentum", "updates"),
        _item(
            "ablations",
            "Online without its parts, FixedQuantile held, the autoencoder's strides",
            "ablations",
            parts="variants.parts_ablations",
        ),
        _item(
            "honest",
            "Does one hyperparameter less pay at one honest budget, under better selections?",
            "honest",
            parts="honest_training.parts_of",
        ),
        _item(
            "ours", "OSO's clip with AdamWOSM's step, and automatic clipping", "ablations", parts="variants.parts_ours"
        ),
    ),
    chapters=(
        ("The method: the clip's optimum, its price, its noise", ("figure1", "figure2", "proposition1", "computation")),
        ("The comparison at budgets of whole grids (Figures 3 to 5)", ("figure3", "figure4", "figure5")),
        ("The best hyperparameters (Tables 2 to 4)", ("table2", "table3", "table4")),
        ("What the text says of its update rule, and ablations", ("updates", "momentum", "ablations")),
        ("One honest budget, and our own rules: mostly beyond the paper", ("honest", "ours")),
    ),
    replays=(
        Replay("figure5", "ag-news-standin/k5/seeds0-4/AdamWOSM", "a grid of a network of words"),
        Replay("honest", "honest/ag-news-standin/seeds0-4/AdamOSO", "a run with a clip that is learnt", repeats=1),
        Replay("figure3", "mnist/k7/seeds0-4/NoDP", "a grid of a convolutional network", gpu=True),
        Replay("figure4", "fashion/k5/seed4/FixedThreshold", "a grid of an autoencoder", gpu=True),
        Replay("figure1", "cosine/mnist", "sanitised and true gradients", gpu=True),
    ),
)
