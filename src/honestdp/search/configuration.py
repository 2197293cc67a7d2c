"""What a search is, for comparison when it is resumed: its public configuration, which is also shown in its report, and its code.

The code of the model, the loss and the rest is compared by what runs (`identity`), not by name. Its digests are kept among
the secrets and not in `search.json`: what a function closes over may be of the records.
"""

from __future__ import annotations

import hashlib
import platform
from dataclasses import fields, is_dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import honestdp
from honestdp.boundary.data import PrivateData
from honestdp.optimizers import BY_NAME
from honestdp.search.design import Design
from honestdp.search.runs import Setting
from honestdp.training.identity import Identity, identity


def configuration(
    made: Design, setting: Setting, data: PrivateData, *, declared: bool, seed: int | None, dataset: str | None
) -> dict[str, Any]:
    """Everything public that decides what a search does."""
    some = made.candidates[0] if made.candidates else made.space.draw(np.random.default_rng(0))
    shapes = data.shapes
    return {
        "honestdp": honestdp.__version__,
        "code": _code(),
        "python": ".".join(platform.python_version_tuple()[:2]),
        "torch": torch.__version__,
        "dataset": dataset,
        "records": made.records,
        "declared": declared,
        "data": None if shapes is None else list(shapes.words),
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
        "unseen code": sorted({name for one in _identities(made, setting, data).values() for name in one.unseen}),
    }


def code_of(made: Design, setting: Setting, data: PrivateData) -> dict[str, str]:
    """Digests of what runs, by whose it is. No array or tensor is read."""
    return {name: one.digest for name, one in _identities(made, setting, data).items()}


def values_of(made: Design, setting: Setting) -> str:
    """A digest of the numbers that the code brings with it: weights of a loss, what a factory makes of one seed. After the
    charge alone: nobody knows where they are from.
    """
    fixed = [made.metric, setting.loss, setting.schedule, setting.model]
    if isinstance(
        setting.model, torch.nn.Module
    ):  # what is saved of it is kept from the beginning, and may be other weights
        saved = setting.model.state_dict(keep_vars=True).values()
        return identity(*fixed, values=True, besides=(one for one in saved if isinstance(one, torch.Tensor))).digest
    return identity(*fixed, *_modules(made, setting), values=True).digest


def _identities(made: Design, setting: Setting, data: PrivateData) -> dict[str, Identity]:
    return {
        "the model's code": identity(setting.model, *_modules(made, setting)),
        "the loss's code": identity(setting.loss),
        "the metric's code": identity(made.metric),
        "the schedule's code": identity(setting.schedule),
        "the optimizers' code": identity(*(BY_NAME[name] for name, _ in made.space.dimensions)),
        "the Dataset's code": identity(*data.decoders()),
    }


def _modules(made: Design, setting: Setting) -> list[torch.nn.Module]:
    """A module of each width."""
    some = made.candidates or (made.space.draw(np.random.default_rng(0)),)
    return [setting.module(one, 0) for one in {candidate.width: candidate for candidate in some}.values()]


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
    if isinstance(
        value, torch.Tensor | np.ndarray
    ):  # its numbers may be counts of labels: they are compared, not shown
        return f"{type(value).__name__} {list(value.shape)} {value.dtype}"
    if callable(value) and not isinstance(value, torch.nn.Module):
        return str(getattr(value, "__qualname__", type(value).__qualname__))
    return repr(value)


_OTHERS = ("papers", "report", "cli.py", "ledger_cli.py", "papers_cli.py", "tune_cli.py", "options.py", "__main__.py")
"""Parts of this package that decide nothing in a search."""


@lru_cache(maxsize=1)
def _code() -> str:
    """A hash of this package's source, so that a search does not go on with other code."""
    root = Path(honestdp.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root)
        if name.parts[0] not in _OTHERS:
            digest.update(name.as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]
