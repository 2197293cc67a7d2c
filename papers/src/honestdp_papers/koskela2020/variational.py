"""Figures 5 and 6, and Figure 1 of the supplement: variational inference of a Gaussian mixture, ADADP against tuned
DPVI.

The model of Section 5.5 is that of Jaelkoe, Honkela & Dikmen 2017, to which the paper refers: theta = (pi, mu, tau)
with pi ~ Dir(1), mu_k ~ N(0, I), tau_k ~ Inv-Gamma(1, 1), p(x | theta) = sum_k pi_k N(x; mu_k, tau_k I), and q a normal
distribution with independent coordinates of the unconstrained z = (sticks of pi, mu, ln tau): 2 (K - 1 + 2K + K) = 38
numbers for K = 5. A record's loss is -(ln p(x_i | z) + (ln p(z) + H(q)) / N) at one draw z of q, so that the engine
knows nothing of it but a loss.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from honestdp import GaussianDraw, Run
from honestdp.boundary.capture import free_captured
from honestdp.boundary.seed import Seed, lent, seed_all
from honestdp.optimizers import ADADP, SGD, Rule
from honestdp_papers.claims import NUMBERS, OURS, Claim, Measured, Outcome, Table, counted, jackknifed, judged
from honestdp_papers.curves import Bench, placed, seeded
from honestdp_papers.koskela2020.training import DELTA, SWITCH, half_decades
from honestdp_papers.look import COLOURS, logarithmic, named, panels, shared_legend
from honestdp_papers.parts import Array, Arrays, Finished, Part, Tell

RECORDS, TESTS, LOT, CLIP = 1000, 100, 20, 1.0
EPOCH = RECORDS // LOT
"""Releases of an epoch, and between two looks."""
CENTRES = ((0.0, 0.0), (1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0))
KINDS, SIZE = 5, 19
"""Components, and coordinates of z."""
STEPS = {1.2: 3000, 6.0: 8000}
"""Releases by noise."""
TAU, FIRST = 0.1, 0.1
FIRSTS = (1e-3, 1e-2, 1e-1, 1.0)
"""eta0 from which ADADP starts in figure 6; in the others 0.1."""
RATES = half_decades(-1, 6)
"""Step sizes of DPVI, from 10^0.5 down to 10^-3."""
REPEATS, QUICK_REPEATS, QUICK_RATES = 20, 4, half_decades(0, 5)
DRAWS = 64
"""Draws of q by which a held-out log-likelihood is averaged, the same for all."""


def records(count: int, seed: int) -> Tensor:
    """`[count, 2]`: of five normal distributions of unit covariance, each as likely."""
    generator = torch.Generator().manual_seed(seed)
    kinds = torch.randint(0, KINDS, (count,), generator=generator)
    return torch.tensor(CENTRES)[kinds] + torch.randn(count, 2, generator=generator)


def log_sticks(sticks: Tensor) -> tuple[Tensor, Tensor]:
    """ln pi `[..., K]` of K - 1 numbers, of which each breaks its part off what is left; and ln of the Jacobian's determinant."""
    broken, left = nn.functional.logsigmoid(sticks), nn.functional.logsigmoid(-sticks)
    before = left.cumsum(-1) - left
    weights = torch.cat([broken + before, left.sum(-1, keepdim=True)], dim=-1)
    return weights, (broken + left + before).sum(-1)


def parted(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """z `[..., 19]` as sticks `[..., 4]`, means `[..., 5, 2]` and ln tau `[..., 5]`."""
    sticks, means, logs = torch.split(z, [KINDS - 1, 2 * KINDS, KINDS], dim=-1)
    return sticks, means.reshape(*means.shape[:-1], KINDS, 2), logs


def log_likelihood(z: Tensor, x: Tensor) -> Tensor:
    """ln p(x | z) `[..., records]` for z `[..., 19]` and x `[records, 2]`."""
    sticks, means, logs = parted(z)
    apart = ((x[:, None] - means.unsqueeze(-3)) ** 2).sum(-1)
    each = -0.5 * apart * (-logs).exp().unsqueeze(-2) - logs.unsqueeze(-2) - math.log(2 * math.pi)
    return (log_sticks(sticks)[0].unsqueeze(-2) + each).logsumexp(-1)


def log_prior(z: Tensor) -> Tensor:
    """ln p(z): Dirichlet, normal and inverse gamma densities with the Jacobians of the way to z."""
    sticks, means, logs = parted(z)
    parts = math.lgamma(KINDS) + log_sticks(sticks)[1]
    centres = -0.5 * means.square().sum((-2, -1)) - KINDS * math.log(2 * math.pi)
    return parts + centres + (-logs - (-logs).exp()).sum(-1)


class Mixture(nn.Module):
    """The posterior q(z) = N(loc, scale^2), standard normal at the start, as in the published code of DPVI. In training the
    evidence bound of each record, in eval() its log-likelihood at loc.
    """

    def __init__(self, records: float = RECORDS) -> None:
        super().__init__()
        self.loc, self.log_scale = nn.Parameter(torch.zeros(SIZE)), nn.Parameter(torch.zeros(SIZE))
        self.draw = GaussianDraw()
        self.records = records

    def forward(self, x: Tensor) -> Tensor:
        z = self.draw(self.loc, self.log_scale.exp())
        if not self.training:
            return log_likelihood(z, x)
        entropy = self.log_scale.sum() + 0.5 * SIZE * (1 + math.log(2 * math.pi))
        return log_likelihood(z, x) + (log_prior(z) + entropy) / self.records


@dataclass(frozen=True)
class Held:
    """The held-out records and the draws by which they are judged, on a device."""

    x: Tensor
    e: Tensor

    @staticmethod
    def on(place: torch.device) -> Held:
        e = torch.randn(DRAWS, SIZE, generator=torch.Generator().manual_seed(2))
        return Held(records(TESTS, seed=1).to(place), e.to(place))

    @torch.no_grad()
    def score(self, loc: Tensor, log_scale: Tensor) -> Array:
        """E_q ln p(x | z) a record, `[runs]`. loc, log_scale: `[runs, 19]`."""
        z = loc[:, None] + log_scale.exp()[:, None] * self.e
        return log_likelihood(z, self.x).mean((1, 2)).cpu().numpy().astype(np.float32)


def adadp(first: float = FIRST) -> Rule:
    """As in Section 5.5: rejections, tolerance 0.1, and after 50 epochs the decay of what was found."""
    return ADADP(clip=CLIP, lr=first, tau=TAU, accept=True, switch=SWITCH * EPOCH)


def rates(quick: bool) -> tuple[float, ...]:
    return QUICK_RATES if quick else RATES


def steps_of(noise: float, quick: bool) -> int:
    """In quick, figure 5's noise is trained for as long as the other's: 50 epochs, and 10 of decay."""
    return STEPS[1.2] if quick else STEPS[noise]


def part_name(noise: float, method: str) -> str:
    return f"mixture/sigma{noise:g}/{method}"


def parts_at(quick: bool, noise: float) -> list[Part]:
    """DPVI at every step size and ADADP from every eta0, each from initial weights and with randomness of its own repeats."""
    return [_part(noise, method, quick) for method in ("DPVI", "ADADP")]


def _part(noise: float, method: str, quick: bool) -> Part:
    rules = [adadp(first) for first in FIRSTS] if method == "ADADP" else [SGD(lr=lr, clip=CLIP) for lr in rates(quick)]
    name, steps, repeats = part_name(noise, method), steps_of(noise, quick), QUICK_REPEATS if quick else REPEATS
    run, seed = Run(records=RECORDS, lot=LOT, steps=steps, noise=noise), zlib.crc32(name.encode())
    identity = {
        "run": [RECORDS, LOT, steps, noise],
        "tests": TESTS,
        "clip": CLIP,
        "step sizes": list(FIRSTS if method == "ADADP" else rates(quick)),
        "tau": TAU,
        "switch": SWITCH,
        "repeats": repeats,
        "draws": DRAWS,
        "seed": seed,
    }

    def work(device: str, tell: Tell) -> Arrays:
        return trained(rules, run, repeats, seed, device, tell)

    return Part(name, identity, 1 + steps * 1.5e-3, work)


def trained(rules: Sequence[Rule], run: Run, repeats: int, seed: int, device: str, tell: Tell) -> Arrays:
    """Every rule as often as there are repeats, all together, looked at after every epoch.

    likelihood: E_q ln p of a held-out record, `[repeats, rules, looks]`, the first look before the first step. eta: the step size
    that ADADP has found, alike. final: loc and log_scale at the end, `[repeats, rules, 38]`.
    """
    place = placed(device)
    bench = Bench(seeded(Mixture, 0), records(RECORDS, seed=0), place, records=RECORDS)
    starts = bench.starts(Mixture, range(repeats), each=len(rules))
    held, seen, etas = Held.on(place), [], []
    with lent():
        seed_all(seed)
        # DPVI's step size decays by (5.1); ADADP's rule does that by itself.
        own, every_rule = Seed.fixed(seed), list(rules) * repeats
        population = bench.population(run, every_rule, starts, own, every=EPOCH, schedule="decay")
        for epoch in range(run.steps // EPOCH + 1):
            while population.step < epoch * EPOCH:
                population.block()
            views = bench.layout.views(population.weights())
            seen.append(held.score(views["loc"], views["log_scale"]))
            if "eta" in population.state:
                etas.append(population.state["eta"].cpu().numpy())
            tell(population.step / run.steps)
    if place.type == "cuda":
        free_captured()
    final = torch.cat([views["loc"], views["log_scale"]], dim=1).cpu().numpy()
    shape = (repeats, len(rules), -1)
    found = {"likelihood": np.stack(seen, 1).reshape(shape), "final": final.reshape(shape)}
    return found | ({"eta": np.stack(etas, 1).astype(np.float32).reshape(shape)} if etas else {})


PRINTED = {1.2: 6.7, 6.0: 1.6}
"""Epsilon by noise."""
CLOSE = 0.1
"""Of what DPVI gains from its start at the best step size: within it a held-out log-likelihood is competitive."""
ALIKE = 1.25
"""Factor within which two step sizes are the same."""
SETTLED = slice(10, SWITCH + 1)
"""Epochs over which a step size that was found is averaged."""
SETTINGS = [
    f"- The mixture: {RECORDS} records and {TESTS} held-out ones of five normal distributions of unit covariance at 0 and "
    f"(+-1, +-1), made up; lot {LOT}, clip {CLIP:g}, {', '.join(f'{n} releases at sigma {s:g}' for s, n in STEPS.items())} (that "
    f"these are releases follows from the printed epsilon); ADADP with tau {TAU:g} and rejections, after {SWITCH} epochs the "
    "decay of what it found; DPVI is DPSGD with the same decay.",
]


def parts6(quick: bool) -> list[Part]:
    return [part for noise in STEPS for part in parts_at(quick, noise)]


@dataclass(frozen=True)
class Trained:
    """The trainings at one noise: held-out log-likelihoods `[repeats, step sizes, looks]` and ADADP's step sizes alike."""

    noise: float
    rates: tuple[float, ...]
    dpvi: Array
    adadp: Array
    eta: Array

    @staticmethod
    def read(parts: Finished, noise: float, quick: bool) -> Trained:
        dpvi, adadp = (parts[part_name(noise, method)] for method in ("DPVI", "ADADP"))
        kept = dpvi["likelihood"].astype(float), adadp["likelihood"].astype(float), adadp["eta"].astype(float)
        return Trained(noise, rates(quick), *kept)

    @property
    def first(self) -> Array:
        """ADADP from eta0 = 0.1, `[repeats, 1, looks]`."""
        place = FIRSTS.index(FIRST)
        return self.adadp[:, place : place + 1]

    def order(self) -> list[int]:
        """Places of DPVI's step sizes, the best at the end of training first."""
        return [int(place) for place in np.argsort(-self.dpvi.mean(axis=0)[:, -1])]

    @property
    def gain(self) -> float:
        """What DPVI gains at its best step size."""
        best = self.dpvi.mean(axis=0)[self.order()[0]]
        return float(best[-1] - best[0])

    def above(self, rank: int, *, average: bool = False) -> Measured:
        """ADADP's log-likelihood less that of DPVI at its best step size but `rank`, at the end or averaged over training."""

        def gap(means: Any) -> float:
            place = np.argsort(-means[1][:, -1])[rank]
            line = means[0][0, 1:] - means[1][place, 1:]
            return float(line.mean() if average else line[-1])

        return jackknifed([self.first, self.dpvi], gap)

    def found(self, place: int) -> Measured:
        """ln of the step size that ADADP finds from the eta0 at this place, averaged over the repeats and epochs 10 to 50."""
        logs = np.log(self.eta[:, place, SETTLED]).mean(axis=1, keepdims=True)
        return jackknifed([logs], lambda means: float(means[0][0]))

    def arrival(self, place: int) -> int:
        """The first epoch after which the mean of ln eta is within ALIKE of where it settles."""
        line = np.log(self.eta[:, place]).mean(axis=0)
        near = np.abs(line - self.found(place).value) <= math.log(ALIKE)
        return int(np.argmax(near))

    def allowed(self, place: int) -> int:
        """The epochs that eta needs at least for that, since an iteration moves it by 0.9 to 1.1."""
        way = self.found(place).value - math.log(FIRSTS[place])
        iterations = max(0.0, abs(way) - math.log(ALIKE)) / abs(math.log(1.1 if way > 0 else 0.9))
        return math.ceil(2 * iterations / EPOCH)


def shown(measured: Measured) -> str:
    return f"{measured.value:+.3f} ± {measured.error:.3f}"


def compared(parts: Finished, quick: bool, noise: float) -> Outcome:
    from honestdp import Run, epsilon

    trained = Trained.read(parts, noise, quick)
    run = Run(records=RECORDS, lot=LOT, steps=STEPS[noise], noise=noise)
    spent = epsilon(run, delta=DELTA, accountant="moments")
    grid = len(trained.rates)
    costs: list[list[str | float]] = [
        ["one run, moments accountant, as in the paper", spent],
        ["one run", epsilon(run, delta=DELTA)],
        [f"DPVI at all {grid} step sizes, composed", epsilon(run, delta=DELTA, selection="compose", candidates=grid)],
        [
            "a search among them by random stopping, only the winner leaves",
            epsilon(run, delta=DELTA, selection="envelope", candidates=grid),
        ],
    ]
    claims = [*_competitive(trained), _printed(noise, spent)]
    tables = [_ends(trained), Table(f"Epsilon at delta {DELTA:g}", ["what is done", "epsilon"], costs, digits=2)]
    steps = (np.arange(trained.dpvi.shape[2]) * EPOCH).tolist()
    lines = {"ADADP": trained.first[:, 0]} | {
        f"DPVI, eta {trained.rates[place]:.3g}{' (best)' if rank == 0 else ''}": trained.dpvi[:, place]
        for rank, place in enumerate(trained.order()[:3])
    }
    numbers = {
        "sigma": noise,
        "steps": steps,
        "lines": {name: line.mean(axis=0).round(4).tolist() for name, line in lines.items()},
        "errors": {name: _error(line).round(4).tolist() for name, line in lines.items()},
    }
    return Outcome(claims, numbers, tables, _notes(quick), lambda file: _draw(file, numbers, noise))


def _competitive(trained: Trained) -> list[Claim]:
    room = CLOSE * trained.gain
    best = [trained.above(0), trained.above(0, average=True)]
    close = [gap.above(-room) for gap in best]
    others = [trained.above(rank) for rank in (1, 2)]
    better = [gap.above(0) for gap in others]
    return [
        judged(
            "ADADP is competitive with optimally tuned DPVI",
            close,
            f"its held-out log-likelihood is at most {room:.3f} lower, a tenth of what DPVI gains, in {counted(close)} cases; at "
            f"the end {shown(best[0])}, averaged over training {shown(best[1])}",
        ),
        judged(
            "ADADP ends above DPVI at its second and third best step size",
            better,
            f"in {counted(better)} cases; {shown(others[0])} and {shown(others[1])}",
            kind=OURS,
        ),
    ]


def _printed(noise: float, spent: float) -> Claim:
    return judged(
        f"Epsilon is {PRINTED[noise]:g} at the end",
        [round(spent, 1) == PRINTED[noise]],
        f"{spent:.2f} for {STEPS[noise]} releases by the moments accountant; an iteration of ADADP is two of them",
        kind=NUMBERS,
    )


def _error(line: Array) -> Array:
    """Standard errors of the mean over the repeats, `[looks]`."""
    found: Array = line.std(axis=0, ddof=1) / math.sqrt(len(line))
    return found


def _ends(trained: Trained) -> Table:
    rows: list[list[str | float]] = [["ADADP, eta0 0.1", *_end(trained.first[:, 0])]]
    rows += [[f"DPVI, eta {rate:.3g}", *_end(trained.dpvi[:, place])] for place, rate in enumerate(trained.rates)]
    return Table("Held-out log-likelihood a record at the end", ["method", "mean", "error"], rows, digits=3)


def _end(line: Array) -> list[str | float]:
    return [float(line[:, -1].mean()), float(_error(line)[-1])]


def figure6(parts: Finished, quick: bool) -> Outcome:
    every = [Trained.read(parts, noise, quick) for noise in STEPS]
    cases: list[bool | None] = []
    levels: list[list[Any]] = []
    for one in every:
        reference = one.found(FIRSTS.index(FIRST))
        for place, first in enumerate(FIRSTS):
            found = one.found(place)
            if first != FIRST:
                apart = Measured(abs(found.value - reference.value), math.hypot(found.error, reference.error))
                cases.append(apart.at_most(math.log(ALIKE)))
            levels.append(
                [f"{one.noise:g}", f"{first:g}", math.exp(found.value), one.arrival(place), one.allowed(place)]
            )
    suitable = [_suitable(one) for one in every]
    ends = [(one, place) for one in every for place, first in enumerate(FIRSTS) if first != FIRST]
    same_end = [_same_end(one, place) for one, place in ends]
    quickly = [row[3] <= row[4] + 1 for row in levels]
    claims = [
        judged(
            "ADADP finds the suitable step size from different initial ones: it is the same one",
            cases,
            f"within a factor of {ALIKE:g} of that from {FIRST:g} in {counted(cases)} cases; "
            + "; ".join(f"sigma {row[0]} from {row[1]}: {row[2]:.3f}" for row in levels),
        ),
        judged(
            "and it is suitable: DPVI at the nearest step size of its grid is competitive with its best",
            [case for case, _ in suitable],
            "; ".join(words for _, words in suitable),
        ),
        judged(
            "It is there as soon as factors of 0.9 to 1.1 an iteration can bring it, or an epoch later",
            quickly,
            f"in {counted(quickly)} cases; after {max(row[3] for row in levels)} epochs at most",
            kind=OURS,
        ),
        judged(
            "The held-out log-likelihood at the end does not depend on the initial step size",
            [case for case, _ in same_end],
            f"within a tenth of what DPVI gains of that from {FIRST:g} in {counted([case for case, _ in same_end])} cases; "
            + ", ".join(words for _, words in same_end),
            kind=OURS,
        ),
    ]
    header = ["sigma", "eta0", "step size, epochs 10 to 50", "epochs until there", "epochs that it takes at least"]
    numbers = {
        f"{one.noise:g}": {f"{first:g}": _middle(one.eta[:, place]) for place, first in enumerate(FIRSTS)}
        for one in every
    }
    table = Table("The step size that ADADP finds", header, levels, digits=3)
    return Outcome(claims, numbers, [table], _notes(quick), lambda file: _draw_sizes(file, numbers))


def _suitable(one: Trained) -> tuple[bool | None, str]:
    found = one.found(FIRSTS.index(FIRST)).value
    place = int(np.argmin([abs(math.log(rate) - found) for rate in one.rates]))
    gap = jackknifed([one.dpvi], lambda means: float(means[0][place, -1] - means[0][:, -1].max()))
    words = f"sigma {one.noise:g}: found {math.exp(found):.3f}, DPVI at {one.rates[place]:.3g} is {shown(gap)} from its best"
    return gap.above(-CLOSE * one.gain), words


def _same_end(one: Trained, place: int) -> tuple[bool | None, str]:
    groups = [one.adadp[:, place : place + 1], one.first]
    gap = jackknifed(groups, lambda means: float(means[0][0, -1] - means[1][0, -1]))
    room = CLOSE * one.gain
    # Beyond the room on either side; the error is small beside it or nothing can be told.
    return Measured(abs(gap.value), gap.error).at_most(room), shown(gap)


def _middle(line: Array) -> list[float]:
    """The geometric mean over the repeats, `[looks]`."""
    found: list[float] = np.exp(np.log(line).mean(axis=0)).round(6).tolist()
    return found


def _notes(quick: bool) -> list[str]:
    notes = [
        f"Averages over {QUICK_REPEATS if quick else REPEATS} trainings, each with lots, noise and draws of its "
        "own, on one set of records; ± is one standard error. The held-out log-likelihood is E_q ln p(x) a record, by "
        f"{DRAWS} draws of q that are the same for all: evaluation on public data, covered by no budget.",
        "Not in the paper: how q is written and where it begins. As in the published code of DPVI (github.com/DPBayes/DPVI-code) "
        "q is a normal distribution with independent coordinates of sticks, means and ln tau, and begins as the standard one; "
        "one draw a record and step, where that code shares a draw among a lot. The step sizes of DPVI are chosen by the "
        "held-out log-likelihood at the end, as the paper does, which no budget covers.",
    ]
    if quick:
        notes.append(
            f"Quick version: {STEPS[1.2]} releases at either noise, {QUICK_REPEATS} trainings, "
            f"{len(QUICK_RATES)} step sizes; epsilon is that of the full length."
        )
    return notes


def _draw(file: Path, numbers: dict[str, Any], noise: float) -> None:
    colours = (COLOURS["ADADP"], COLOURS["DPSGD"], COLOURS["DPAdam"], COLOURS["DPMomentum"])
    with panels(file, 1, 1, size=(7, 4.2)) as axes:
        one = axes[0][0]
        for (name, line), colour in zip(numbers["lines"].items(), colours, strict=False):
            values, half = np.array(line), np.array(numbers["errors"][name])
            one.plot(numbers["steps"], values, color=colour, linewidth=1.5, label=name)
            one.fill_between(numbers["steps"], values - half, values + half, color=colour, alpha=0.2, linewidth=0)
        named(one, f"sigma {noise:g}", "releases", "held-out log-likelihood a record")
        shared_legend(one, "Gaussian mixture, private variational inference", columns=2)


def _draw_sizes(file: Path, numbers: dict[str, Any]) -> None:
    shades = ("#264653", "#2a9d8f", "#e0a100", "#d62728")
    with panels(file, 1, 2, size=(9, 3.9)) as axes:
        for one, (noise, lines) in zip(axes[0], numbers.items(), strict=True):
            for (first, line), colour in zip(lines.items(), shades, strict=True):
                line = line[: SWITCH + 1]
                one.plot(range(len(line)), line, color=colour, linewidth=1.5, label=f"eta0 {first}")
            logarithmic(one.yaxis)
            named(one, f"sigma {noise}", "epochs of 50 releases", "step size")
        shared_legend(axes[0][0], "The step size that ADADP finds", columns=4)
