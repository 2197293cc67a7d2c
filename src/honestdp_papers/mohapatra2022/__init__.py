"""Mohapatra et al. 2022, "The Role of Adaptive Optimizers for Honest Private Hyperparameter Selection" (AAAI 2022)."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence

from honestdp_papers.claims import Outcome
from honestdp_papers.parts import Part
from honestdp_papers.registry import Finished, Head, Item, Paper


def _finish(module: str, function: str) -> Callable[[Finished, bool], Outcome]:
    """Imported when called: costs need the accountants, which a bare GPU machine does not have."""

    def later(parts: Finished, quick: bool) -> Outcome:
        found: Outcome = getattr(importlib.import_module(f"{__name__}.{module}"), function)(parts, quick)
        return found

    return later


def _parts(module: str, function: str) -> Callable[[bool], Sequence[Part]]:
    def later(quick: bool) -> Sequence[Part]:
        found: Sequence[Part] = getattr(importlib.import_module(f"{__name__}.{module}"), function)(quick)
        return found

    return later


def _trained(name: str, about: str, module: str, parts: str) -> Item:
    return Item(name, about, _finish(module, name), _parts(module, parts))


def _head() -> Head:
    from honestdp_papers.mohapatra2022.page import CHAPTERS, WORDS, settings

    return Head(settings(), list(WORDS), CHAPTERS)


PAPER = Paper(
    head=_head,
    name="mohapatra2022",
    title="The Role of Adaptive Optimizers for Honest Private Hyperparameter Selection",
    citation="Mohapatra, Sasy, He, Kamath & Thakkar, AAAI 2022",
    items=(
        Item("figure1", "What Liu & Talwar's selection costs against composition", _finish("costs", "figure1")),
        Item("theorem1", "Liu & Talwar's bound, checked by brute force", _finish("theorem1", "theorem1")),
        Item("trends", "LT's delta2, and other noises, lots and steps", _finish("trends", "trends")),
        Item("figure6", "From how many candidates on selection is cheaper", _finish("costs", "figure6")),
        Item("table1", "The costs of the three searches, and what they cost today", _finish("table1", "table1")),
        Item(
            "figure2",
            "Step size against clip on linear regression",
            _finish("coupling", "figure2"),
            _parts("regression", "parts"),
        ),
        Item("theorem2", "The optimal step size, predicted and measured", _finish("theorem2", "theorem2")),
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
            _finish("effective", "theorem3"),
            _parts("step_sizes", "parts"),
        ),
        Item(
            "computation",
            "Time and memory of a step of DPAdam and DPAdamWOSM",
            _finish("computation", "computation"),
            _parts("step_times", "parts"),
        ),
        Item(
            "honest",
            "Every optimizer's whole grid, and Horizon's single run, at one honest budget",
            _finish("honest", "honest"),
            _parts("honest_training", "parts"),
        ),
    ),
)
