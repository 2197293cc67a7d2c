"""The whole of a private training on one page: slow, plain, and what the engine has to equal.

`train` makes T steps of R runs. A run has weights, a rule (SGD, Adam, ...) and a noise multiplier sigma. One step of one run:

1. The rule names a clip C, from earlier releases and public numbers alone (`Rule`).
2. A lot is drawn: each record joins it with probability q = L/N, independently of all other records, steps and runs (`lots`).
3. For every record i of the lot: the gradient g_i of its loss at the present weights, from this record alone (`gradient`),
   its norm n_i and its weight w_i = min(1, C/n_i), so that |w_i g_i| <= C. A gradient that is not finite has weight 0.
4. Released is g~ = (sum_i w_i g_i + N(0, (sigma C)^2 I)) / L, rounded to a public grid (`release`); for an empty lot, noise.
5. The rule moves the weights. It sees g~, and neither records, nor gradients, nor the size of the lot.

Guarantee. Two sets of records are neighbours if one is the other with one record added or removed. Training is (epsilon, delta)-
differentially private: for neighbours D, D' and any set A of outcomes, P[train(D) in A] <= e^epsilon P[train(D') in A] + delta.
The outcome is all that `train` returns: the releases of all steps and runs, and the final weights. A record is one row, or one
person with all of their rows (no more than declared); g_i is then the gradient of the mean loss of these rows, clipped once.

Why.
- Sensitivity and noise. One record more or less in a lot moves the sum by at most C, whatever the other records are: given the
  lot, step 4 is a Gaussian mechanism of multiplier sigma.
- Lots. As the lot is a Poisson sample, the step is a Poisson-sampled Gaussian (q, sigma). N, L, T, sigma and q = L/N are declared
  constants, equal for neighbours (data of N - 1 records keep the declared N). Nothing follows from how many records there are or
  have joined: the sum is divided by L, and one record changes nobody else's chance. Lots are secret and never used twice.
- Composition. Steps 1 and 5 are post-processing of releases. So T steps of R runs, each with lots and noise of its own, are R T
  Poisson-sampled Gaussians, chosen adaptively, and epsilon follows from q, T and each run's sigma: no clip, rule, model or record
  enters it. `epsilon` is a simple upper bound, `honestdp.accounting` a tighter one.
- A second question. A rule may ask for one more sum over the same lot, to which a record adds a vector of norm S at most, with
  noise of deviation nu S. The noise of the gradient then has deviation nu_g C, where 1/nu_g^2 + 1/nu^2 = 1/sigma^2. Divide each
  sum by the deviation of its noise: both are one vector with noise of deviation 1, which one record moves by at most
  sqrt(1/nu_g^2 + 1/nu^2) = 1/sigma. Together they are one Gaussian of multiplier sigma, and the step costs what it cost.

What it rests on.
- First weights, rules, model, loss, variants and all constants are public: chosen without a look at these records.
- Model and loss are functions of the weights, one record and fresh random numbers (dropout). Each record gets its own copies, so
  that nothing they keep (running statistics, a cache) passes to the next; what they hide elsewhere (a global variable) would.
- The seed is 256 secret bits of the operating system (`Seed.fresh()`), for one training alone. Lots and noise are pseudo-random:
  they stand for true randomness while their generators do (`boundary/seed.py`, `noise.py`, `sampling.py`). With a fixed seed, or
  with sigma = 0, training is NOT PRIVATE.
- The argument is about real numbers. Sums and noise are float64, and the grid hides their last digits, which could betray the sum
  (Mironov 2012). Running times and error messages may tell of records, and are for whoever holds the records alone.

The engine (`boundary/mechanism.py`) makes these releases fast; tests/reference compares the two with the same seed. A record may
weigh less there (by 1/64 at most, or nothing where its norm overflows) and never more.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils import vector_to_parameters

from honestdp.boundary.noise import noise_source, torch_generator
from honestdp.boundary.sampling import PendingLots, block_steps
from honestdp.boundary.seed import Seed

CPU = torch.device("cpu")
HALF_RANGE = 3.453125
SENSITIVITY = {"direction": 1.0, "quantile": 0.5, "norm": HALF_RANGE}  # S of each second question
Record = Sequence[tuple[Tensor, Tensor]]  # its rows (x, y): one, or those of a person
Loss = Callable[[Any, Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Public:
    """Declared before a record is read. records: N. lot: L. steps: T. rate: q = L/N. rows: the most that one record has."""

    records: int
    lot: float
    steps: int
    rows: int = 1

    @property
    def rate(self) -> float:
        return self.lot / self.records


@dataclass(frozen=True)
class Ask:
    """What a rule asks of a lot. clip: C. automatic: weights 1/(n + 0.01) in place of min(1, C/n), with C = 1.

    second: "direction", the sum of g_i/n_i over the records with n_i > C; "quantile", the part of the lot with n_i <= C; "norm",
    the mean of ln sqrt(1 + |x_i|^2), clipped to [0, 6.90625]. second_noise: nu S, the deviation of the noise on its sum.
    """

    clip: float
    automatic: bool = False
    second: Literal["direction", "quantile", "norm"] | None = None
    second_noise: float = 0.0


@dataclass(frozen=True)
class Release:
    """All that leaves one step of one run. gradient: g~, `[d]`. second: the second answer, `[d]` for a direction, else `[1]`."""

    gradient: Tensor
    second: Tensor | None = None


class Rule(Protocol):
    """An optimizer: its next question, and the weights after the answer."""

    def ask(self) -> Ask: ...

    def move(self, weights: Tensor, release: Release) -> Tensor: ...


@dataclass
class SGD:
    """The plainest rule (Abadi et al. 2016)."""

    lr: float
    clip: float

    def ask(self) -> Ask:
        return Ask(self.clip)

    def move(self, weights: Tensor, release: Release) -> Tensor:
        return weights - self.lr * release.gradient


@dataclass(frozen=True)
class Variants:
    """Augmentation: in every step a row's x becomes one(x, u), for numbers u `[draws]`, uniform in [0, 1), drawn for that row.

    So a gradient is still of one record alone. at_once: a public constant, the numbers of so many records are drawn together."""

    one: Callable[[Tensor, Tensor], Tensor]
    draws: int
    at_once: int

    def of(self, members: list[list[Record]], rows: int, source: torch.Generator) -> list[list[Record]]:
        """The records of each run's lot, varied."""
        shape, starts = (len(members), self.at_once, rows, self.draws), range(0, max(map(len, members)), self.at_once)
        drawn = [torch.rand(shape, generator=source) for _ in starts]

        def varied(run: int, place: int, record: Record) -> Record:
            u = drawn[place // self.at_once][run, place % self.at_once]
            return [(self.one(x, u[row]), y) for row, (x, y) in enumerate(record)]

        return [[varied(run, place, one) for place, one in enumerate(lot)] for run, lot in enumerate(members)]


def train(
    model: nn.Module, loss: Loss, records: Sequence[Record], public: Public, *, weights: Sequence[Tensor],
    rules: Sequence[Rule], noise: Sequence[float], seed: Seed, variants: Variants | None = None,
) -> tuple[list[Tensor], list[list[Release]]]:  # fmt: skip
    """The final weights of each run, and the releases of each step and run.

    loss: loss(output, y), one number a row. weights: those to begin with, `[d]` for each run. noise: sigma of each run.
    """
    if not 0 < public.lot <= public.records or not all(1 <= len(record) <= public.rows for record in records):
        raise ValueError("lot must be above 0 and at most N, and no record have more rows than declared")
    model, current = copy.deepcopy(model).double(), [own.double() for own in weights]
    normal, varying = noise_source(CPU, seed.child("noise")).normal, torch_generator(CPU, seed.child("augmentation"))
    runs, d, released = len(rules), len(current[0]), []
    for numbers in lots(len(records), public, runs, seed):
        asked = [rule.ask() for rule in rules]  # before any record is looked at, and in force until the release is made
        (second,) = {ask.second for ask in asked}  # the runs of a population ask alike
        members = [[records[i] for i in own] for own in numbers]
        members = members if variants is None else variants.of(members, public.rows, varying)
        z, z_second = normal((runs, d)), normal((runs, d if second == "direction" else 1)) if second else [None] * runs
        answers = []
        for run, lot in enumerate(members):
            known = [(record, gradient(model, loss, current[run], record)) for record in lot]
            answers.append(release(known, asked[run], noise[run], public.lot, z[run], z_second[run]))
        current = [rule.move(own, answer) for rule, own, answer in zip(rules, current, answers, strict=True)]
        released.append(answers)
    return current, released


def lots(present: int, public: Public, runs: int, seed: Seed) -> Iterator[list[list[int]]]:
    """For each step the lot of each run, the numbers of its records: each of those present joins it by a coin of its own."""
    source = torch_generator(CPU, seed.child("lots"))
    block = block_steps(records=public.records, rate=public.rate, runs=runs)
    for start in range(0, public.steps, block):
        steps = min(block, public.steps - start)
        drawn = PendingLots(source, records=present, rate=public.rate, steps=steps, runs=runs).finish()
        for indices, counts in zip(drawn.indices, drawn.counts.tolist(), strict=True):
            yield [own[:count].tolist() for own, count in zip(indices, counts, strict=True)]


def gradient(model: nn.Module, loss: Loss, weights: Tensor, record: Record) -> Tensor:
    """g_i, `[d]`: of the mean loss of a record's rows, one row at a time, by all trainable weights."""
    model, loss = copy.deepcopy((model, loss))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    with torch.no_grad():
        vector_to_parameters(weights.clone(), trained)  # which a model may write to
    losses = torch.cat([loss(model(x[None]), y[None]) for x, y in record])
    parts = torch.autograd.grad(losses.mean(), trained, allow_unused=True, materialize_grads=True)
    return torch.cat([part.to_dense().flatten() for part in parts])


def release(
    lot: list[tuple[Record, Tensor]], ask: Ask, sigma: float, divisor: float, z: Tensor, z_second: Tensor | None
) -> Release:
    """One step of one run: clip, sum, add noise, round. lot: records and gradients. z, z_second: standard normal numbers."""
    clip = 1.0 if ask.automatic else ask.clip
    if not 0 < clip < math.inf:
        raise ValueError(f"clip must be above 0, got {clip}")
    total = torch.zeros_like(z)
    for _, g in lot:
        n = float(g.norm())
        if math.isfinite(n):
            total += g / (n + 0.01) if ask.automatic else g * (clip / n) if n > clip else g
    if ask.second is None or z_second is None:
        return Release(noisy(total, sigma * clip, z, divisor))
    size, other = SENSITIVITY[ask.second], torch.zeros_like(z_second)
    for record, g in lot:
        other += second_part(ask.second, record, g, clip)
    nu = ask.second_noise / size
    if not 0 <= sigma < nu and not sigma == nu == 0:
        raise ValueError("second_noise must be above sigma S, or the second answer takes all the privacy of a step")
    nu_g = sigma / math.sqrt(1 - (sigma / nu) ** 2) if sigma else 0.0
    middle = 0.0 if ask.second == "direction" else size
    return Release(noisy(total, nu_g * clip, z, divisor), noisy(other, nu * size, z_second, divisor) + middle)


def second_part(question: str, record: Record, g: Tensor, clip: float) -> Tensor:
    """What one record adds to a second sum, of norm S at most: a number counts from the middle of its range."""
    n = float(g.norm())
    if question == "direction":
        return g / n if clip < n < math.inf else torch.zeros_like(g)
    if question == "quantile":
        return torch.tensor([0.0 if not math.isfinite(n) else 0.5 if n <= clip else -0.5])
    sizes = [float(x.double().square().sum().sqrt()) if x.is_floating_point() else 0.0 for x, _ in record]
    logs = [min(math.log1p(n * n) / 2, 2 * HALF_RANGE) - HALF_RANGE if math.isfinite(n) else 0.0 for n in sizes]
    return torch.tensor([round(sum(logs) / len(logs) * 2**16) / 2**16])  # a multiple of 2^-16, as S is: sums are exact


def noisy(total: Tensor, deviation: float, z: Tensor, divisor: float) -> Tensor:
    """(total + deviation z) / L, rounded to multiples of a power of two, at most 2^-12 of the deviation of the noise in it."""
    value, grid = total / divisor + deviation / divisor * z, 2.0 ** (math.frexp(deviation / divisor)[1] - 13)
    return (value / grid).round() * grid if deviation > 0 else value


def epsilon(public: Public, noise: Sequence[float], delta: float) -> float:
    """An upper bound, by Renyi divergences at whole orders (Mironov, Talwar & Zhang 2019, section 3.3), summed over all steps."""

    def divergence(order: int, sigma: float) -> float:
        k = torch.arange(order + 1, dtype=torch.float64)
        ways = math.lgamma(order + 1) - torch.lgamma(k + 1) - torch.lgamma(order - k + 1)
        chances = torch.special.xlogy(k, public.rate) + torch.special.xlogy(order - k, 1 - public.rate)
        return float((ways + chances + (k * k - k) / (2 * sigma**2)).logsumexp(0)) / (order - 1)

    return min(public.steps * sum(divergence(a, s) for s in noise) - math.log(delta) / (a - 1) for a in range(2, 513))
