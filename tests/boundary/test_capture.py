"""The lines that only a GPU reaches, with a CPU standing in for it: what is replayed, and shorter products."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from honestdp import optimizers as rules
from honestdp.boundary import capture, clipping
from honestdp.boundary import mechanism as module
from honestdp.boundary.capture import UNROLL, Captured, NotCapturable, Step
from honestdp.boundary.query import Query
from honestdp.boundary.records import Examples
from honestdp.boundary.release import PIECE, release
from honestdp.boundary.sampling import Lots
from honestdp.boundary.vetted import Vetted
from honestdp.gradients import Prepared, Untouched
from honestdp.gradients.forms import SHORT
from honestdp.gradients.layout import layout_of
from tests.toy_training import constants_of, intake_of, population_of, second_question, toy_data, toy_model

STEPS = 52  # six groups of UNROLL and four more, which no captured shape fits


class Traced(Captured):
    """A captured graph without a GPU: the same buffers, and the same steps over them at every replay."""

    def __init__(
        self, step: Step, rule: rules.Rule, params: Tensor, state: dict[str, Tensor], *, width: int, generators: object
    ) -> None:
        self._step, self.rule = step, rule
        self.params, self.state = params.clone(), {name: value.clone() for name, value in state.items()}
        # What an earlier replay left behind must not matter, so the buffers begin with members of other lots.
        self._indices = torch.full((UNROLL, len(params), width), 7)
        self._counts = torch.full((UNROLL, len(params)), width)
        self._graph = SimpleNamespace(replay=lambda: self._load(*self._steps()))


def trained(rule: rules.Rule, *, width: int | None, seen: list[tuple[Tensor, Tensor]] | None = None) -> Tensor:
    """Two runs over lots of 20 of 60 on average. width: of the captured shape, None for every step run eagerly."""
    given = {"lot": 20.0, "steps": STEPS, "noise": [0.5, 0.8], "seed": 5}
    population, mechanism = population_of([toy_model(seed=1), toy_model(seed=2)], toy_data(), [rule] * 2, **given)
    if width is not None:
        mechanism._capturable, mechanism._width = True, width
    true = mechanism._replayed

    def replayed(params: Tensor, state: dict[str, Tensor], lots: Lots, first: int) -> tuple[Tensor, dict[str, Tensor]]:
        if seen is not None:
            seen.append((lots.indices[first : first + UNROLL], lots.counts[first : first + UNROLL]))
        return true(params, state, lots, first)

    mechanism._replayed = replayed  # type: ignore[method-assign]
    while population.step < population.total:
        population.block()
    return population.weights()


RULES = [rules.SGD(lr=0.5, clip=1.0), rules.OSO(lr=0.5), rules.Horizon(average=True), rules.Echo()]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("width", [10, 27, 60, 64])
def test_no_lot_is_cut_to_the_captured_shape(rule: rules.Rule, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights as if every step had been run eagerly, whether no lot fits the shape, some do, or all."""
    monkeypatch.setattr(module, "Captured", Traced)
    seen: list[tuple[Tensor, Tensor]] = []
    found = trained(rule, width=width, seen=seen)
    assert all(len(counts) == UNROLL and counts.max() <= width for _, counts in seen)
    assert len(seen) == 0 if width == 10 else 0 < len(seen) <= 6
    assert width != 27 or len(seen) < 6
    assert width < 60 or len(seen) == 6
    torch.testing.assert_close(found, trained(rule, width=None), rtol=1e-9, atol=1e-12)


def test_a_lot_as_long_as_the_shape_fits_and_one_longer_does_not() -> None:
    _, mechanism = population_of([toy_model()], toy_data(), RULES[:1], lot=20.0, steps=8, noise=[1.0])
    mechanism._capturable, mechanism._width = True, 20

    def fits(longest: list[int]) -> bool:
        return mechanism._fits(Lots(torch.empty(0), torch.empty(0), longest), range(len(longest)))

    assert fits([20] * UNROLL)
    assert not fits([20] * (UNROLL - 1) + [21])
    assert not fits([21] + [1] * (UNROLL - 1))
    assert not fits([20] * (UNROLL - 1))
    mechanism._capturable = False
    assert not fits([20] * UNROLL)


def test_weights_that_were_returned_are_not_written_to_by_later_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Captured", Traced)
    rule = rules.OSO(lr=0.5)
    population, mechanism = population_of([toy_model()], toy_data(), [rule], lot=20.0, steps=200, noise=[1.0])
    mechanism._capturable, mechanism._width, mechanism._block = True, 60, 8
    population.block()
    snapshot = population.snapshot()
    params, state = snapshot.params.clone(), {name: value.clone() for name, value in snapshot.state.items()}
    population.block()
    population.block()
    assert snapshot.params.equal(params)
    assert all(snapshot.state[name].equal(value) for name, value in state.items())
    assert not population.params.equal(params)


class OnGpu(Tensor):
    """A tensor that says it is on a GPU."""

    is_cuda = True


class Asked(Vetted):
    """Gradients of known norms; it notes the weights they get and the precision they would be summed with."""

    def __init__(self, norms: Tensor) -> None:
        model = toy_model()
        super().__init__(Prepared(model, None), model, layout_of(model))
        object.__setattr__(self, "untouched", Untouched(model))
        notes: list[tuple[Tensor, str]] = []

        def add(totals: object, weights: Tensor) -> None:
            notes.append((weights.clone(), torch.get_float32_matmul_precision()))

        answer = SimpleNamespace(norms=norms, add_weighted_sum=add)
        self.__dict__.update(notes=notes, gradients=lambda *_, **__: answer)


@pytest.mark.parametrize("extra", [None, "direction"])
@pytest.mark.parametrize("automatic", [False, True])
def test_weights_are_smaller_where_products_are_shorter(extra: str | None, automatic: bool) -> None:
    """TensorFloat-32 enlarges a product by (1 + 2^-11)^2 at most; a record's part must stay within the clip."""
    assert (1 - SHORT) * (1 + 2.0**-11) ** 2 <= 1
    intake = intake_of(toy_model(), toy_data())
    constants = constants_of(intake, records=60, lot=10.0, steps=1, noise=[1.0])
    norms = torch.tensor([[0.25, 2.0, 8.0]], dtype=torch.float64)
    lot = Examples(torch.zeros(1, 3, 5), torch.zeros(1, 3), torch.ones(1, 3, dtype=torch.float64))
    one = torch.ones(1, dtype=torch.float64)
    query = Query(clip=one, automatic=automatic, second=second_question(extra, 7 * one))
    source = SimpleNamespace(normal=lambda shape: torch.zeros(shape, dtype=torch.float64))
    found = {}
    for kind in (Tensor, OnGpu):
        params = torch.zeros(1, intake.layout.width, dtype=torch.float64).as_subclass(kind)
        asked = Asked(norms)
        release([lot], params, query, vetted=asked, constants=constants, noise=source)
        found[kind] = asked.notes
    assert len(found[Tensor]) == len(found[OnGpu]) == (1 if extra is None else 2)
    for (long, precision), (short, coarse) in zip(found[Tensor], found[OnGpu], strict=True):
        assert (precision, coarse) == ("highest", "high")
        assert (long * 10.0 * norms).max() <= 1.0
        assert (short * 10.0 * norms * (1 + 2.0**-11) ** 2).max() <= 1.0
        eps = torch.finfo(torch.float64).eps
        held = [1 - (sums * PIECE**2 + 512) * eps for sums in (1, 2)]
        torch.testing.assert_close(short, long * (held[1] - SHORT) / held[0], rtol=1e-12, atol=0)
    assert torch.get_float32_matmul_precision() == "highest"


def test_a_rehearsal_sets_back_what_a_model_draws_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """A training that is resumed captures, and so rehearses, once more than one that was not; both go on with the same draw."""
    noise, models = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)
    stream = SimpleNamespace(wait_stream=lambda other: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "default_generators", (None, models))
    graph = object.__new__(Captured)
    graph._generators, graph.params = [noise], SimpleNamespace(device=SimpleNamespace(index=1))  # type: ignore[assignment]
    graph._stream = stream  # type: ignore[assignment]
    made = []
    graph._steps = lambda: made.append([torch.rand(3, generator=one) for one in (noise, models)])  # type: ignore[method-assign, assignment]
    graph._rehearse()
    graph._rehearse()
    graph._steps()
    assert all(torch.equal(*pair) for pair in zip(made[0], made[2], strict=True))
    assert not torch.equal(made[0][0], made[0][1])


def test_a_model_that_needs_the_host_is_trained_without_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(Traced):
        def __init__(self, *args: object, **named: object) -> None:
            raise NotCapturable("a number was read")

    without = trained(RULES[0], width=None)
    monkeypatch.setattr(module, "Captured", Refused)
    assert torch.equal(trained(RULES[0], width=60), without)


@pytest.mark.parametrize(("capturing", "mode", "looks"), [(False, 0, True), (True, 0, False), (False, 2, False)])
def test_a_second_question_makes_no_host_wait_where_steps_are_captured_or_rehearsed(
    monkeypatch: pytest.MonkeyPatch, capturing: bool, mode: int, looks: bool
) -> None:
    """It did in the rehearsal, so that rules with one ran step by step on a GPU, ten times slower."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: mode)
    assert clipping._may_look(SimpleNamespace(is_cuda=True)) is looks  # type: ignore[arg-type]
    assert clipping._may_look(torch.zeros(1))


class Owner:
    """A graph of which nothing is known but that it lives; like a captured one it is part of a cycle."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What was done with a made-up device: streams that were made, of which every second is an old one, and waits."""
    notes: list[str] = []

    def new(device: object) -> str:
        notes.append("made")
        return f"stream {notes.count('made') // 2}"

    monkeypatch.setattr(capture, "_streams", {})
    monkeypatch.setattr(capture, "_new_stream", new)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: notes.append("waited"))
    gc.disable()  # cycles are collected where it is asked for
    yield notes
    gc.enable()


@pytest.mark.slow
def test_no_two_living_graphs_were_captured_on_one_stream(streams: list[str]) -> None:
    """torch frees the workspace of a stream with the first graph of it that ends, and the other would write into it still."""
    owners = [Owner() for _ in range(5)]
    lent = [capture._side_stream("device", one) for one in owners]  # type: ignore[arg-type]
    assert len(set(lent)) == 5


def test_a_stream_is_lent_again_once_its_graph_is_over_and_graphs_that_are_over_end_before_the_next_capture(
    streams: list[str],
) -> None:
    first = Owner()
    ended = weakref.ref(first)
    stream = capture._side_stream("device", first)  # type: ignore[arg-type]
    made = streams.count("made")
    assert streams == ["made"] * made
    del first
    assert ended() is not None  # a cycle
    last = Owner()
    assert capture._side_stream("device", last) == stream  # type: ignore[arg-type]
    assert ended() is None
    assert streams == ["made"] * made + ["waited"]  # none ends while it runs
    assert capture._side_stream("device", Owner()) != stream  # type: ignore[arg-type]
