"""The trainings of the suite as parts: of every setting the oracle's 48 candidates, and any list of rules by name.

A part is one population: all candidates and repeats of a setting, or all repeats of one rule. Repeat r begins with the same
weights for every candidate and rule. Lots and noise follow from the setting's name and from how many runs a machine has room for
at once, so that where that is all, every rule of a setting meets the same. Its file is that of `honestdp_papers.parts`: how many
test records each run answered rightly.

A part rests on its setting and on the numbers of its candidates or rule. A rule of honestdp's whose code has changed is trained
anew once its files are deleted.

A rule is called by its name, with numbers of its own behind a colon: `horizon`, `horizon:average=True`,
`adam:clip=1.0,lr=0.01`.
"""

from __future__ import annotations

import ast
import runpy
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import honestdp
from honestdp.boundary.capture import free_captured
from honestdp.boundary.records import prepared
from honestdp.errors import HonestdpError, InvalidArgument
from honestdp.optimizers import SGD, Rule
from honestdp.optimizers.rule import rule_class, rule_of
from honestdp_papers.curves import seeded
from honestdp_papers.parts import Arrays, Part, Tell, described
from honestdp_papers.suite.data import loaded
from honestdp_papers.suite.models import maker
from honestdp_papers.suite.settings import CANDIDATES, Setting, seconds

ORACLE = [SGD(lr=lr, clip=clip) for lr, clip in CANDIDATES]
RETIRED = {"outlook": "Outlook()"}
"""Rules that kept parts are of and that honestdp no longer has: they are shown, and not trained. Commit af7d9954 has Outlook."""
AGAIN = 2
"""So many times as often as a candidate a rule is repeated, and at least four times: there is one of it, and 48 of those."""


@dataclass(frozen=True)
class Named:
    """A rule by what it was called, and in words. rule: none where it is retired. source: the digest of the file that defines
    it, where that is none of honestdp's.
    """

    called: str
    rule: Rule | None
    words: str
    source: str = ""

    @property
    def file(self) -> str:
        return "".join(each if each.isalnum() or each in "-._" else "-" for each in self.called)


def rules_of(called: Sequence[str], defined: Path | None = None) -> list[Named]:
    """Rules by name. defined: a file of Python in which rules are defined that honestdp does not have."""
    own: dict[str, Any] = {}
    if defined is not None:
        own = runpy.run_path(str(defined), run_name=defined.stem)
    digest = sha256(defined.read_bytes()).hexdigest()[:12] if defined is not None else ""
    mine = {value for value in own.values() if isinstance(value, type)}

    def named(name: str) -> Named:
        if name in RETIRED:
            return Named(name, None, RETIRED[name])
        rule = rule_by_name(name)
        return Named(name, rule, described(rule), digest if type(rule) in mine else "")

    return [named(each) for each in dict.fromkeys(called)]


def rule_by_name(called: str) -> Rule:
    """`name`, or `name:number=value,...`."""
    name, _, words = called.partition(":")
    if not words:
        return rule_of(name, argument="--rules")
    try:
        call = ast.parse(f"rule({words})", mode="eval").body
        assert isinstance(call, ast.Call)
        numbers = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
        if call.args or "None" in numbers:
            raise ValueError(words)
    except (SyntaxError, ValueError) as trouble:
        raise InvalidArgument(
            "--rules", called, "a name, or a name with numbers as in adam:clip=1.0,lr=0.01"
        ) from trouble
    return rule_class(name, argument="--rules")(**numbers)


def oracle_part(setting: Setting) -> Part:
    """The part keeps `right` `[repeats, candidates]`, `tests` and `largest`, the test records of the largest class."""
    identity = setting.identity | {"candidates": [described(rule) for rule in ORACLE]}
    return _part(setting, f"{setting.name}/oracle", ORACLE, setting.repeats, identity)


def rule_part(setting: Setting, named: Named) -> Part:
    """The same with `right` `[repeats, 1]`."""
    repeats = repeats_of(setting)
    identity = setting.identity | {"rule": named.words, "repeated": repeats, "source": named.source}
    name = f"{setting.name}/{named.file}"
    return _part(setting, name, [] if named.rule is None else [named.rule], repeats, identity)


def repeats_of(setting: Setting) -> int:
    return max(4, AGAIN * setting.repeats)


def _part(setting: Setting, name: str, rules: Sequence[Rule], repeats: int, identity: dict[str, Any]) -> Part:
    def work(device: str, tell: Tell) -> Arrays:
        if not rules:
            raise HonestdpError(f"{name}: the rule is retired; what is kept of it is shown by --report")
        return trained(setting, rules, repeats, seed=zlib.crc32(name.encode()), device=device)

    return Part(name, identity, seconds(setting, len(rules) * repeats, compiled=rules is not ORACLE), work)


def trained(setting: Setting, rules: Sequence[Rule], repeats: int, *, seed: int, device: str) -> Arrays:
    x, y, tested, answers = loaded(setting.data, device)
    make = maker(setting.data, setting.net)
    starts = [seeded(make, repeat) for repeat in range(repeats)]
    results = honestdp.train_population(
        [start for start in starts for _ in rules],
        (x[: setting.records], y[: setting.records]),
        run=honestdp.Run(records=setting.records, lot=setting.lot, steps=setting.steps, noise=setting.noise),
        optimizers=[rule for _ in starts for rule in rules],
        noise_seed=seed,
        compute=honestdp.Compute(device=device),
    )
    right = np.array([answered(result.model.to(device), tested, answers) for result in results], np.int64)
    largest = int(answers.bincount().max())
    del results
    free_captured()
    return {
        "right": right.reshape(repeats, len(rules)),
        "tests": np.array(len(answers)),
        "largest": np.array(largest),
    }


@torch.no_grad()
def answered(model: nn.Module, tested: Tensor, answers: Tensor) -> int:
    """How many test records a model answers rightly."""
    right = torch.zeros((), dtype=torch.int64, device=answers.device)
    for part, answer in zip(torch.split(tested, 2000), torch.split(answers, 2000), strict=True):
        right += (model(prepared(part, torch.float32)).argmax(1) == answer).sum()
    return int(right)


def parts_of(setting: Setting, rules: Sequence[Named], *, oracle: bool = True) -> list[Part]:
    return [*([oracle_part(setting)] if oracle else []), *(rule_part(setting, named) for named in rules)]


def check_distinct(rules: Sequence[Named]) -> None:
    files = [named.file for named in rules]
    if len(set(files)) < len(files):
        raise HonestdpError(f"--rules: two of {', '.join(named.called for named in rules)} would be one file's name")
    if "oracle" in files:
        raise HonestdpError("--rules: oracle is trained in any case")
