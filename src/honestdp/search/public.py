"""A search's public configuration: what is compared when it is resumed, and shown in its report."""

from __future__ import annotations

import hashlib
from dataclasses import fields, is_dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import honestdp
from honestdp.data.split import as_pair
from honestdp.search.design import Design
from honestdp.search.execution import Setting


def configuration(
    made: Design, setting: Setting, data: Any, *, declared: bool, seed: int | None, dataset: str | None
) -> dict[str, Any]:
    """Everything public that decides what a search does."""
    some = made.candidates[0] if made.candidates else made.space.draw(np.random.default_rng(0))
    pair = as_pair(data)
    return {
        "honestdp": honestdp.__version__,
        "code": _code(),
        "torch": torch.__version__,
        "dataset": dataset,
        "records": made.records,
        "declared": declared,
        "data": None if pair is None else [f"{list(part.shape[1:])} {part.dtype}" for part in pair],
        "budget": {"epsilon": made.budget.epsilon, "delta": made.budget.delta},
        "validation": made.fraction,
        "metric": None if made.metric is None else _words(made.metric),
        "space": made.space.as_dict(),
        "spending": made.spending.as_dict(),
        "model": str(setting.module(some, 0)),
        "loss": None if setting.loss is None else _words(setting.loss),
        "schedule": _words(setting.schedule),
        "device": setting.device.type,
        "secure": setting.secure,
        "strict": setting.strict,
        "noise_seed": seed,
    }


def _words(value: Any) -> str:
    """Names a public setting alike in every process: functions by their names, for their addresses change."""
    if is_dataclass(value):
        own = [f"{field.name}={_words(getattr(value, field.name))}" for field in fields(value)]
        return f"{type(value).__name__}({', '.join(own)})"
    if isinstance(value, partial):
        own = [_words(one) for one in (value.func, *value.args)]
        return f"partial({', '.join([*own, *(f'{name}={_words(one)}' for name, one in value.keywords.items())])})"
    if isinstance(value, str):
        return value
    if callable(value) and not isinstance(value, torch.nn.Module):
        return str(getattr(value, "__qualname__", type(value).__qualname__))
    return repr(value)


@lru_cache(maxsize=1)
def _code() -> str:
    """A hash of this package's source, so that a search does not go on with other code."""
    root = Path(honestdp.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]
