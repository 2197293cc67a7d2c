"""What a search is asked to do, as one frozen value: written to `search.json`, compared when it is resumed, shown in its report.

The code of the model, the loss and the rest is compared by what runs (`identity`), not by name. Those digests are kept among
the secrets and not in `search.json`: what a function closes over may be of the records. `search.json` has digests of the code as
it is written alone (`wording`).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from honestdp.augment import Augmentation
from honestdp.boundary.data import PrivateData
from honestdp.checks import is_number
from honestdp.identity import differing
from honestdp.identity.text import text_digest, versions
from honestdp.identity.values import identity
from honestdp.ledger.spending import Spending
from honestdp.optimizers import BY_NAME
from honestdp.search.design import Request
from honestdp.search.runs import Setting
from honestdp.search.space import Space
from honestdp.training.population import fresh

VERSIONS = ("honestdp", "code", "python", "torch", "numpy")
"""Settings that follow from what is installed: a search goes on with the same alone, a result is read with any."""


TEXT = "text"
"""The entry of `search.json` that holds the digests of users' code as text."""
_NOT_SETTINGS = ("key", "spending", TEXT)


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """Everything public that decides what a search does.

    data: shape and type of a record's x and y; None for a Dataset. code: digests of what runs, by whose it is, without numbers
    in arrays and tensors; they stay secret. unseen: names of what the digests do not see into. augment: how records are varied.
    declared: whether the number of records was given. seed: a user's for all noise. reproduce: the command or code.
    """

    request: Request
    setting: Setting
    data: tuple[str, ...] | None
    code: Mapping[str, str]
    unseen: tuple[str, ...]
    declared: bool
    seed: int | None
    dataset: str | None
    reproduce: str
    augment: Augmentation | None = None

    def as_dict(self) -> dict[str, Any]:
        """All but what follows from it: for JSON, and for comparison."""
        request, setting = self.request, self.setting
        return {
            **versions(),
            "dataset": self.dataset,
            "records": request.records,
            "declared": self.declared,
            "data": None if self.data is None else list(self.data),
            "budget": {"epsilon": request.budget.epsilon, "delta": request.budget.delta},
            "validation": request.fraction,
            "metric": None if not request.fraction or request.metric is None else _words(request.metric),
            "space": request.space.as_dict(),
            "selection": _words(request.selection),
            "candidates": request.drawn,
            "model": str(modules(request.space, setting)[0]),
            "loss": None if setting.loss is None else _words(setting.loss),
            "schedule": _words(setting.schedule),
            "device": setting.kind,
            "secure": setting.secure,
            "strict": setting.strict,
            "noise_seed": self.seed,
            "unseen code": list(self.unseen),
            "coverage": request.coverage,
            "max_runs": request.max_runs,
            "published": request.published,
            "space_seed": request.space_seed,
            "reproduce": self.reproduce,
            **({} if self.augment is None else {"augment": repr(self.augment)}),
        }

    def with_spending(self, spending: Spending) -> dict[str, Any]:
        """With what follows from it and is charged: the content of `search.json`."""
        return {**self.as_dict(), TEXT: self.texts, "spending": spending.as_dict()}

    @property
    def texts(self) -> dict[str, str]:
        """Digests of what was written, by whose it is: they stay when the search is over."""
        return {f"{whose} text": text_digest(*things) for whose, things in self._own().items()}

    def changed_text(self, written: Mapping[str, Any]) -> set[str]:
        """Whose text is another than in these settings, if they have any. Byte code is compared within one version of Python."""
        kept, texts = written.get(TEXT), self.texts
        if not isinstance(kept, dict) or written.get("python") != self.as_dict()["python"]:
            return set()
        return {name for name in kept.keys() & texts.keys() if kept[name] != texts[name]}

    def values(self) -> str:
        """A digest of the numbers that the code brings with it: weights of a loss, what a factory makes of one seed. After the
        charge alone: nobody knows where they are from.
        """
        model, saved = self.setting.model, list[torch.Tensor]()
        if isinstance(model, torch.nn.Module):  # it is kept from the beginning, and may come with other weights
            saved = [value for value in model.state_dict(keep_vars=True).values() if isinstance(value, torch.Tensor)]
        things = (thing for each in self._own().values() for thing in each)
        return identity(*things, values=True, besides=saved).whole

    def _own(self) -> dict[str, tuple[Any, ...]]:
        """The user's functions, classes and modules, by whose they are."""
        return own_code(self.request, self.setting, self.augment)


def own_code(request: Request, setting: Setting, augment: Augmentation | None) -> dict[str, tuple[Any, ...]]:
    """Functions, classes and modules that decide what a search does, by whose they are."""
    made = () if isinstance(setting.model, torch.nn.Module) else modules(request.space, setting)
    own = {
        "the model's": (setting.model, *made),
        "the loss's": (setting.loss,),
        "the metric's": (request.metric if request.fraction else None,),
        "the schedule's": (setting.schedule,),
        "the optimizers'": tuple(BY_NAME[name] for name, _ in request.space.dimensions),
    }
    return own if augment is None else {**own, "the augmentation's": (augment,)}


def configuration(
    request: Request,
    setting: Setting,
    data: PrivateData,
    *,
    declared: bool,
    seed: int | None,
    dataset: str | None,
    reproduce: str,
) -> Configuration:
    own = own_code(request, setting, data.augment)
    own |= {"the Dataset's": tuple(data.decoders()), "the selection's": (request.selection,)}
    identities = {f"{whose} code": identity(*things) for whose, things in own.items()}
    return Configuration(
        request=request,
        setting=setting,
        data=None if data.shapes is None else tuple(data.shapes.words),
        code={part: one for name, each in identities.items() for part, one in each.named(name).items()},
        unseen=tuple(sorted({name for each in identities.values() for name in each.unseen})),
        declared=declared,
        seed=seed,
        dataset=dataset,
        reproduce=reproduce,
        augment=data.augment,
    )


def joined_for(public: Configuration) -> AbstractContextManager[None]:
    """Within, the cluster of a search is joined, where it has one."""
    setting = public.setting
    if setting.cluster is None:
        return nullcontext()
    return setting.cluster.joined(setting.model, setting.loss, setting.schedule, public.request.metric, public.augment)


def modules(space: Space, setting: Setting) -> list[torch.nn.Module]:
    """A module of each architecture that is searched."""
    return [fresh(setting.model, arguments=arguments, start=0) for arguments in space.architectures()]


def _words(value: Any) -> str:
    """Names a public setting alike in every process: functions by their names, for their addresses change."""
    if is_dataclass(value):
        parts = [f"{field.name}={_words(getattr(value, field.name))}" for field in fields(value)]
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, partial):
        parts = [_words(part) for part in (value.func, *value.args)]
        return f"partial({', '.join([*parts, *(f'{name}={_words(part)}' for name, part in value.keywords.items())])})"
    if isinstance(value, str):
        return value
    # An array's numbers may be counts of labels: they are compared, not shown.
    if isinstance(value, torch.Tensor | np.ndarray):
        return f"{type(value).__name__} {list(value.shape)} {value.dtype}"
    if callable(value) and not isinstance(value, torch.nn.Module):
        return str(getattr(value, "__qualname__", type(value).__qualname__))
    return repr(value)


_LATER = {"selection", "candidates"}  # settings that earlier versions did not write
_COMPARED_ELSEWHERE = tuple(f"--{name}" for name in ("schema", "target"))
"""Options of a command: what is declared is in the digest of the table, whatever its file is called."""


def differences(written: Mapping[str, Any], settings: Mapping[str, Any], besides: tuple[str, ...] = ()) -> set[str]:
    """The settings in which a search differs from the one that `search.json` describes.

    written: the content of `search.json`. besides: settings that are not compared.
    """
    others = differing(written, settings) - (_LATER - written.keys()) - {*_NOT_SETTINGS, *besides}
    if "space" in others and [*(written.get("space") or ())] != [*settings["space"]]:
        others.add(f"the optimizer ({', '.join(written.get('space') or ())} and not {', '.join(settings['space'])})")
    if "reproduce" in others:
        then, now = (str(each.get("reproduce", "")) for each in (written, settings))
        others.discard("reproduce")
        what = "the command" if now.startswith("honestdp tune ") else "reproduce"
        others |= set() if _meant(then) == _meant(now) else {f"{what} ({then!r} there, {now!r} here)"}
    if "data" in others:
        others.discard("data")
        of_a_table = any("by the table" in str(each.get("data")) for each in (written, settings))
        others.add("data (what the schema declares)" if of_a_table else "data (shape or type of a record)")
    return {name + _there_and_here(written.get(name), settings.get(name)) for name in others}


def _there_and_here(then: object, now: object) -> str:
    """The numbers of a setting that are others there than here, such as " (epsilon 3 there, 2 here)"; empty for what is none."""
    there, here = (each if isinstance(each, dict) else {"": each} for each in (then, now))
    numbers = [
        name for name in there if is_number(there[name]) and is_number(here.get(name)) and there[name] != here[name]
    ]
    parts = [f"{name} {there[name]:g} there, {here[name]:g} here".strip() for name in numbers]
    return f" ({', '.join(parts)})" if parts else ""


def _meant(command: str) -> list[str] | str:
    """A command without what is compared by its content, each file in it by one spelling; a text of another kind as it is."""
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    if words[:2] != ["honestdp", "tune"]:
        return command
    there = [place for place, word in enumerate(words) if word in _COMPARED_ELSEWHERE]
    left_out = {*there, *(place + 1 for place in there)}
    kept = [word for place, word in enumerate(words) if place not in left_out]
    return [os.path.realpath(word) if os.path.exists(word) else word for word in kept]
