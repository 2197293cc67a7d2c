"""Galli, Palamidessi & Cucinotta 2024, "Online Sensitivity Optimization in Differentially Private Learning" (AAAI 2024)."""

from __future__ import annotations

from honestdp_papers.registry import Item, Paper

METHOD: tuple[Item, ...] = ()
"""Figures 1 and 2 and Proposition 1: the method itself."""

PAPER = Paper(
    name="galli2024",
    title="Online Sensitivity Optimization in Differentially Private Learning",
    citation="Galli, Palamidessi & Cucinotta, AAAI 2024",
    items=(*METHOD,),
)
