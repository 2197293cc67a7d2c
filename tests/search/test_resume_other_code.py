"""Other code is refused on resume, whatever its name: with copies of a folder it would be the same noise on two functions."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import textwrap
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import ConcatDataset, Dataset, Subset

import honestdp
from honestdp import ClippedLoss, Compute, DeclaredMetric
from honestdp.boundary.data import PrivateData
from honestdp.boundary.query import Constants, Release
from honestdp.checks import InvalidArgument
from honestdp.identity.values import identity
from honestdp.optimizers import SGD, FixedClip, State
from honestdp.optimizers.rule import Clip, Number, column
from honestdp.search.vault import Unkept
from honestdp.training.train import train_population
from tests.forked_python import forked
from tests.search.test_resume import Stopped
from tests.tiny_search import clouds


def written(source: str, **names: Any) -> Any:
    """What `made` is in a module of this source."""
    space: dict[str, Any] = {"__name__": "users_own", "torch": torch, "nn": nn, **names}
    exec(compile(textwrap.dedent(source), "users_own.py", "exec"), space)
    return space["made"]


MODEL = """
SCALE = 1.0
def helper(x):
    return x * SCALE
class Own(nn.Module):
    def __init__(self, factor=1.0):
        super().__init__()
        self.layer, self.factor = nn.Linear(3, 2), factor
    def forward(self, x):
        return helper(self.layer(x))
def made():
    return Own()
"""
LOSS = """
def made(output, y):
    return nn.functional.cross_entropy(output, y, reduction="none")
"""
CLOSED = """
def outer(weight):
    def made(output, y):
        return nn.functional.cross_entropy(output, y, reduction="none") * weight
    return made
made = outer(1.0)
"""
SCHEDULE = """
def made(step):
    return 1.0
"""
CHANGES: dict[str, tuple[str, str, str, str]] = {
    "a model's forward": ("model", MODEL, "return helper(self.layer(x))", "return helper(self.layer(x)).tanh()"),
    "what it calls": ("model", MODEL, "return x * SCALE", "return x * SCALE + 1"),
    "a constant it names": ("model", MODEL, "SCALE = 1.0", "SCALE = 2.0"),
    "an attribute": ("model", MODEL, "return Own()", "return Own(2.0)"),
    "a loss's body": ("loss", LOSS, 'reduction="none")', 'reduction="none") * 2'),
    "what a loss closes over": ("loss", CLOSED, "outer(1.0)", "outer(2.0)"),
    "a schedule": ("schedule", SCHEDULE, "return 1.0", "return 1.0 / (1 + step)"),
}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_other_code_under_the_same_name_is_refused_by_name(change: str, tmp_path: Path) -> None:
    what, source, old, new = CHANGES[change]
    assert old in source
    search = Stopped(tmp_path, **{what: written(source)})
    search.refuses(f"differs in .*the {what}'s code", **{what: written(source.replace(old, new))})
    commented = source + "# a comment\n"
    search.resume(**{what: written(commented)})


def _metric(scale: float) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    return lambda output, y: (output.argmax(-1) == y).float() * scale


def test_another_metric_s_function_is_refused(tmp_path: Path) -> None:
    search = Stopped(tmp_path, metric=DeclaredMetric(_metric(1.0), low=0.0, high=1.0))
    search.refuses("differs in the metric's code", metric=DeclaredMetric(_metric(0.5), low=0.0, high=1.0))


class Weighted(nn.Module):
    def __init__(self, weight: float) -> None:
        super().__init__()
        self.register_buffer("weight", torch.tensor([1.0, weight]))

    def forward(self, output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(output, y, weight=self.weight, reduction="none")


@pytest.mark.slow
def test_other_numbers_in_a_loss_are_refused(tmp_path: Path) -> None:
    search = Stopped(tmp_path, loss=Weighted(1.0))
    search.refuses("resume must be a search with the same numbers in its code", loss=Weighted(2.0))
    search.resume(loss=Weighted(1.0))


PACE = {"of": torch.ones(1)}


@dataclass(frozen=True)
class Paced(FixedClip, name="toy-paced", grid={"lr": (0.1, 0.2)}):
    lr: Number
    clip: Clip = 1.0

    def move(self, params: torch.Tensor, state: State, release: Release, constants: Constants) -> Any:
        return params - PACE["of"] * column(self.lr) * release.gradient, {}


SHIFT = {"of": torch.zeros(1)}


@pytest.mark.slow
@pytest.mark.parametrize("whose", [PACE, SHIFT], ids=["optimizer", "metric"])
def test_other_numbers_in_the_tensors_of_an_optimizer_or_a_metric_are_refused(
    whose: dict[str, torch.Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = DeclaredMetric(lambda output, y: (output.argmax(-1) == y).float() + SHIFT["of"], low=0.0, high=1.0)
    search = Stopped(tmp_path, optimizer=Paced, space=None, metric=right)
    with monkeypatch.context() as patch:
        patch.setitem(whose, "of", torch.full((1,), 0.5))
        search.refuses("resume must be a search with the same numbers in its code")
    search.resume()


class Decoded(Dataset[Any]):
    def __init__(self, transform: Callable[[Any], Any]) -> None:
        self.x, self.y = clouds()
        self.transform = transform

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        return self.transform(self.x[index]), self.y[index]


def test_another_transform_of_a_dataset_is_refused(tmp_path: Path) -> None:
    named = {"metric": ClippedLoss(1.0), "compute": Compute(workers=0)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.search.test_resume.clouds", lambda: Decoded(lambda x: x))
        search = Stopped(tmp_path, **named)
        search.refuses("differs in the Dataset's code", data=Decoded(lambda x: x * 2))


@pytest.mark.parametrize("change", ["a model's forward", "a loss's body"])
def test_a_checkpoint_of_other_code_is_refused(change: str, tmp_path: Path) -> None:
    what, source, old, new = CHANGES[change]
    run = honestdp.Run(records=400, lot=40, steps=3, noise=1.0)

    def go(text: str) -> None:
        given = written(text)
        model, loss = (given(), None) if what == "model" else (nn.Linear(3, 2), given)
        rules = [honestdp.optimizers.SGD(lr=0.1, clip=1.0)]
        train_population(
            model,
            clouds(),
            run=run,
            optimizers=rules,
            loss=loss,
            compute=Compute(checkpoint=tmp_path / "kept", device="cpu"),
        )

    go(source)
    go(source + "# a comment\n")
    with pytest.raises(InvalidArgument, match=f"differs in .*the {what}'s code"):
        go(source.replace(old, new))


# ---- Identities


@pytest.mark.slow
def test_identities_are_the_same_in_every_process() -> None:
    code = textwrap.dedent("""
        import logging, functools, torch
        from torch import nn
        from honestdp.identity.values import identity
        log = logging.getLogger("mine")
        WORDS = {"a", "b", "c", "d"}
        class Own(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(2, 2)
            def forward(self, x):
                log.debug("used")
                return self.layer(x) * len(WORDS) if "x" in {"x", "y", "z"} else x
        @functools.lru_cache
        def cached(a, b={"u": 1, "v": 2}):
            return a
        print(identity(Own(), cached, functools.partial(cached, b=3), lambda x: x + 1).whole)
    """)
    found = set()
    for number in range(4):
        env = {**os.environ, "PYTHONHASHSEED": str(number), "PYTHONPATH": str(Path(honestdp.__file__).parents[1])}
        found.add(
            subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
        )
    assert len(found) == 1


def test_records_that_a_factory_closes_over_are_not_read_before_the_charge() -> None:
    """Their shape is, as everywhere; their numbers only for the digest that is made after the charge."""
    one, other = np.zeros((5, 3)), np.ones((5, 3))

    def factory(x: Any) -> Callable[[], nn.Module]:
        return lambda: nn.Linear(x.shape[1], 2)

    assert identity(factory(one)) == identity(factory(other)) != identity(factory(np.zeros((6, 3))))
    assert identity(factory(one), values=True) != identity(factory(other), values=True)


def test_what_has_neither_byte_code_nor_state_is_named() -> None:
    assert identity(iter(lambda: 0, 1)).unseen == () != identity(x for x in ()).unseen
    assert identity(SimpleNamespace(opened=sys.__stdout__)).unseen == ("_io.TextIOWrapper",)
    assert identity(functools.partial(nn.functional.cross_entropy, reduction="none")).unseen == ()
    assert identity(nn.Linear(2, 2), torch.relu, np.mean, np.exp, len, [].append).unseen == ()
    with warnings.catch_warnings(action="ignore"):
        scripted = torch.jit.script(nn.Linear(2, 2))
    assert "torch.ScriptModule" in identity(scripted).unseen


HELD = {
    "argparse.Namespace": "argparse.Namespace(a=@)",
    "SimpleNamespace": "types.SimpleNamespace(a=@)",
    "deque": "collections.deque([@])",
    "MappingProxyType": "types.MappingProxyType({'a': @})",
    "Decimal": "decimal.Decimal(@)",
    "range": "range(@)",
    "slice": "slice(@)",
    "methodcaller": "operator.methodcaller('mul', @)",
    "defaultdict": "collections.defaultdict(int, a=@)",
    "pattern": "re.compile('@')",
    "slots": "Slotted(@)",
    "subclass of dict": "Mapped(a=@)",
    "attribute of a subclass of dict": "Mapped.of(@)",
    "number of a class of its own": "Number(@)",
    "unpickled attribute": "Shy(@)",
    "descriptor": "type('Holder', (), {'value': Described(@)})",
    "lru_cache": "functools.lru_cache(lambda x: x * @)",
    "cached_property": "functools.cached_property(lambda x: x * @)",
    "decorated by a package": "torch.no_grad()(lambda x: x * @)",
    "default of a keyword": "eval('lambda x, *, a=@: x')",
    "attribute of a function": "with_attribute(@)",
    "bound method of a list": "[@].count",
    "set of functions": "{lambda x: x * @, lambda x: x}",
}
KINDS = """
import argparse, collections, decimal, functools, operator, re, sys, types
import torch
from torch import nn
class Slotted:
    __slots__ = ("a", "never")
    def __init__(self, a): self.a = a
class Mapped(dict):
    @classmethod
    def of(cls, b):
        made = cls()
        made.b = b
        return made
class Number(int): pass
class Shy(Slotted):
    def __getstate__(self): return {}
class Described:
    def __init__(self, a): self.a = a
    def __get__(self, one, kind): return self.a
def with_attribute(a):
    def made(x): return x * made.a
    made.a = a
    return made
"""


def in_a_process(folder: Path, lines: str, seed: int | None = None) -> list[Any]:
    """What `found` is after these lines, in a process of its own that imports from the folder. seed: of Python's hashes."""
    (folder / "run.py").write_text(f"{lines}\nimport json\nprint(json.dumps(found))")
    if seed is None:  # forked, where no module is known yet that has the name of one in the folder
        alone = "import runpy, sys, warnings\nwarnings.simplefilter('ignore')\nsys.modules.pop('colorsys', None)\n"
        alone += "sys.dont_write_bytecode = True\nrunpy.run_path('run.py', run_name='__main__')"
        code, out, err = forked(folder, alone, path=folder)
        assert code == 0, err
    else:
        paths = [str(folder), str(Path(honestdp.__file__).parents[1])]
        env = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": ":".join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-W", "ignore", str(folder / "run.py")]
        out = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    done: list[Any] = json.loads(out)
    return done


@pytest.mark.slow
def test_every_kind_of_held_value_is_seen_and_is_the_same_in_another_process(tmp_path: Path) -> None:
    def found(value: int, seed: int) -> list[Any]:
        made = [f"lambda: {text.replace('@', str(value))}" for text in HELD.values()]
        lines = KINDS + "from honestdp.identity.values import identity\nmade = ["
        lines += ", ".join(made) + "]\nones = [identity(types.SimpleNamespace(held=one())) for one in made]\n"
        return in_a_process(tmp_path, lines + "found = [[one.whole, one.unseen] for one in ones]", seed)

    first, again, other = found(2, 0), found(2, 1), found(3, 0)
    for kind, one, same, changed in zip(HELD, first, again, other, strict=True):
        assert one == same, kind
        assert one[0] != changed[0], kind
        assert one[1] == [], kind


USES = {
    "imported when called": "def made(x):\n    from helper import f\n    return f(x)",
    "module imported when called": "def made(x):\n    import pkg.sub\n    return pkg.sub.f(x)",
    "submodule imported when called": "def made(x):\n    from pkg import sub\n    return sub.f(x)",
    "submodule": "import pkg.sub\ndef made(x):\n    return pkg.sub.f(x)",
    "module in an attribute": "import helper, types\nmade = types.SimpleNamespace(ops=helper)",
    "module behind a module": "import between\ndef made(x):\n    return between.helper.f(x)",
    "module of the name of a standard one": "import colorsys\ndef made(x):\n    return colorsys.f(x)",
    "function of such a module": "from colorsys import f as made",
}


@pytest.mark.slow
@pytest.mark.parametrize("use", USES)
def test_a_changed_file_behind_the_code_is_seen(use: str, tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").touch()
    (tmp_path / "between.py").write_text("import helper\n")
    found = []
    for factor in (2, 2, 3):
        for name in ("helper", "pkg/sub", "colorsys"):
            (tmp_path / f"{name}.py").write_text(f"def f(x):\n    return x * {factor}\n")
        lines = (
            USES[use] + "\nfrom honestdp.identity.values import identity\none, again = identity(made), identity(made)\n"
        )
        found.append(in_a_process(tmp_path, lines + "found = [one.whole, again.whole, one.unseen]"))
    assert found[0] == found[1]
    assert found[0][0] == found[0][1] != found[2][0]
    assert found[0][2] == []


def test_a_package_without_a_version_of_its_own_counts_by_that_of_its_distribution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import pluggy

    monkeypatch.setattr(pluggy, "__version__", "")
    before = identity(pluggy.PluginManager)
    monkeypatch.setattr("honestdp.identity.values._distributed", lambda top: "another")
    assert before.unseen == ()
    assert identity(pluggy.PluginManager) != before


def test_bytes_and_arrays_within_objects_of_packages_are_not_read_before_the_charge() -> None:
    for one, other in ((b"ab", b"cd"), (np.zeros(2), np.ones(2)), (bytearray(2), bytearray(b"ab"))):
        held, another = SimpleNamespace(data=[one]), SimpleNamespace(data=[other])
        assert identity(held) == identity(another)
        assert identity(held, values=True) != identity(another, values=True)


GLOBAL = torch.tensor(1.0)


class Scaled(nn.Module):
    def __init__(self, attribute: float = 1.0, buffer: float = 1.0) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(3, 2), torch.tensor(attribute)
        self.register_buffer("hidden", torch.tensor(buffer), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * self.scale * GLOBAL * self.hidden


@pytest.mark.slow
def test_other_numbers_in_a_module_are_refused_but_its_weights_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = Stopped(tmp_path, model=Scaled())
    refusal = "resume must be a search with the same numbers in its code"
    search.refuses(refusal, model=Scaled(attribute=2.0))
    search.refuses(refusal, model=Scaled(buffer=2.0))
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules[__name__], "GLOBAL", torch.tensor(2.0))
        search.refuses(refusal, model=Scaled())
    search.resume(model=Scaled())


def test_the_code_of_a_dataset_within_a_dataset_is_compared() -> None:
    one, other = Decoded(lambda x: x), Decoded(lambda x: x * 2)
    for around in (lambda data: Subset(data, [0]), lambda data: ConcatDataset([data])):
        assert identity(*PrivateData(around(one)).decoders()) == identity(
            *PrivateData(around(Decoded(one.transform))).decoders()
        )
        assert identity(*PrivateData(around(one)).decoders()) != identity(*PrivateData(around(other)).decoders())


def test_things_that_hold_each_other_come_to_an_end() -> None:
    class Node:
        def __init__(self) -> None:
            self.other: Any = self

    assert identity(Node()) == identity(Node())


def test_a_partial_is_the_same_after_it_was_called() -> None:
    """C keeps an address in it that changes with the first call: what runs is the same."""
    loss = functools.partial(nn.functional.cross_entropy, reduction="none")
    before = identity(loss, values=True)
    loss(torch.zeros(2, 2), torch.zeros(2, dtype=torch.long))
    assert identity(loss, values=True) == before
    assert identity(functools.partial(nn.functional.cross_entropy, reduction="sum"), values=True) != before


# ---- Globals: what the code writes is no code, and a switch is named

CALLS, SHAPES, PLACES, SWITCH = 0, Counter[Any](), dict[int, torch.Tensor](), {"scale": 1.0}
NESTED, SEEN, STATE = {"calls": {"n": 0}}, defaultdict[int, list[int]](list), SimpleNamespace(calls=0)


class Counting(torch.nn.Linear):
    """It counts its calls, and keeps positions by their number."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        global CALLS
        CALLS += 1
        SHAPES[x.shape] += 1
        NESTED["calls"]["n"] += 1
        STATE.calls += 1
        SEEN[len(x)].append(1)
        if x.shape[1] not in PLACES:
            PLACES[x.shape[1]] = torch.arange(x.shape[1])
        return super().forward(x + 0 * PLACES[x.shape[1]]) * SWITCH["scale"]


def test_a_model_that_counts_is_searched_and_a_training_of_it_is_resumed(tmp_path: Path) -> None:
    x, y = torch.randn(60, 3), torch.randint(0, 2, (60,))
    how: dict[str, Any] = {"records": 60, "lot": 10, "steps": 3, "budget": honestdp.Budget(3.0, 1e-5)}
    honestdp.tune(Counting(3, 2), (x, y), optimizer=SGD(lr=0.1, clip=1.0), **how)
    run, given = honestdp.Run(records=60, lot=10, steps=3, noise=1.0), {"optimizer": SGD(lr=0.1, clip=1.0)}
    model, place = Counting(3, 2), honestdp.Compute(checkpoint=tmp_path / "kept")
    first = honestdp.train(model, (x, y), run=run, compute=place, **given)
    again = honestdp.train(model, (x, y), run=run, compute=place, **given)
    assert torch.equal(first.model.weight, again.model.weight)
    assert CALLS > 10


class CountingItself(torch.nn.Linear):
    """It counts in its class, in itself, in a default and by a method of another object, none of which is a global by name."""

    of_all = 0

    def __init__(self) -> None:
        super().__init__(3, 2)
        self.own = 0

    def forward(self, x: torch.Tensor, counts: dict[int, int] = {}) -> torch.Tensor:  # noqa: B006
        type(self).of_all += 1
        self.own += 1
        counts[len(x)] = counts.get(len(x), 0) + 1
        return super().forward(x)


def test_a_model_that_counts_in_itself_is_searched_since_its_code_is_read_before_it_is_called() -> None:
    x, y = torch.randn(60, 3), torch.randint(0, 2, (60,))
    how: dict[str, Any] = {"records": 60, "lot": 10, "steps": 3, "budget": honestdp.Budget(3.0, 1e-5)}
    honestdp.tune(CountingItself, (x, y), optimizer=SGD(lr=0.1, clip=1.0), **how)
    assert CountingItself.of_all > 10


def test_a_switch_that_was_changed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = torch.randn(60, 3), torch.randint(0, 2, (60,))
    run, given = honestdp.Run(records=60, lot=10, steps=3, noise=1.0), {"optimizer": SGD(lr=0.1, clip=1.0)}
    model, place = Counting(3, 2), honestdp.Compute(checkpoint=tmp_path / "kept")
    honestdp.train(model, (x, y), run=run, compute=place, **given)
    monkeypatch.setitem(SWITCH, "scale", 2.0)
    with pytest.raises(InvalidArgument, match="differs in the global 'SWITCH' of the model's code"):
        honestdp.train(model, (x, y), run=run, compute=place, **given)


def test_no_address_of_an_object_is_in_a_message() -> None:
    for value in (object(), [object()], lambda: 0, torch.nn.Linear(2, 2), torch.zeros(3, 3), Unkept()):
        message = str(InvalidArgument("argument", value, "another"))
        assert " at 0x" not in message
        assert "\n" not in message
    assert str(InvalidArgument("lr", [0.1, "a"], "another")) == "lr must be another, got [0.1, 'a']"
