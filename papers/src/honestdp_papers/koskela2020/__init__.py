"""Koskela & Honkela 2020, "Learning Rate Adaptation for Differentially Private Learning" (AISTATS 2020), and its supplement."""

from __future__ import annotations

from functools import partial

from honestdp_papers.registry import Item, Paper, Replay, finish_in, head_in, parts_in, trained_in

_trained = partial(trained_in, __name__)

THEORY = (
    Item("lemma1", "The error estimate is of third order", finish_in(f"{__name__}.lemma1", "lemma1")),
    Item("theorem9", "An iteration of ADADP costs two releases", finish_in(f"{__name__}.theorem9", "theorem9")),
    Item("theorem10", "How far a full and two half steps are apart", finish_in(f"{__name__}.theorem10", "theorem10")),
    Item(
        "section4_2", "The tolerance that keeps gathered noise O(1)", finish_in(f"{__name__}.section4_2", "section4_2")
    ),
)
"""Lemma 1, Theorems 9 and 10, Section 4.2."""
NETWORKS = (
    _trained("figure1a", "ADADP and DP-Adam at its best step sizes, MNIST", "networks", "parts1a"),
    _trained("figure1b", "ADADP and DP-Adam at its best step sizes, CIFAR-10", "networks", "parts1b"),
    _trained("table1", "One run of ADADP against private selection, as printed and today", "table1", "parts_of"),
    Item(
        "figure2",
        "Realisations of ADADP and of private selection",
        finish_in(f"{__name__}.figure2", "figure2"),
        parts_in(f"{__name__}.table1", "parts_of"),
    ),
    _trained("figure3", "ADADP and DP-SGD tuned at another noise, MNIST", "networks", "parts3"),
    _trained("figure4", "ADADP and DP-SGD tuned at another noise, CIFAR-10", "networks", "parts4"),
)
"""Figures 1 to 4 and Table 1."""
VARIATIONAL = (
    _trained(
        "figure5", "Variational inference of a mixture at sigma 6: ADADP against tuned DPVI", "variational", "parts5"
    ),
    _trained("figure6", "The step size that ADADP finds from different initial ones", "variational", "parts6"),
    _trained(
        "supplement-figure1",
        "Variational inference of a mixture at sigma 1.2: ADADP against tuned DPVI",
        "variational",
        "parts_supplement",
    ),
)
"""Figures 5 and 6 and Figure 1 of the supplement: the Gaussian mixture."""
FEDERATED = tuple(
    Item(name, about, finish_in(f"{__name__}.federated", name), parts_in(f"{__name__}.federation", parts))
    for name, about, parts in (
        ("federated2a", "Federated averaging: accuracy against the share of random images", "parts_all"),
        ("federated2b", "Federated averaging: accuracy against the step size", "parts_all"),
        ("federated3a", "Federated averaging: a third of the images at random", "parts_third"),
        ("federated3b", "Federated averaging: every class at one client", "parts_apart"),
        ("federated4", "Federated averaging by Adam", "parts_adam"),
    )
)
"""Figures 2 to 4 of the supplement: federated averaging."""

PAPER = Paper(
    head=head_in(__name__),
    name="koskela2020",
    title="Learning Rate Adaptation for Differentially Private Learning",
    citation="Koskela & Honkela, AISTATS 2020, with the supplement",
    items=(*THEORY, *NETWORKS, *VARIATIONAL, *FEDERATED),
    replays=(
        Replay("supplement-figure1", "mixture/sigma1.2/DPVI", "the mixture by DPVI"),
        Replay("figure6", "mixture/sigma1.2/ADADP", "the mixture by ADADP, with rejected steps"),
        Replay("figure1a", "mnist-normalised/sigma2/ADADP-published", "a dense network of MNIST", gpu=True),
        Replay("figure1b", "cifar10/sigma2/ADADP-published", "a dense network on crops of CIFAR-10", gpu=True),
    ),
)
