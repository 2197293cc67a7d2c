"""The scattering of `honestdp_papers.records.scattering`, against convolutions made one pixel at a time."""

from __future__ import annotations

import importlib
from types import ModuleType

import numpy as np
import pytest
import torch

PIXELS, WIDTH = 8, 16
Array = np.ndarray


@pytest.fixture(scope="module")
def scattering() -> ModuleType:
    return importlib.import_module("honestdp_papers.records.scattering")


def around(image: Array, kernel: Array) -> Array:
    """A convolution on the torus, by its definition."""
    found = np.zeros(image.shape, dtype=complex)
    for i in range(len(image)):
        for j in range(len(image)):
            found += image[i, j] * np.roll(kernel, (i, j), (0, 1))
    return found


def slowly(module: ModuleType, image: Array) -> Array:
    """81 channels without a Fourier transform, and without leaving out a pixel before the end."""
    angles = [(3 - number) * np.pi / 8 for number in range(8)]
    waves = [[module.morlet(WIDTH, octave, angle, 8) for angle in angles] for octave in range(2)]
    bell = module.gabor(WIDTH, sigma=1.6, angle=0.0, pitch=0.0, slant=1.0)
    framed = np.pad(image, (WIDTH - PIXELS) // 2, mode="reflect")
    first = [[np.abs(around(framed, wave)) for wave in octave] for octave in waves]
    second = [np.abs(around(inner, wave)) for inner in first[0] for wave in waves[1]]
    every = [framed, *first[0], *first[1], *second]
    return np.stack([around(each, bell).real[::4, ::4][1:-1, 1:-1] for each in every])


def test_it_is_what_convolutions_by_hand_give(scattering: ModuleType) -> None:
    image = np.random.default_rng(0).random((PIXELS, PIXELS))
    found = scattering.Scattering(PIXELS)(torch.from_numpy(image)[None, None])[0].numpy()
    slow = slowly(scattering, image)
    assert found.shape == slow.shape == (81, 2, 2)
    np.testing.assert_allclose(
        found[:9], slow[:9], rtol=1e-4
    )  # every pixel kept until the end; phi ends at the fourth pixel
    np.testing.assert_allclose(found[9:17], slow[9:17], rtol=0.05)  # every second pixel kept after the modulus
    np.testing.assert_allclose(found[17:], slow[17:], rtol=0.1)


@pytest.mark.parametrize(("pixels", "colours", "shape"), [(28, 1, (81, 7, 7)), (32, 3, (243, 8, 8))])
def test_an_image_gives_so_many_channels(
    scattering: ModuleType, pixels: int, colours: int, shape: tuple[int, ...]
) -> None:
    images = torch.rand(2, colours, pixels, pixels)
    found = scattering.Scattering(pixels)(images)
    assert found.shape[1:] == shape
    assert scattering.channels() == 81
    alone = scattering.normalised(
        scattering.Scattering(pixels)(images[:1])
    )  # one image's numbers do not hang on another's
    torch.testing.assert_close(scattering.normalised(found)[:1], alone)


def test_wavelets_do_not_see_a_plain_image_and_little_is_lost_of_others(scattering: ModuleType) -> None:
    plain = scattering.Scattering(28)(torch.ones(1, 1, 28, 28, dtype=torch.float64))[0]
    torch.testing.assert_close(plain[0], torch.ones(7, 7, dtype=torch.float64), rtol=0, atol=1e-3)
    assert float(plain[1:].abs().max()) < 1e-12
    one, other = torch.rand(2, 1, 1, 28, 28, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    features = scattering.Scattering(28)
    assert float((features(one) - features(other)).norm()) < float((one - other).norm())
    moved = features(one.roll(1, 3))[..., 1:-1] - features(one)[..., 1:-1]
    assert float(moved.norm()) < 0.5 * float((one.roll(1, 3) - one).norm())


def test_an_image_and_its_mirror_image_have_the_same_mirrored_features(scattering: ModuleType) -> None:
    generator = torch.Generator().manual_seed(0)
    image = torch.zeros(2, 3, 32, 32)
    image[..., 8:22, 9:20] = torch.rand(2, 3, 14, 11, generator=generator)
    turned = torch.zeros_like(image)
    turned[..., :29] = image[..., :29].flip(-1)  # the columns of features begin at pixel 0 and end at 28
    there, back = (scattering.Scattering(32)(each) for each in (image, turned))
    assert (there - back).abs().max() > 0.05
    assert scattering.mirrored(there).shape == (2, 243, 8, 4)
    torch.testing.assert_close(scattering.mirrored(there), scattering.mirrored(back), atol=1e-5, rtol=0)
    torch.testing.assert_close(scattering.mirror_image(there), back, atol=1e-5, rtol=0)
    assert torch.equal(scattering.mirror_image(scattering.mirror_image(there)), there)


def test_mirrored_features_keep_the_norm_of_an_image_that_is_its_own_mirror_image(scattering: ModuleType) -> None:
    image = torch.zeros(1, 1, 32, 32)
    image[..., 8:22, 9:20] = torch.rand(1, 1, 14, 11, generator=torch.Generator().manual_seed(1))
    image[..., :29] = (image + torch.cat([image[..., :29].flip(-1), image[..., 29:]], -1))[..., :29]
    features = scattering.Scattering(32)(image)
    torch.testing.assert_close(scattering.mirrored(features).norm(), features.norm())


@pytest.mark.slow
def test_scaled_features_are_standard_on_made_up_images_and_hang_on_no_data(scattering: ModuleType) -> None:
    pixels = 16
    features = scattering.Scattering(pixels)(scattering.clouds(pixels))
    scaled = scattering.scaled(features, pixels)
    torch.testing.assert_close(scaled.mean((0, 2, 3)), torch.zeros(81), atol=1e-3, rtol=0)
    torch.testing.assert_close(scaled.std((0, 2, 3)), torch.ones(81), atol=1e-3, rtol=0)
    three = scattering.scaled(features[:5].repeat(1, 3, 1, 1), pixels)
    torch.testing.assert_close(three, scaled[:5].repeat(1, 3, 1, 1))
