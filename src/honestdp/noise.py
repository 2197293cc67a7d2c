"""Where the randomness for privacy comes from.

The Gaussian mechanism is private only if its noise cannot be guessed, so a generator made here is seeded by the
operating system and shared with nothing else: not with the model's initialisation, not with the order of the data. A
user may fix the seed to repeat a result; what leaves is then NOT PRIVATE and the statement says so.

Three sources:
- CPU: torch's Mersenne twister, whose 624 words of state are all filled by the operating system (`manual_seed` alone
  would keep 32 bits). One float32 draw is Box-Muller from 24-bit uniforms, whose radius stops at sqrt(48 ln 2) = 5.77
  standard deviations: where two neighbouring sums differ in one coordinate, values beyond the stop betray which it was,
  about q T 1e-8 of delta that no accountant charges. So each value is (a + b)/sqrt(2) of two independent draws. That
  reaches 8.16 standard deviations (the normal law has 3e-16 beyond), and its density is below the normal one by 0.01 %
  at 4, 0.3 % at 5, 2.9 % at 5.8, 4.7 % at 6 and 31 % at 7 standard deviations. The second draw doubles the cost, to 7 ns
  a number on one core, still no slower than a ziggurat over SFC64 (benchmarks/noise.py).
- CUDA: torch's Philox counter generator with a 64-bit key from the operating system.
- `secure`: AES in counter mode (the package randomgen), on a CPU. Each value is half the sum of four float64 normals,
  then rounded to the model's precision: the low bits of one Box-Muller or ziggurat draw betray the value it came from
  (Holohan & Braghin 2021), those of a sum of four do not usefully.

The first two are statistical generators: an adversary who sees many exact noise values could recover their state.
Nothing that leaves a training shows noise alone, but `secure` removes the assumption.
"""

from __future__ import annotations

import importlib
import json
import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from honestdp.checks import InvalidArgument

if TYPE_CHECKING:
    from torch import Tensor

_TWISTER_WORDS = 624
_TWISTER_BYTES = 5056
_TWISTER_OFFSET = 24
_STREAMS = 2
_HALF = 0.5**0.5
"""The standard deviation of each of two draws that add up to variance 1."""
_PART = 1 << 14
_SPLIT_FROM = 1 << 17
"""Buffers of at least this many numbers are filled by two streams side by side. The split depends on the size alone,
never on the number of cores, so that a fixed seed gives the same noise on every machine of one kind."""


class NoiseSource(Protocol):
    """Standard normal numbers for a population, with a state that can be saved and restored."""

    def normal(self, like: Tensor) -> Tensor:
        """`like` overwritten by independent standard normal numbers."""

    def state(self) -> list[Tensor]: ...

    def restore(self, state: list[Tensor]) -> None: ...

    @property
    def generators(self) -> tuple[torch.Generator, ...]: ...


def os_generator(device: torch.device, seed: int | None = None) -> torch.Generator:
    """A generator seeded by the operating system, or by `seed` for a repeatable and therefore not private result."""
    generator = torch.Generator(device=device)
    if seed is not None:
        generator.manual_seed(seed % (1 << 63))
    elif device.type == "cpu":
        _fill_twister(generator)
    else:
        generator.manual_seed(secrets.randbits(63))
    return generator


def _fill_twister(generator: torch.Generator) -> None:
    """Replace the twister's whole state by the operating system's randomness."""
    generator.manual_seed(secrets.randbits(31))
    state = generator.get_state().numpy().copy()
    words = state[_TWISTER_OFFSET : _TWISTER_OFFSET + 8 * _TWISTER_WORDS].view(np.uint64)
    if state.size != _TWISTER_BYTES or int(words[0]) != generator.initial_seed():
        raise RuntimeError(
            "this version of torch keeps its CPU generator's state in an unknown layout; seeding is unsafe"
        )
    words[:] = np.frombuffer(secrets.token_bytes(4 * _TWISTER_WORDS), dtype=np.uint32)
    generator.set_state(torch.from_numpy(state))


def split_seed(seed: int | None, purpose: int) -> int | None:
    """An independent seed for one purpose of a user's fixed seed (None stays None: the operating system seeds)."""
    if seed is None:
        return None
    return int(np.random.SeedSequence([seed % (1 << 64), purpose]).generate_state(1, np.uint64)[0] >> 1)


class TorchNoise:
    """Noise from torch's own generators on the device.

    It is drawn where it is needed and not ahead on a thread of its own: on few cores such a thread takes the place of
    those that compute a product together, and they wait for each other longer than the drawing lasts.
    """

    def __init__(self, device: torch.device, seed: int | None = None) -> None:
        self._cpu = device.type == "cpu"
        streams = _STREAMS if self._cpu else 1
        self._generators = tuple(os_generator(device, split_seed(seed, stream)) for stream in range(streams))
        self._pool = ThreadPoolExecutor(_STREAMS - 1, thread_name_prefix="honestdp-noise")

    @property
    def generators(self) -> tuple[torch.Generator, ...]:
        return self._generators

    def normal(self, like: Tensor) -> Tensor:
        first, *others = self._generators
        if not self._cpu:
            return like.normal_(generator=first)
        if like.numel() < _SPLIT_FROM:
            return _fill(like, first)
        own, *parts = like.view(-1).tensor_split(_STREAMS)
        jobs = [self._pool.submit(_fill, part, stream) for part, stream in zip(parts, others, strict=True)]
        _fill(own, first)
        for job in jobs:
            job.result()
        return like

    def state(self) -> list[Tensor]:
        return [generator.get_state() for generator in self._generators]

    def restore(self, state: list[Tensor]) -> None:
        for generator, saved in zip(self._generators, state, strict=True):
            generator.set_state(saved)


def _fill(whole: Tensor, generator: torch.Generator) -> Tensor:
    """Overwrite `whole` by standard normal numbers, each of two draws (see the top of the module).

    By small parts: they stay in the cache, and none is large enough for torch to call its other threads to the sum. A
    second Python thread that did so would get a team of its own, and with more threads than cores every later product
    of the process would wait for sleepers.
    """
    flat = whole.view(-1)
    other = flat.new_empty(min(_PART, len(flat)))
    for part in torch.split(flat, _PART):
        part.normal_(std=_HALF, generator=generator)
        part.add_(other[: len(part)].normal_(std=_HALF, generator=generator))
    return whole


class SecureNoise:
    """Noise from AES in counter mode, keyed by the operating system. CPU only."""

    def __init__(self, device: torch.device, seed: int | None = None) -> None:
        if device.type != "cpu":
            raise InvalidArgument(
                "secure", True, "False on a GPU: the cryptographic generator runs on a CPU (device='cpu')"
            )
        try:
            randomgen = importlib.import_module("randomgen")
        except ImportError as missing:
            raise ImportError("secure=True needs the package randomgen: pip install randomgen") from missing
        fixed = None if seed is None else np.random.SeedSequence([seed % (1 << 64), 4]).generate_state(2, np.uint64)
        key = secrets.randbits(128) if fixed is None else int(fixed[0]) << 64 | int(fixed[1])
        self._bits: Any = randomgen.AESCounter(key=key)
        self._normal = np.random.Generator(self._bits)

    @property
    def generators(self) -> tuple[torch.Generator, ...]:
        return ()

    def normal(self, like: Tensor) -> Tensor:
        total = self._normal.standard_normal(tuple(like.shape))
        for _ in range(3):
            total += self._normal.standard_normal(tuple(like.shape))
        return like.copy_(torch.from_numpy(total).mul_(0.5))

    def state(self) -> list[Tensor]:
        """The key and the counter. A checkpoint that holds them is as secret as the records."""
        text = json.dumps(self._bits.state, default=lambda array: array.tolist())
        return [torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)]

    def restore(self, state: list[Tensor]) -> None:
        saved = json.loads(bytes(state[0].tolist()))
        current = self._bits.state
        for name, array in current["s"].items():
            current["s"][name] = (
                np.array(saved["s"][name], dtype=array.dtype) if isinstance(array, np.ndarray) else saved["s"][name]
            )
        current["has_uint32"], current["uinteger"] = saved["has_uint32"], saved["uinteger"]
        self._bits.state = current


def noise_source(device: torch.device, *, seed: int | None = None, secure: bool = False) -> NoiseSource:
    return SecureNoise(device, seed) if secure else TorchNoise(device, seed)
