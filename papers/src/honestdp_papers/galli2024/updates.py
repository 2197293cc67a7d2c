"""What the text says of its update rules: the sign against the proportional update, eq. (19), rho_c, and momentum."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from honestdp_papers.claims import OURS, Claim, Measured, Outcome, Table, counted, judged
from honestdp_papers.galli2024.comparing import BEST, LAST, Scores, decided, shown, spread
from honestdp_papers.galli2024.setting import MNIST, SEEDS, sized
from honestdp_papers.galli2024.variants import paces, proportional, sign, variant_scores
from honestdp_papers.parts import Array, Finished

Found = dict[tuple[str, float], Scores]
MOMENTA = (0.5, 0.9, 0.99)
EXACT = 1e-6
"""By which a derivative by differences may be off, as a part of it."""


def updates(parts: Finished, quick: bool) -> Outcome:
    found = variant_scores(parts, "updates", MNIST, quick)
    first, last = sized(MNIST, quick).epsilons[0], sized(MNIST, quick).epsilons[-1]
    seeds = min((scores.seeds for scores in found.values()), default=0)
    claims = [_robust(found, paces(quick), first, last, seeds, quick), _level(found, paces(quick), first, seeds, quick)]
    claims.append(_depends(found, paces(quick), (first, last), seeds, quick))
    rows: list[list[str | float]] = []
    for (name, epsilon), own in found.items():
        tops = [own.top(reading) for reading in (BEST, LAST)]
        cells = [shown(top, MNIST, own.seeds) for top in tops]
        rows.append([f"{epsilon:g}", name, *cells, str(own.seeds)])
    table = Table(
        "MNIST: accuracy at the best step size of the grid, %", ["epsilon", "update", BEST, LAST, "seeds"], rows
    )
    notes = [
        f"{seeds} of {SEEDS} seeds. The step size is held at its first value, so that the clip's update alone differs; "
        "noises are those of Online's grid. The cosine of two noisy gradients is of the order of 1 over the root of the "
        "number of weights, so that the proportional update hardly moves the clip at the paper's rho_c.",
    ]
    if quick:
        notes.append("Quick version: a small network, 4000 records, 200 steps, 3 step sizes, two rho_c, one seed.")
    numbers = {f"{name}, epsilon {epsilon:g}": own.top(BEST).value for (name, epsilon), own in found.items()}
    said = _conclusions(found, paces(quick), (first, last))
    return Outcome(claims, {"accuracies": numbers, "conclusions": said}, [table], notes)


def _conclusions(found: Found, each: tuple[float, ...], epsilons: tuple[float, ...]) -> list[str]:
    if not found:
        return []

    def told(name: Callable[[float], str]) -> str:
        rows = []
        for epsilon in epsilons:
            tops = {pace: found[name(pace), epsilon].top(LAST).value for pace in each}
            worst, best = min(tops, key=tops.__getitem__), max(tops, key=tops.__getitem__)
            rows.append(f"{tops[best]:.1f} % at {best:g} to {tops[worst]:.1f} % at {worst:g} (epsilon {epsilon:g})")
        return ", ".join(rows)

    return [
        f"MNIST: what rho_c changes, of {', '.join(f'{pace:g}' for pace in each)}, by the last iterate and the best step size: "
        f"from {told(sign)} where the clip moves by sign, from {told(proportional)} where it moves in proportion."
    ]


def _tops(means: list[Array]) -> list[float]:
    return [float(one.max()) for one in means]


def _robust(found: Found, each: tuple[float, ...], first: float, last: float, seeds: int, quick: bool) -> Claim:
    """What is lost from the largest epsilon to the least, by either update."""
    gaps = []
    for pace in each:
        groups = [found[name(pace), epsilon].read(BEST) for name in (sign, proportional) for epsilon in (first, last)]
        gaps.append(spread(groups, lambda m: _lost(m[2], m[3]) - _lost(m[0], m[1])))
    cases = [decided(gap.above(0), seeds, quick) for gap in gaps]
    return judged(
        "The sign update is more robust to the noise than the proportional one",
        cases,
        f"from epsilon {last:g} to {first:g} it loses less accuracy in {counted(cases)} rho_c; what it spares, in points: "
        + _by(each, gaps),
    )


def _lost(low: Array, high: Array) -> float:
    return float(high.max() - low.max())


def _level(found: Found, each: tuple[float, ...], epsilon: float, seeds: int, quick: bool) -> Claim:
    gaps = [
        spread(
            [found[name(pace), epsilon].read(BEST) for name in (sign, proportional)],
            lambda m: float(m[0].max() - m[1].max()),
        )
        for pace in each
    ]
    cases = [decided(gap.above(0), seeds, quick) for gap in gaps]
    return judged(
        f"The sign update is better than the proportional one at epsilon {epsilon:g}",
        cases,
        f"in {counted(cases)} rho_c; sign less proportional: {_by(each, gaps)}",
        kind=OURS,
    )


def _depends(found: Found, each: tuple[float, ...], epsilons: tuple[float, ...], seeds: int, quick: bool) -> Claim:
    """The spread of the accuracy over rho_c."""
    gaps = []
    for epsilon in epsilons:
        groups = [found[name(pace), epsilon].read(BEST) for name in (sign, proportional) for pace in each]
        half = len(each)
        gaps.append(spread(groups, lambda m, half=half: _spread(list(m[half:])) - _spread(list(m[:half]))))  # type: ignore[misc]
    cases = [decided(gap.above(0), seeds, quick) for gap in gaps]
    return judged(
        "The sign update depends less on rho_c than the proportional one",
        cases,
        f"over rho_c {', '.join(f'{pace:g}' for pace in each)} its accuracy spreads less in {counted(cases)} epsilons; the "
        "proportional update's spread less the sign's: "
        + ", ".join(f"{gap} (epsilon {epsilon:g})" for gap, epsilon in zip(gaps, epsilons, strict=True)),
    )


def _spread(means: list[Array]) -> float:
    tops = _tops(means)
    return max(tops) - min(tops)


def _by(each: tuple[float, ...], gaps: list[Measured]) -> str:
    return ", ".join(f"{gap} (rho_c {pace:g})" for pace, gap in zip(each, gaps, strict=True))


def momentum(parts: Finished, quick: bool) -> Outcome:
    """Derivatives of the weights with respect to the clip, by differences, with momentum, on the digits."""
    rows: list[list[str | float]] = []
    exact, alike = [], []
    for m in MOMENTA:
        one, held, signs = _derivatives(m)
        exact.append(one < EXACT)
        alike.append(signs >= 0.99)
        rows.append([f"{m:g}", f"{one:.1e}", held, 100 * signs])
    told_as = ", ".join(f"{row[2]:.2f} and {row[3]:.0f} % (momentum {row[0]})" for row in rows)
    claims = [
        judged(
            "With momentum the derivative with respect to the clip only gets a factor",
            exact,
            f"the derivative of a step with respect to the clip of that step is -rho q by differences, off by at most "
            f"{max(float(row[1]) for row in rows):.1e} of it; a damped momentum gives the factor 1 - m",
        ),
        judged(
            "With momentum the derivative with respect to a clip that is the same in all steps so far is that of the last step "
            "but for a factor",
            alike,
            f"it is the sum of m^s q_(t-s): its cosine with q, and the share of steps in which both give the clip's update one "
            f"sign: {told_as}",
            kind=OURS,
        ),
    ]
    header = ["momentum", "off by, as a part", "cosine of q and the whole derivative", "same sign, % of the steps"]
    notes = [
        "A network 64-32-10 on 200 of the digits, whole lots, no noise, 60 steps of size 0.5, clip 0.5: algebra, not accuracy. "
        "The paper's derivation takes the clip of the last step alone.",
    ]
    return Outcome(
        claims, {"rows": [[str(cell) for cell in row] for row in rows]}, [Table("Derivatives", header, rows)], notes
    )


def _derivatives(m: float) -> tuple[float, float, float]:
    """How far differences are off -rho q; the mean cosine of q and sum m^s q_(t-s); how often both give one sign."""
    from sklearn.datasets import load_digits  # here: a bare GPU machine, which asks for parts alone, has none

    digits = load_digits()
    x, y = torch.tensor(digits.data[:200] / 16), torch.tensor(digits.target[:200])
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)).double()
    names = [name for name, _ in model.named_parameters()]
    weights = torch.cat([value.detach().flatten() for value in model.parameters()])
    shapes = [value.shape for value in model.parameters()]

    def loss(flat: torch.Tensor, one: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        pieces = torch.split(flat, [shape.numel() for shape in shapes])
        parameters = {name: piece.reshape(shape) for name, piece, shape in zip(names, pieces, shapes, strict=True)}
        return torch.nn.functional.cross_entropy(
            torch.func.functional_call(model, parameters, (one[None],)), label[None]
        )

    each = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))
    rate, clip, velocity, whole, before = 0.5, 0.5, torch.zeros_like(weights), torch.zeros_like(weights), None
    off, cosines, signs = 0.0, [], []
    for _ in range(60):
        gradients = each(weights, x, y)
        norms = gradients.norm(dim=1)
        q = (gradients / norms[:, None] * (norms > clip)[:, None]).mean(dim=0)
        clipped = (gradients * (clip / norms).clamp(max=1)[:, None]).mean(dim=0)
        if before is not None:
            signs.append(bool(torch.sign(clipped @ before[0]) == torch.sign(clipped @ before[1])))
        step = 1e-7
        moved = (gradients * ((clip + step) / norms).clamp(max=1)[:, None]).mean(dim=0)
        found = (-rate * (m * velocity + moved) + rate * (m * velocity + clipped)) / step
        off = max(off, float((found + rate * q).norm() / (rate * q).norm()))
        velocity, whole = m * velocity + clipped, m * whole + q
        cosines.append(float(torch.nn.functional.cosine_similarity(q, whole, dim=0)))
        before = (q, whole)
        weights = weights - rate * velocity
        if not (norms > clip).any():
            break
    return off, float(np.mean(cosines[1:])), float(np.mean(signs))
