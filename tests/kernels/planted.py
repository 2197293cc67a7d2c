"""Faults planted in the GPU kernels, each a read or a write beyond a tensor; whether guarded memory sees every one.

    TRITON_INTERPRET=1 python -m tests.kernels.planted

tests/kernels/test_bounds.py runs it so. The kernels that are changed are copies of the modules, in a folder of their own.
"""

from __future__ import annotations

import importlib.util
import random
import sys
import tempfile
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
TRIES = (6, 11, 4, 15, 3, *range(60))
"""Random shapes in which a fault may show, by their numbers; those in which most do first."""
FAULTS = (
    ("fused", "row = tl.load(index + example)", "row = tl.load(index + example + 1)"),
    ("fused", "inside = place < numbers", "inside = place <= numbers"),
    ("fused", "inside = column < width", "inside = column <= width"),
    ("fused", "mask = inside[:, None] & (column < width)[None, :]", "mask = (column < width)[None, :]"),
    ("convolution", "& (top + down < S.H) &", "&"),
    ("convolution", "(y >= 0) & (y < S.H) & (z >= 0)", "(y < S.H) & (z >= 0)"),
    ("convolution", "inside, known = example < lot, n < S.R", "inside, known = example <= lot, n < S.R"),
    ("convolution", "inside, known = example < lot, n < S.C", "inside, known = example < lot, n <= S.C"),
    ("convolution", "(y < S.OH * S.POOL) & (z < S.OW * S.POOL)", "(z < S.OW * S.POOL)"),
    ("convolution", "inside & (y < OH) & (z < OW)", "inside & (z < OW)"),
    (
        "convolution",
        "tl.load(counts + example // lot, mask=inside, other=0)",
        "tl.load(counts + example, mask=inside, other=0)",
    ),
    ("fused", "mask=column < known, other=0.0", "mask=column <= known, other=0.0"),
    ("convolution", "(pools < lot * (S.OH * S.OW))[:, None] & known[None, :]", "known[None, :]"),
    ("convolution", "mask=(k < K)[:, None] & known[None, :]", "mask=known[None, :]"),
    ("gradients", "wanted = inside[:, None] & (o < S.R)[None, :]", "wanted = inside[:, None]"),
    ("gradients", "seen = inside[:, None] & (k < K)[None, :]", "seen = (k < K)[None, :]"),
    ("gradients", "mask=one < lot, other=0.0", "mask=one <= lot, other=0.0"),
    ("gradients", "mask=place < most, other=0.0", "mask=place <= most, other=0.0"),
    ("gradients", "known = column < width", "known = column <= width"),
    ("gradients", "summed, mask=o < S.R)", "summed, mask=o <= S.R)"),
    ("taps", "(y >= 0) & (y < S.H) & (z >= 0)", "(y >= 0) & (z >= 0)"),
    ("taps", "wanted = inside[:, None] & (o < S.R)[None, :]", "wanted = (o < S.R)[None, :]"),
    ("blocks", "(top + down >= 0) & (top + down < H)", "top + down >= 0"),
    ("blocks", "(left + right >= 0) & (left + right < W)", "left + right < W"),
    ("blocks", "    inside = example < lot", "    inside = example <= lot"),
    ("blocks", "wanted & (row[:, None] < S.OH - down[None, :])", "wanted"),
    ("normalisation", "inside = p < P", "inside = p <= P"),
)
"""Module, what is in it, and what is put in its place."""


def changed(name: str, before: str, after: str, folder: Path) -> ModuleType:
    """A module of kernels with a fault in it."""
    source = (ROOT / "src" / "honestdp" / "kernels" / f"{name}.py").read_text()
    if before not in source:
        raise LookupError(f"{before!r} is not in kernels/{name}.py any more: plant another fault")
    file = folder / f"planted_{name}_{abs(hash((before, after)))}.py"
    file.write_text(source.replace(before, after))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def as_seen(name: str, module: Any) -> str | None:
    """What guarded memory says of it, or None."""
    from .guarded import OutsideError, guarded
    from .kernel_bounds import convolutions, norms, passes, several, taps

    if name in _OWN:  # and not those of other modules that it hands on
        module = SimpleNamespace(**{each: getattr(module, each) for each in _OWN[name]})
    every = {"fused": passes, "normalisation": norms, "taps": taps, "blocks": several}
    work = every.get(name, convolutions)
    if name == "taps":
        module = with_taps(module)
    for number in TRIES:
        try:
            with guarded():
                work(random.Random(number), module)
        except OutsideError as outside:
            return f"in shape {number}: {outside}"
    return None


def with_taps(module: ModuleType) -> SimpleNamespace:
    """What of honestdp.kernels.gradients calls these taps, with them in their place."""
    from honestdp.kernels import gradients

    def square_norms(*args: Any, **named: Any) -> Any:
        with mock.patch.object(gradients, "square_norms_by_taps", module.square_norms_by_taps):
            return gradients.square_norms(*args, **named)

    return SimpleNamespace(square_norms=square_norms)


_OWN = {
    "convolution": ("forward", "back", "unpool"),
    "gradients": ("square_norms", "sum_rows", "weighted_sum"),
}


def main() -> int:
    unseen = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, before, after in FAULTS:
            said = as_seen(name, changed(name, before, after, Path(folder)))
            unseen += said is None
            print(f"{'NOT SEEN' if said is None else 'seen'}: {name}: {before} -> {after}: {said}", flush=True)
    return min(1, unseen)


if __name__ == "__main__":
    sys.exit(main())
