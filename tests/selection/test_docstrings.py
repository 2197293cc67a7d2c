"""Every selection and law of the number of runs says what it does, when to take it, and has an example that runs."""

from __future__ import annotations

import doctest
import inspect
import re

import pytest

from honestdp import selection

CLASSES = ["Compose", "Winner", "LiuTalwar", "RandomStopping", "TruncatedNegativeBinomial", "Poisson", "Binomial"]


@pytest.mark.parametrize("name", CLASSES)
def test_a_selection_says_when_to_take_it_and_shows_it(name: str) -> None:
    text = inspect.getdoc(getattr(selection, name)) or ""
    assert re.search(r"Take it|It costs|to compare", text)
    examples = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    assert examples.examples
    assert not doctest.DocTestRunner().run(examples).failed


def test_no_selection_that_users_name_is_left_out() -> None:
    known = {type(selection.named(name, candidates=2)).__name__ for name in selection.SELECTIONS}
    assert known <= set(CLASSES)
