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
_AHEAD_FROM = 1 << 15
_SPLIT_FROM = 1 << 17
"""Buffers of at least this many numbers are filled by two streams side by side. The split depends on the size alone,
never on the number of cores, so that a fixed seed gives the same noise on every machine of one kind."""


class NoiseSource(Protocol):
    """Standard normal numbers for a population, with a state that can be saved and restored."""

    def normal(self, like: Tensor) -> Tensor:
        """Independent standard normal numbers of the shape, precision and place of `like`, which may be overwritten."""

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

    On a CPU the noise of the next step is drawn while the rest of this one is computed: a step spends as long on the
    noise of a small network as on a product, and the noise depends on nothing. The numbers are the same as without.
    """

    def __init__(self, device: torch.device, seed: int | None = None) -> None:
        self._cpu = device.type == "cpu"
        streams = _STREAMS if self._cpu else 1
        self._generators = tuple(os_generator(device, split_seed(seed, stream)) for stream in range(streams))
        self._pool = ThreadPoolExecutor(_STREAMS, thread_name_prefix="honestdp-noise")
        self._ahead: _Ahead | None = None

    @property
    def generators(self) -> tuple[torch.Generator, ...]:
        return self._generators

    def normal(self, like: Tensor) -> Tensor:
        if not self._cpu or like.numel() < _AHEAD_FROM:
            self._give_back()
            return _fill(like, self._generators[0]) if self._cpu else like.normal_(generator=self._generators[0])
        if self._ahead is None or not self._ahead.fits(like):
            self._give_back()
            self._ahead = _Ahead(torch.empty_like(like), self._generators, self._pool)
        drawn = self._ahead.drawn()
        self._ahead = _Ahead(torch.empty_like(drawn), self._generators, self._pool)
        return drawn

    def _give_back(self) -> None:
        """Forget what was drawn ahead, as if it had not been."""
        if self._ahead is not None:
            self._ahead.drawn()
            before, self._ahead = self._ahead.before, None
            self.restore(before)

    def state(self) -> list[Tensor]:
        return [generator.get_state() for generator in self._generators] if self._ahead is None else self._ahead.before

    def restore(self, state: list[Tensor]) -> None:
        if self._ahead is not None:
            self._ahead.drawn()
            self._ahead = None
        for generator, saved in zip(self._generators, state, strict=True):
            generator.set_state(saved)


class _Ahead:
    """Noise being drawn on other threads. `before` is the generators' state from which it can be drawn again."""

    def __init__(self, out: Tensor, generators: tuple[torch.Generator, ...], pool: ThreadPoolExecutor) -> None:
        self.before = [generator.get_state() for generator in generators]
        self._out = out
        parts = out.view(-1).tensor_split(len(generators)) if out.numel() >= _SPLIT_FROM else (out.view(-1),)
        self._jobs = [pool.submit(_fill, part, g) for part, g in zip(parts, generators, strict=False)]

    def fits(self, like: Tensor) -> bool:
        return self._out.shape == like.shape and self._out.dtype == like.dtype

    def drawn(self) -> Tensor:
        for job in self._jobs:
            job.result()
        return self._out


def _fill(part: Tensor, generator: torch.Generator) -> Tensor:
    """Overwrite `part` by standard normal numbers, each of two draws (see the top of the module)."""
    part.normal_(std=_HALF, generator=generator)
    return part.add_(torch.empty_like(part).normal_(std=_HALF, generator=generator))


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
