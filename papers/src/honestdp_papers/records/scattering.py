"""Order-2 wavelet scattering of images in torch: fixed filters, so public, and no statistics of any data.

Bruna & Mallat 2013. At scale J with L angles the bank has Morlet wavelets psi of J octaves and L angles, and a Gaussian phi of
2^J pixels. An image gives 1 + J L + J (J - 1) L^2 / 2 channels, at a 2^J-th of its width: x * phi, |x * psi1| * phi, and
||x * psi1| * psi2| * phi for psi2 of a larger scale than psi1. J = 2 and L = 8 give 81 channels: 81 x 7 x 7 of an image of 28
pixels, 81 x 8 x 8 of each colour of one of 32. The bank, the reflected margins and the order of channels are those that Kymatio
uses, so that numbers can be compared; tests/test_scattering.py compares them with convolutions made one pixel at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

Array = np.ndarray[Any, Any]
SLANT, SPREAD, PITCH = 4.0, 0.8, 0.75 * math.pi  # of wavelets: 4/L, and pixels and radians at the first octave


def channels(scale: int = 2, angles: int = 8) -> int:
    """Of one colour."""
    return 1 + scale * angles + scale * (scale - 1) // 2 * angles**2


def padded(pixels: int, scale: int) -> int:
    """The width with its margins: a multiple of 2^J, with at least half of 2^J pixels of margin to either side."""
    found: int = ((pixels + 2**scale) // 2**scale + 1) * 2**scale
    return found


def gabor(pixels: int, *, sigma: float, angle: float, pitch: float, slant: float) -> Array:
    """A Gaussian, narrower by `slant` along its wave, times the wave; on a torus, by summing five copies to either side."""
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    curve = turn @ np.diag([1.0, slant**2]) @ turn.T / (2 * sigma**2)
    along = np.arange(-2 * pixels, 3 * pixels, dtype=np.float64)
    x, y = np.meshgrid(along, along, indexing="ij")
    bell = np.exp(-(curve[0, 0] * x * x + 2 * curve[0, 1] * x * y + curve[1, 1] * y * y))
    whole = bell * np.exp(1j * pitch * (x * math.cos(angle) + y * math.sin(angle)))
    found: Array = whole.reshape(5, pixels, 5, pixels).sum((0, 2)) * slant / (2 * math.pi * sigma**2)
    return found


def morlet(pixels: int, octave: int, angle: float, angles: int) -> Array:
    """A wavelet: a Gabor function less so much of its bell that its mean is 0."""
    how = {"sigma": SPREAD * 2**octave, "angle": angle, "slant": SLANT / angles}
    wave, bell = gabor(pixels, pitch=PITCH / 2**octave, **how), gabor(pixels, pitch=0.0, **how)
    found: Array = wave - wave.sum() / bell.sum() * bell
    return found


def low(spectrum: Array, octaves: int) -> Array:
    """The part of a spectrum that remains where only every 2^octaves-th pixel is kept: its lowest frequencies."""
    size = len(spectrum) >> octaves
    kept = np.abs(np.fft.fftfreq(len(spectrum))) < 0.5 / 2**octaves if octaves else np.ones(len(spectrum), dtype=bool)
    kept |= np.fft.fftfreq(len(spectrum)) == -0.5 / 2**octaves
    masked = spectrum * np.outer(kept, kept)
    folded: Array = masked.reshape(2**octaves, size, 2**octaves, size).sum((0, 2))
    return folded


@lru_cache
def bank(pixels: int, scale: int, angles: int) -> tuple[list[list[list[Array]]], list[Array]]:
    """Spectra on a torus of so many pixels, at every resolution: of each octave's wavelets, and of phi."""
    turns = [(angles - angles // 2 - 1 - number) * math.pi / angles for number in range(angles)]
    waves = [[np.fft.fft2(morlet(pixels, octave, turn, angles)).real for turn in turns] for octave in range(scale)]
    bell = np.fft.fft2(gabor(pixels, sigma=SPREAD * 2 ** (scale - 1), angle=0.0, pitch=0.0, slant=1.0)).real
    return (
        [[[low(wave, at) for at in range(max(octave, 1))] for wave in each] for octave, each in enumerate(waves)],
        [low(bell, at) for at in range(scale)],
    )


class Scattering(nn.Module):
    """Images `[n, colours, p, p]` to `[n, colours x channels, p / 2^J, p / 2^J]`; p a multiple of 2^J. No parameter in it."""

    def __init__(self, pixels: int, scale: int = 2, angles: int = 8) -> None:
        super().__init__()
        if pixels % 2**scale:
            raise ValueError(f"pixels must be a multiple of {2**scale}, got {pixels}")
        self.scale, self.angles, self.width = scale, angles, padded(pixels, scale)
        self.margin = (self.width - pixels) // 2

    def forward(self, images: Tensor) -> Tensor:
        waves, bells = bank(self.width, self.scale, self.angles)
        phi = [torch.from_numpy(each).to(images) for each in bells]
        psi = [[[torch.from_numpy(at).to(images) for at in one] for one in each] for each in waves]
        framed = nn.functional.pad(images, (self.margin,) * 4, mode="reflect")
        found = torch.stack(list(self._channels(torch.fft.fft2(framed), psi, phi)), 2)
        return found.flatten(1, 2)[..., 1:-1, 1:-1]

    def _channels(self, image: Tensor, psi: list[list[list[Tensor]]], phi: list[Tensor]) -> Iterator[Tensor]:
        """Those of no wavelet, of one, and of two."""
        first: list[tuple[int, Tensor]] = []
        yield self._smooth(image, phi[0], 0)
        for octave in range(self.scale):
            for wave in psi[octave]:
                first.append((octave, _modulus(image * wave[0], octave)))
                yield self._smooth(first[-1][1], phi[octave], octave)
        for octave, inner in first:
            for later in range(octave + 1, self.scale):
                for wave in psi[later]:
                    yield self._smooth(_modulus(inner * wave[octave], later - octave), phi[later], later)

    def _smooth(self, spectrum: Tensor, bell: Tensor, octave: int) -> Tensor:
        found: Tensor = torch.fft.ifft2(_every(spectrum * bell, self.scale - octave)).real
        return found


def _every(spectrum: Tensor, octaves: int) -> Tensor:
    """The spectrum of every 2^octaves-th pixel."""
    many, size = 2**octaves, spectrum.shape[-1] >> octaves
    return spectrum.reshape(*spectrum.shape[:-2], many, size, many, size).mean((-4, -2))


def _modulus(spectrum: Tensor, octaves: int) -> Tensor:
    """The spectrum of the modulus, at every 2^octaves-th pixel."""
    found: Tensor = torch.fft.fft2(torch.fft.ifft2(_every(spectrum, octaves)).abs())
    return found


def normalised(features: Tensor, groups: int = 27) -> Tensor:
    """Group normalisation of each image by itself, with no weight in it: nothing of another image enters."""
    return nn.functional.group_norm(features, groups)


def mirror_image(features: Tensor, scale: int = 2, angles: int = 8) -> Tensor:
    """Features `[n, colours x channels, s, s]` of an image to those of its mirror image, without another transform.

    A mirror turns wavelets of angle a into those of -a and column k into column s - 1 - k (up to three pixels, since the columns
    begin at the first pixel).
    """
    if scale != 2:
        raise ValueError(f"scale must be 2 here, got {scale}")
    turn = angles % 2 - 1  # number k of `bank`'s angles becomes number -k, one on where their number is even
    found = torch.unflatten(features, 1, (-1, channels(scale, angles))).flip(-1)
    none, one, two = torch.split(found, [1, 2 * angles, angles**2], 2)
    one = torch.unflatten(one, 2, (2, angles)).flip(3).roll(turn, 3).flatten(2, 3)
    two = torch.unflatten(two, 2, (angles, angles)).flip(2, 3).roll((turn, turn), (2, 3)).flatten(2, 3)
    return torch.cat([none, one, two], 2).flatten(1, 2)


def mirrored(features: Tensor, scale: int = 2, angles: int = 8) -> Tensor:
    """The mean of an image's features and of those of its mirror image: `[n, colours x channels, s, s]` to `[..., s, s / 2]`.

    Left and right of a photograph mean the same, which is public. The mean is its own mirror image, and its left half is all of
    it: half as many numbers, which have half as much noise. Times sqrt(2), for the same norm.
    """
    mean = (features + mirror_image(features, scale, angles)) / math.sqrt(2)
    return mean[..., : features.shape[-1] // 2].contiguous()


def clouds(pixels: int, count: int = 400) -> Tensor:
    """Made-up grey images `[count, 1, p, p]` whose amplitudes fall as 1/f, as those of photographs do: mean .5, deviation .25."""
    wide = 2 * pixels
    along = torch.fft.fftfreq(wide)
    frequency = (along[:, None].square() + along.square()).sqrt()
    gain = torch.where(frequency > 0, 1 / frequency, 0.0)
    drawn = torch.randn(count, wide, wide, generator=torch.Generator().manual_seed(0))
    part = torch.fft.ifft2(torch.fft.fft2(drawn) * gain).real[:, :pixels, :pixels]
    part = part - part.mean((1, 2), keepdim=True)
    found: Tensor = (0.5 + 0.25 * part / part.std((1, 2), keepdim=True)).clamp(0, 1)[:, None]
    return found


@lru_cache
def public_scale(pixels: int) -> tuple[Tensor, Tensor]:
    """The mean and the deviation of each channel over `clouds`: constants in which no data set is."""
    with torch.no_grad():
        found = torch.cat([Scattering(pixels)(part) for part in torch.split(clouds(pixels), 50)])
    return found.mean((0, 2, 3)), found.std((0, 2, 3))


def scaled(features: Tensor, pixels: int) -> Tensor:
    """Each channel less its mean on made-up images of 1/f, over its deviation there: public, in the place of `normalised`."""
    mean, spread = (each.to(features).view(-1, 1, 1) for each in public_scale(pixels))
    shape = features.shape
    return ((features.view(len(features), -1, len(mean), *shape[2:]) - mean) / spread).view(shape)
