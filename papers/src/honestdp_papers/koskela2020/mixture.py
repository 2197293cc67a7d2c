"""The Gaussian mixture of Section 5.5: its records, its variational posterior, and its trainings as parts.

The model is that of Jaelkoe, Honkela & Dikmen 2017, to which the paper refers: theta = (pi, mu, tau) with pi ~ Dir(1), mu_k ~
N(0, I), tau_k ~ Inv-Gamma(1, 1), p(x | theta) = sum_k pi_k N(x; mu_k, tau_k I), and q a normal distribution with independent
coordinates of the unconstrained z = (sticks of pi, mu, ln tau): 2 (K - 1 + 2K + K) = 38 numbers for K = 5. A record's loss is
-(ln p(x_i | z) + (ln p(z) + H(q)) / N) at one draw z of q, so that the engine knows nothing of it but a loss.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from honestdp import GaussianDraw
from honestdp.boundary.capture import free_captured
from honestdp.boundary.seed import Seed, lent, seed_all
from honestdp.gradients.layout import stack
from honestdp.optimizers import ADADP, SGD, Rule
from honestdp.run import Run
from honestdp_papers.curves import placed, population_of, seeded, taken_in
from honestdp_papers.koskela2020.setting import SWITCH, half_decades
from honestdp_papers.parts import Array, Arrays, Part, Tell

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


def parts_at(noise: float, quick: bool, methods: Sequence[str] = ("DPVI", "ADADP")) -> list[Part]:
    """DPVI at every step size and ADADP from every eta0, each from initial weights and with randomness of its own repeats."""
    return [_part(noise, method, quick) for method in methods]


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
    modules = [seeded(Mixture, repeat) for repeat in range(repeats)]
    intake = taken_in(modules[0], records(RECORDS, seed=0), place, records=RECORDS)
    starts = stack(modules, intake.layout, place).repeat_interleave(len(rules), dim=0)
    held, seen, etas = Held.on(place), [], []
    with lent():
        seed_all(seed)
        # DPVI's step size decays by (5.1); ADADP's rule does that by itself.
        own = Seed.fixed(seed)
        population = population_of(intake, run, list(rules) * repeats, starts, own, every=EPOCH, schedule="decay")
        for epoch in range(run.steps // EPOCH + 1):
            while population.step < epoch * EPOCH:
                population.block()
            views = intake.layout.views(population.weights())
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
