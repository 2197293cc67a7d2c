"""Two queries on one lot for the price of one Gaussian.

Queries of sensitivities c_1, c_2 with noises nu_1 c_1, nu_2 c_2 are together one Gaussian query of multiplier sigma when

    1/nu_1^2 + 1/nu_2^2 = 1/sigma^2,

for the concatenation, each part divided by its own scale, has sensitivity sqrt(1/nu_1^2 + 1/nu_2^2) against unit noise.
The accountant is fed sigma.
"""

from __future__ import annotations

import math

from honestdp import checks

OSO_FACTOR = 7.124  # Galli et al. 2024: nu_q = 7.124 sigma leaves the gradient 1.01 sigma


def remaining_noise(*, noise: float, spent: float) -> float:
    """nu_g = (sigma^-2 - nu^-2)^-1/2: what is left for the gradient when the other query takes noise `spent`."""
    checks.non_negative(noise=noise)
    if noise == 0:
        return 0.0
    checks.positive(spent=spent)
    if spent <= noise:
        wanted = f"above the run's noise, {noise:g}, since the other query would take all of the privacy of a step"
        raise checks.InvalidArgument("spent", spent, wanted)
    return 1 / math.sqrt(noise**-2 - spent**-2)


def oso_split(noise: float, *, factor: float = OSO_FACTOR) -> tuple[float, float]:
    """(nu_g, nu_q) of OSO (Galli et al. 2024, Algorithm 1): the direction query takes nu_q = factor * sigma."""
    return remaining_noise(noise=noise, spent=factor * noise), factor * noise


def quantile_split(noise: float, *, count_noise: float) -> float:
    """nu_g of quantile clipping (Andrew et al. 2021): a count of sensitivity 1/2 takes noise s_b, a multiplier of 2 s_b."""
    return remaining_noise(noise=noise, spent=2 * count_noise)
