"""Koskela & Honkela 2020, "Learning Rate Adaptation for Differentially Private Learning" (AISTATS 2020), and its supplement."""

from __future__ import annotations

from functools import partial

from honestdp_papers.registry import Paper, Replay, item

_item = partial(item, __name__)
_beside_adam = partial(_item, module="networks", finish="beside_adam", parts="parts1")
_against_sgd = partial(_item, module="networks", finish="against_sgd", parts="parts3")
_mixture = partial(_item, module="variational", finish="compared", parts="parts_at")
_over_rounds = partial(_item, module="federated", finish="over_rounds", parts="federation.parts_at")

PAPER = Paper(
    name="koskela2020",
    title="Learning Rate Adaptation for Differentially Private Learning",
    citation="Koskela & Honkela, AISTATS 2020, with the supplement",
    items=(
        _item("lemma1", "The error estimate is of third order", "theory"),
        _item("theorem9", "An iteration of ADADP costs two releases", "theory"),
        _item("theorem10", "How far a full and two half steps are apart", "theory"),
        _item("section4_2", "The tolerance that keeps gathered noise O(1)", "theory"),
        _beside_adam("figure1a", "ADADP and DP-Adam at its best step sizes, MNIST", task="mnist"),
        _beside_adam("figure1b", "ADADP and DP-Adam at its best step sizes, CIFAR-10", task="cifar10"),
        _item(
            "table1",
            "One run of ADADP against private selection, as printed and today",
            "table1",
            parts="parts_of",
        ),
        _item("figure2", "Realisations of ADADP and of private selection", "table1", parts="parts_of"),
        _against_sgd("figure3", "ADADP and DP-SGD tuned at another noise, MNIST", task="mnist"),
        _against_sgd("figure4", "ADADP and DP-SGD tuned at another noise, CIFAR-10", task="cifar10"),
        _mixture("figure5", "Variational inference of a mixture at sigma 6: ADADP against tuned DPVI", noise=6.0),
        _item(
            "figure6",
            "The step size that ADADP finds from different initial ones",
            "variational",
            parts="parts6",
        ),
        _mixture(
            "supplement-figure1",
            "Variational inference of a mixture at sigma 1.2: ADADP against tuned DPVI",
            noise=1.2,
        ),
        _item(
            "federated2a",
            "Federated averaging: accuracy against the share of random images",
            "federated",
            parts="federation.parts_all",
        ),
        _item(
            "federated2b",
            "Federated averaging: accuracy against the step size",
            "federated",
            parts="federation.parts_all",
        ),
        _over_rounds("federated3a", "Federated averaging: a third of the images at random", level=33),
        _over_rounds("federated3b", "Federated averaging: every class at one client", level=0),
        _item("federated4", "Federated averaging by Adam", "federated", parts="federation.parts_adam"),
    ),
    chapters=(
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
    ),
    replays=(
        Replay("supplement-figure1", "mixture/sigma1.2/DPVI", "the mixture by DPVI"),
        Replay("figure6", "mixture/sigma1.2/ADADP", "the mixture by ADADP, with rejected steps"),
        Replay("figure1a", "mnist-normalised/sigma2/ADADP-published", "a dense network of MNIST", gpu=True),
        Replay("figure1b", "cifar10/sigma2/ADADP-published", "a dense network on crops of CIFAR-10", gpu=True),
    ),
)
