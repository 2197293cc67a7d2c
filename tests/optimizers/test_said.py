"""Optimizers by name, class or object: what is missing is named, with a line that works."""

from __future__ import annotations

import copy
import doctest
import inspect
import pickle
import re
from dataclasses import fields
from typing import Any

import pytest

import honestdp
from honestdp import optimizers
from honestdp.checks import InvalidArgument
from honestdp.optimizers import (
    ADADP,
    BY_NAME,
    OSO,
    SGD,
    Adam,
    AdamOSO,
    AdamWOSM,
    Echo,
    FixedClip,
    Horizon,
    Momentum,
    Quantile,
    Rule,
)
from tests.tiny_search import clouds, linear

RUN = honestdp.Run(records=400, lot=40, steps=2, noise=1.0)
NEED = {"sgd": "lr and clip", "momentum": "lr, momentum and clip", "adam": "clip", "oso": "lr"}


@pytest.mark.parametrize("name", NEED)
def test_a_name_or_a_class_that_needs_numbers_says_which_and_shows_a_line_that_works(name: str) -> None:
    for optimizer in (name, BY_NAME[name]):
        with pytest.raises(InvalidArgument, match=f"it needs {NEED[name]}, for example optimizer=") as caught:
            honestdp.train(linear(), clouds(), run=RUN, optimizer=optimizer)
        shown = re.search(r"optimizer=(honestdp\.optimizers\.\w+\(.*?\))", str(caught.value))
        assert shown is not None
        rule = eval(shown[1], {"honestdp": honestdp})
        assert honestdp.train(linear(), clouds(), run=RUN, optimizer=rule).optimizer == rule


def test_several_optimizers_are_for_another_door() -> None:
    with pytest.raises(InvalidArgument, match=r"train_population\(optimizers=.* side by side, tune\(optimizer="):
        honestdp.train(linear(), clouds(), run=RUN, optimizer=[SGD(0.1, 1.0)])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: Momentum(0.1, 1.0),
            r"clip is missing, as in .*Momentum\(lr=0.05, .*got 'Momentum\(lr=0.1, momentum=1.0\)",
        ),
        (lambda: SGD(), r"lr and clip are missing"),
        (lambda: SGD(clip=1.0), r"lr is missing"),
        (
            lambda: SGD(lr=0.1, clip=1.0, momentum=0.9),
            r"numbers that it has \(weight_decay, lr, clip\), and not momentum",
        ),
    ],
)
def test_a_rule_names_what_is_missing_and_what_it_does_not_have(call: Any, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        call()


RULES = [
    SGD(0.1, 1.0), Momentum(0.1, 0.9, 1.0), Adam(1.0), AdamWOSM("auto"), ADADP(1.0), OSO(0.1), Quantile(0.1), Horizon(),
    Echo(),
    OSO(0.1, momentum=0.5, nu_q=2.0, proportional=True, automatic=True), AdamOSO(), Quantile(0.1, clamped=False),
]  # fmt: skip


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_is_copied_pickled_and_said_as_it_was_made(rule: Rule) -> None:
    for one in (rule, type(rule)(**rule.numbers, weight_decay=0.25)):
        assert copy.deepcopy(one) == pickle.loads(pickle.dumps(one)) == one
        assert eval(repr(one), vars(optimizers)) == one
    assert "weight_decay" not in repr(rule)
    assert "weight_decay=0.25" in repr(one)


@pytest.mark.parametrize("name", [name for name in optimizers.__all__ if isinstance(getattr(optimizers, name), type)])
def test_every_public_optimizer_says_when_to_take_it_and_has_an_example(name: str) -> None:
    """Two sentences or more in words, every hyperparameter by its name, and an example that runs."""
    rule = getattr(optimizers, name)
    text = inspect.getdoc(rule) or ""
    assert len(re.findall(r"[.:] ", text.split("\n\n")[0])) >= 1
    assert all(field.name in text for field in fields(rule) if name != "FixedClip")
    examples = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    assert examples.examples
    assert not doctest.DocTestRunner().run(examples).failed


def test_a_field_called_weight_decay_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="without a field weight_decay: every rule has it"):

        class Mine(FixedClip):
            weight_decay: float = 0.1
