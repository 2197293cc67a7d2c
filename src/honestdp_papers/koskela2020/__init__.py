"""Koskela & Honkela 2020, "Learning Rate Adaptation for Differentially Private Learning" (AISTATS 2020), and its supplement."""

from __future__ import annotations

from honestdp_papers.registry import Head, Item, Paper, finish_in


def _head() -> Head:
    from honestdp_papers.koskela2020.page import CHAPTERS, WORDS, settings

    return Head(settings(), list(WORDS), CHAPTERS)


THEORY = (Item("theorem9", "An iteration of ADADP costs two releases", finish_in(f"{__name__}.theorem9", "theorem9")),)
"""Lemma 1, Theorems 9 and 10, Section 4.2."""
NETWORKS: tuple[Item, ...] = ()
"""Figures 1 to 4 and Table 1."""
VARIATIONAL: tuple[Item, ...] = ()
"""Figures 5 and 6 and Figure 1 of the supplement: the Gaussian mixture."""
FEDERATED: tuple[Item, ...] = ()
"""Figures 2 to 4 of the supplement: federated averaging."""

PAPER = Paper(
    head=_head,
    name="koskela2020",
    title="Learning Rate Adaptation for Differentially Private Learning",
    citation="Koskela & Honkela, AISTATS 2020, with the supplement",
    items=(*THEORY, *NETWORKS, *VARIATIONAL, *FEDERATED),
)
