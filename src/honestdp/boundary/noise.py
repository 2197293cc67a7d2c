"""Where the randomness for privacy comes from.

The Gaussian mechanism is private only if its noise cannot be guessed, so a generator made here is seeded by a secret of the
operating system (`seed`) and shared with nothing else: not with the model's initialisation, not with the order of the
data. A user may fix the seed to repeat a result; what leaves is then NOT PRIVATE and the statement says so.

Three sources:
- CPU: numpy's SFC64, whose 192 bits are all seeded, and Box and Muller's transform: a radius sqrt(-2 ln U)
  and an angle give two independent normal numbers. The radius is taken in float64 from 53 random bits. From the 24 bits of
  a float32 it would stop at sqrt(48 ln 2) = 5.77 standard deviations: where two neighbouring sums differ in one coordinate,
  values beyond the stop betray which it was, about q T 1e-8 of delta that no accountant charges. Here it stops at
  sqrt(106 ln 2) = 8.57, beyond which the normal law has 1e-17. torch's own draws in float32 have the early stop and take
  longer. Cosine and sine are taken in float32: given either, the product with the radius is as fine as a
  float64, so that no cell of the grid to which a release is rounded (`rounding`) is filled unevenly.
- CUDA: torch's Philox counter generator with a key of 63 bits, in float64 for the same two reasons.
- `secure`: AES in counter mode (the package randomgen), on a CPU. Each value is half the sum of four float64 normals.

The first two are statistical generators: whoever saw many exact noise values could compute their state, and with it all
further noise. Releases are rounded sums of gradients and noise, of which nobody sees the noise alone unless he knows all
records of a lot; `secure` protects against that too, by a generator whose state nobody can compute from what it drew. It
does not make the noise any finer.
"""

from __future__ import annotations

import importlib
import json
import math
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from honestdp.boundary.seed import Seed
from honestdp.checks import InvalidArgument

if TYPE_CHECKING:
    from torch import Tensor

_TWISTER_WORDS = 624
_TWISTER_BYTES = 5056
_TWISTER_OFFSET = 24


class NoiseSource(Protocol):
    """Standard normal numbers for a population, with a state that can be saved and restored."""

    generators: tuple[torch.Generator, ...] = ()
    """torch's, that they are drawn from."""

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        """Independent standard normal numbers, float64, in memory of their own."""

    def state(self) -> list[Tensor]: ...

    def restore(self, state: list[Tensor]) -> None: ...


def torch_generator(device: torch.device, seed: Seed) -> torch.Generator:
    """torch's generator on a device, with as much of the seed as it can hold; shared with nothing else."""
    generator = torch.Generator(device=device)
    if device.type == "cpu":
        _fill_twister(generator, seed)
    else:
        generator.manual_seed(seed.number(63))
    return generator


def _fill_twister(generator: torch.Generator, seed: Seed) -> None:
    """Replace the twister's whole state: by itself it would be filled from 64 bits."""
    generator.manual_seed(1)
    state = generator.get_state().numpy().copy()
    words = state[_TWISTER_OFFSET : _TWISTER_OFFSET + 8 * _TWISTER_WORDS].view(np.uint64)
    if state.size != _TWISTER_BYTES or int(words[0]) != generator.initial_seed():
        raise RuntimeError("this torch keeps its CPU generator's state in an unknown layout; seeding is unsafe")
    words[:] = np.frombuffer(seed.bytes(4 * _TWISTER_WORDS), dtype=np.uint32)
    generator.set_state(torch.from_numpy(state))


class CudaNoise(NoiseSource):
    """Noise from torch's own generator on a GPU."""

    def __init__(self, device: torch.device, seed: Seed) -> None:
        self._generator = torch_generator(device, seed)
        self.generators = (self._generator,)

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        device = self._generator.device
        return torch.empty(shape, dtype=torch.float64, device=device).normal_(generator=self._generator)

    def state(self) -> list[Tensor]:
        return [self._generator.get_state()]

    def restore(self, state: list[Tensor]) -> None:
        self._generator.set_state(state[0])


class CpuNoise(NoiseSource):
    """Noise of numpy's SFC64, on a CPU.

    It is drawn where it is needed, by the thread that computes, and transformed by numpy: a thread of its own that calls
    torch gets a team of workers of its own, and with more of them than cores every later product of the process waits for
    sleepers; and for so few numbers torch's team takes longer to meet than one core to work.
    """

    def __init__(self, device: torch.device, seed: Seed) -> None:
        # A pool of as many bits as the seed has: numpy's usual one has 128.
        self._bits = np.random.SFC64(np.random.SeedSequence(seed.number(256), pool_size=8))
        self._uniform = np.random.Generator(self._bits)

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        """The two numbers of a pair lie half of all numbers apart."""
        drawn = np.empty(math.prod(shape))
        half = -(-len(drawn) // 2)
        uniform = self._uniform.random(half)
        # 1 - U lies in (0, 1]: its logarithm is finite.
        radius = np.log(np.subtract(1, uniform, out=uniform), out=uniform)
        np.sqrt(np.multiply(radius, -2, out=radius), out=radius)
        words = self._bits.random_raw(-(-half // 2)).view(np.int32)[:half]
        angle = np.multiply(words, math.pi / 2.0**31, dtype=np.float32, casting="unsafe")
        first, second = drawn[:half], drawn[half:]
        np.multiply(np.cos(angle), radius, out=first)
        np.multiply(np.sin(angle, out=angle)[: len(second)], radius[: len(second)], out=second)
        return torch.from_numpy(drawn).view(shape)

    def state(self) -> list[Tensor]:
        """Only whole words of 64 bits are drawn, so these four are all there is."""
        return [torch.from_numpy(self._bits.state["state"]["state"].view(np.int64).copy())]

    def restore(self, state: list[Tensor]) -> None:
        self._bits.state = {**self._bits.state, "state": {"state": state[0].numpy().view(np.uint64)}}


class SecureNoise(NoiseSource):
    """Noise from AES in counter mode, keyed by the operating system. CPU only."""

    def __init__(self, device: torch.device, seed: Seed) -> None:
        if device.type != "cpu":
            wanted = "False on a GPU: the cryptographic generator runs on a CPU (device='cpu')"
            raise InvalidArgument("secure", True, wanted)
        try:
            randomgen = importlib.import_module("randomgen")
        except ImportError as missing:
            raise ImportError("secure=True needs the package randomgen: pip install randomgen") from missing
        self._bits: Any = randomgen.AESCounter(key=seed.number(128))
        self._normal = np.random.Generator(self._bits)

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        total = self._normal.standard_normal(shape)
        for _ in range(3):
            total += self._normal.standard_normal(shape)
        return torch.from_numpy(total).mul_(0.5)

    def state(self) -> list[Tensor]:
        """The key and the counter. A checkpoint that holds them is as secret as the records."""
        text = json.dumps(self._bits.state, default=lambda array: array.tolist())
        return [torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)]

    def restore(self, state: list[Tensor]) -> None:
        saved = json.loads(bytes(state[0].tolist()))
        current = self._bits.state
        for name, array in current["s"].items():
            value = saved["s"][name]
            current["s"][name] = np.array(value, dtype=array.dtype) if isinstance(array, np.ndarray) else value
        current["has_uint32"], current["uinteger"] = saved["has_uint32"], saved["uinteger"]
        self._bits.state = current


def noise_source(device: torch.device, seed: Seed, *, secure: bool = False) -> NoiseSource:
    if secure:
        return SecureNoise(device, seed)
    return CpuNoise(device, seed) if device.type == "cpu" else CudaNoise(device, seed)
