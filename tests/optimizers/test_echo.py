"""Echo: noise of its steps moves an output by what the model bears; what it measures is of no record; what it asks is said."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import honestdp
from honestdp import optimizers as rules
from honestdp.boundary.intake import Intake
from honestdp.boundary.mechanism import Mechanism
from honestdp.boundary.query import Constants, Release
from honestdp.boundary.ranks import Ranks
from honestdp.gradients.layout import Layout, layout_of, stack
from honestdp.losses import cross_entropy
from honestdp.losses.class_weights import ClassWeighted
from honestdp.optimizers import echo as measuring
from honestdp.optimizers.default import classes_at
from honestdp.optimizers.echo import LOG_NORMS, SHAKES, _reach, allowed, borne, chain, echoes, made_up, try_once
from honestdp.training import loop
from tests.tiny_search import clouds, linear
from tests.toy_training import CPU, constants_of, intake_of, toy_data, toy_model

UNITS: tuple[type[nn.Module], ...] = (nn.ReLU, nn.Tanh)
RUN = honestdp.Run(records=400, lot=40, steps=3, noise=1.0)


def measured(model: nn.Module, blank: Tensor) -> Tensor:
    """ln s for each of LOG_NORMS."""
    layout, rows = laid_out(model, blank)
    return allowed(echoes(model, layout, rows, blank))[0]


def raw_table(model: nn.Module, blank: Tensor) -> Tensor:
    """`[norms, shakes]`: how far an output moves, whatever it may."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "borne", lambda table, outputs: table)
        return echoes(model, *laid_out(model, blank), blank)[0]


def laid_out(model: nn.Module, blank: Tensor, align: int = 1) -> tuple[Layout, Tensor]:
    entering = blank[0].numel() if blank.is_floating_point() else 0
    layout = replace(layout_of(model), entering=entering, align=align)
    return layout, stack([model], layout, CPU)


def heard_by(intake: Intake, rows: Tensor) -> Tensor:
    """The table of a training on these records, as `training.loop` has it made."""
    vetted = intake.vetted
    return echoes(vetted.model, intake.layout, rows, intake.blank(), classes_at(vetted.loss))


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    """A function, so that no weight is drawn before the seed is set."""
    torch.manual_seed(0)
    return make()


def test_what_is_asked_beside_the_gradient_is_stated_and_costs_no_more_than_the_steps() -> None:
    stated = {
        name: honestdp.train(linear(), clouds(), run=RUN, optimizer=name, delta=1e-5) for name in ("echo", "horizon")
    }
    said = "echo: beside its gradient every step releases the mean logarithm of the norms of its lot's inputs"
    assert any(said in note for note in stated["echo"].statement.notes)
    assert stated["echo"].epsilon == stated["horizon"].epsilon


def test_noise_of_the_step_that_is_taken_moves_an_output_of_a_network_by_two() -> None:
    """By hand: 200 noises of that deviation in a network that the rule knows nothing of but its outputs."""
    model = seeded(lambda: nn.Sequential(nn.Linear(30, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 4)))
    blank = torch.zeros(2, 30)
    for log_norm in (1.0, 3.5):
        deviation = measured(model, blank)[LOG_NORMS.index(log_norm)].exp()
        x = torch.randn(100, 30)
        x = x / x.norm(dim=1, keepdim=True) * math.sqrt(math.expm1(2 * log_norm))
        squares = []
        for _ in range(200):
            noisy = {name: p + deviation * torch.randn_like(p) for name, p in model.named_parameters()}
            moved = torch.func.functional_call(model, noisy, (x,)) - model(x)
            squares.append(moved.var(1).mean().item())
        assert math.sqrt(sum(squares) / 200) == pytest.approx(2, rel=0.35)


def test_where_noise_saturates_it_may_move_less() -> None:
    """Units of tanh behind large records are stuck by noise that moves the outputs no further."""
    wide = {
        unit: seeded(lambda unit=unit: nn.Sequential(nn.Linear(400, 20), unit(), nn.Linear(20, 4))) for unit in UNITS
    }
    tables = {unit: raw_table(model, torch.zeros(2, 400)) for unit, model in wide.items()}
    bears = {unit: (table / borne(table, 4))[:, 0] for unit, table in tables.items()}
    large = LOG_NORMS.index(3.5)
    assert bears[nn.ReLU][large] == 2
    assert bears[nn.Tanh][large] < 1
    assert bears[nn.Tanh][0] > bears[nn.Tanh][large]  # small ones do not saturate it


def test_what_a_network_bears_follows_from_what_twice_the_noise_does() -> None:
    shakes = torch.tensor(SHAKES, dtype=torch.float64)
    for power, bears in ((3.0, 2.0), (math.log2(2.5), 2.0), (math.log2(2.3), 1.5), (math.log2(2.1), 1.0), (0.5, 0.5)):
        table = (4 * shakes**power)[None]
        torch.testing.assert_close(table / borne(table, 10), torch.full_like(table, bears))
    late = torch.where(shakes < 0.5, shakes**3, 0.125 * (shakes / 0.5) ** 0.5)[None]  # moves by 1 nowhere in it
    torch.testing.assert_close(late / borne(late, 10), torch.full_like(late, 0.5))


def test_twice_the_noise_is_read_off_the_table_by_straight_lines_wherever_the_move_is_one() -> None:
    """At both ends too, and of draws that fall back what is largest so far; a network with one output is no exception."""
    drawn, places = torch.Generator().manual_seed(0), np.arange(len(SHAKES))
    steps = torch.rand(60, len(SHAKES), generator=drawn, dtype=torch.float64) * 1.2
    logs = torch.cat([steps, steps - 0.15]).cumsum(1)
    logs = torch.cat([logs - logs[:, :1] + 0.3, logs - logs[:, 4:5] - 0.2, logs - logs[:, -2:-1] - 0.1, logs - 30])
    wanted = []
    for row in logs.cummax(1).values.numpy():
        one = min(float(np.interp(0, row, places)), len(SHAKES) - 2)
        doubled = math.exp(np.interp(one + 1, places, row) - np.interp(one, places, row))
        wanted.append(min(2.0, max(0.5, 1 + (doubled - 2.1) / 0.4)))
    for outputs in (1, 10):
        found = (logs.exp() / borne(logs.exp(), outputs))[:, 0]
        torch.testing.assert_close(found, torch.tensor(wanted, dtype=torch.float64), rtol=1e-9, atol=1e-9)
    assert len({round(each, 6) for each in wanted}) > 100


def test_of_tables_that_do_not_move_or_leave_the_range_the_step_is_a_number() -> None:
    flat = torch.ones(1, len(SHAKES), dtype=torch.float64)
    for table in (0 * flat, flat, 1e-3 * flat, 1e30 * flat, torch.cat([0 * flat[:, 1:], 1e300 * flat[:, :1]], 1)):
        assert allowed(borne(table, 3)[None]).isfinite().all()


def test_the_steps_of_a_network_of_sixty_layers_are_numbers() -> None:
    """Noise grows in each of them beyond what float32 holds, and in a chain of hundreds beyond what float64 does."""
    for depth, width in ((60, 32), (300, 100)):
        layers = [each for _ in range(depth) for each in (nn.Linear(width, width), nn.ReLU())]
        model, blank = nn.Sequential(*layers, nn.Linear(width, 3)), torch.zeros(2, width)
        found = measured(model, blank) if depth < 100 else allowed(chain(laid_out(model, blank)[0])[None])
        assert found.isfinite().all()


def test_of_one_linear_layer_the_step_goes_as_far_as_half_a_gradient_over_the_norm() -> None:
    for classes, bears in ((10, math.log(11)), (2, math.log(3)), (1, 1.0)):
        model = seeded(partial(nn.Linear, 200, classes))
        found = measured(model, torch.zeros(2, 200)).exp()
        wanted = bears * torch.tensor(LOG_NORMS).neg().exp()
        near = 0.25 if classes > 2 else 0.5  # eight draws of noise are few where outputs are
        torch.testing.assert_close(found, wanted, rtol=near, atol=0)
        layout = replace(layout_of(model), entering=200)
        torch.testing.assert_close(allowed(chain(layout)[None])[0].exp(), wanted.double(), rtol=1e-3, atol=0)


def test_half_of_a_gradient_is_gone_where_a_class_is_so_far_ahead_as_a_linear_model_may_be_moved() -> None:
    for classes in (2, 4, 10):
        first, then = (
            torch.tensor([ahead] + [0.0] * (classes - 1)).softmax(0)[0] for ahead in (0.0, math.log(classes + 1))
        )
        assert (1 - then).item() == pytest.approx((1 - first).item() / 2)


def test_a_model_is_linear_by_its_answers_and_not_by_its_layers() -> None:
    class Halved(nn.Module):
        """One layer that is trained, between some that are not."""

        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(5, 8).requires_grad_(False), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.body(x).relu()) / 2

    def bends(make: Callable[[], nn.Module]) -> bool:
        table = raw_table(seeded(make), torch.zeros(2, 5))
        return not torch.equal(borne(table, 3), table / math.log(4))

    assert not bends(Halved)
    assert bends(lambda: nn.Sequential(nn.Linear(5, 8), nn.Linear(8, 3)))  # linear in records, and not in weights
    assert bends(lambda: nn.Sequential(nn.Linear(5, 3), nn.Tanh()))


def test_a_model_that_ends_in_a_single_number_is_trained_by_it() -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(1.0))

        def forward(self, x: Tensor) -> Tensor:
            return self.scale * x

    model = nn.Sequential(nn.Linear(5, 3), Scale())
    layout, start = laid_out(model, torch.zeros(2, 5))
    assert layout.shapes[-1] == ()
    constants = Constants(400, 40.0, 3, torch.ones(1), layout, torch.ones(3))
    assert rules.Echo().init(start, constants)["allowed"].isfinite().all()


def test_of_a_population_only_those_that_go_by_it_have_a_table_and_each_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where they are not the first: a run with another's table would take another's steps."""
    seen: list[Tensor] = []
    kept = rules.Echo.memory

    def memory(self: rules.Echo, params: Tensor, constants: Constants) -> Any:
        if constants.echo is not None:
            seen.append(constants.echo)
        return kept(self, params, constants)

    monkeypatch.setattr(rules.Echo, "memory", memory)
    model = linear()
    for names in (["horizon", "echo"], ["echo"]):
        honestdp.train_population(model, clouds(), run=RUN, optimizers=names, noise_seed=1)
    assert torch.equal(seen[0], seen[-1])


def test_whole_numbers_that_are_no_tokens_are_not_all_zero() -> None:
    class Counts(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.float())

    made = made_up(Counts(5, 3), torch.zeros(2, 5, dtype=torch.int64), 1.0)
    assert isinstance(made, Tensor)
    assert made.unique().tolist() == [0, 1]


def test_made_up_records_are_the_same_in_every_copy_of_a_run() -> None:
    """Whatever was drawn before: of two copies with other steps and the same noise anyone could subtract the noise."""
    words = nn.Sequential(nn.Embedding(7, 3), nn.Flatten(), nn.Linear(15, 3))
    for model, dtype in ((nn.Linear(5, 3), torch.float32), (nn.Linear(5, 3), torch.int64), (words, torch.int64)):
        copies = []
        for seed in (1, 2):
            torch.manual_seed(seed)
            copies.append(made_up(model, torch.zeros(2, 5, dtype=dtype), 1.0))
        assert torch.equal(*copies)


def test_runs_that_do_not_go_by_it_are_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[int] = []

    def table(*given: Any) -> Tensor:
        heard.append(len(given[2]))
        return echoes(*given)

    monkeypatch.setattr(loop, "echoes", table)
    honestdp.train_population(linear(), clouds(), run=RUN, optimizers=["horizon", "echo", "horizon"], noise_seed=1)
    honestdp.train_population(linear(), clouds(), run=RUN, optimizers=["horizon"], noise_seed=1)
    assert heard == [1]


def test_depth_makes_steps_smaller_and_a_normalisation_forgets_how_large_records_are() -> None:
    def deep(count: int) -> nn.Module:
        return nn.Sequential(*(part for _ in range(count) for part in (nn.Linear(50, 50), nn.ReLU())), nn.Linear(50, 5))

    shallow, deeper = (measured(seeded(partial(deep, count)), torch.zeros(2, 50)) for count in (1, 5))
    assert (deeper[:2] < shallow[:2]).all()  # of large records a deep network of torch's weights passes little on
    normed = seeded(lambda: nn.Sequential(nn.Linear(50, 20), nn.LayerNorm(20), nn.ReLU(), nn.Linear(20, 5)))
    found = measured(normed, torch.zeros(2, 50))
    assert found[1:].max() - found[1:].min() < math.log(1.5)
    assert shallow[1] - shallow[-1] > math.log(50)


def test_the_table_is_of_the_model_and_of_shapes_and_of_no_record() -> None:
    x, y = toy_data()
    model = toy_model()
    tables = [
        heard_by(intake, stack([model], intake.layout, CPU))
        for intake in (intake_of(model, (x, y)), intake_of(model, (1e3 * x + 7, y.flip(0))))
    ]
    assert torch.equal(*tables)


def test_no_record_is_read_for_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    intake = intake_of(toy_model(), toy_data())
    monkeypatch.setattr(type(intake._records), "fetch", lambda *_: pytest.fail("a record was read"))
    heard_by(intake, stack([toy_model()], intake.layout, CPU))


def test_dropout_is_off_while_noise_is_heard_and_on_again_when_records_come() -> None:
    model = nn.Sequential(nn.Linear(5, 4), nn.Dropout(0.5), nn.Linear(4, 3)).double()
    intake = intake_of(model, toy_data())
    rows = stack([model], intake.layout, CPU)
    heard = heard_by(intake, rows)
    assert all(part.training for part in intake.vetted.model.modules())
    model[1].p = 0.0
    assert torch.equal(heard, heard_by(intake_of(model, toy_data()), rows))


def test_what_moves_the_outputs_of_all_classes_alike_counts_for_nothing() -> None:
    class Shifted(nn.Linear):
        def __init__(self) -> None:
            super().__init__(5, 3)
            self.common = nn.Parameter(torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + 1000 * self.common

    shifted, plain = (measured(seeded(make), torch.zeros(2, 5)) for make in (Shifted, lambda: nn.Linear(5, 3)))
    torch.testing.assert_close(shifted, plain, rtol=0, atol=0.3)


def test_a_layout_with_gaps_hears_the_same() -> None:
    model, blank = toy_model(), torch.zeros(2, 5, dtype=torch.float64)
    plain, gapped = (echoes(model, *laid_out(model, blank, align), blank) for align in (1, 4))
    torch.testing.assert_close(gapped, plain)


def test_runs_of_a_population_are_heard_each_by_its_own_weights() -> None:
    models = [toy_model(seed=1), toy_model(seed=2), toy_model(seed=1)]
    for value in models[1].parameters():
        value.data *= 5
    intake = intake_of(models[0], toy_data())
    heard = heard_by(intake, stack(models, intake.layout, CPU))
    assert torch.equal(heard[0], heard[2])
    assert (allowed(heard)[1] < allowed(heard)[0])[:2].all()


def test_all_weights_move_by_one_step_size() -> None:
    model = toy_model()
    intake = intake_of(model, toy_data())
    constants = constants_of(intake, records=60, lot=20.0, steps=100, noise=[2.0])
    start = stack([model], intake.layout, CPU)
    constants = replace(constants, echo=heard_by(intake, start))
    rule = rules.Echo()
    state = rule.init(start, constants)
    assert constants.echo is not None
    assert torch.equal(state["allowed"], allowed(constants.echo))  # and not by the chain
    size = torch.tensor([3.5e6], dtype=torch.float64)  # a million releases that said 3.5
    eta = rule._eta(size, torch.tensor([10**6]), state, constants)
    assert eta.shape == (1, 1)
    wanted = math.sqrt(2) * state["allowed"][0, LOG_NORMS.index(3.5)].exp().item() / math.hypot(2.0 * 10 / 20, 1 / 50)
    assert eta.item() == pytest.approx(wanted, rel=1e-3)


def test_no_step_is_longer_than_the_weights_are_and_one_matrix_knows_no_such_bound() -> None:
    for model, matrices in ((toy_model(), 2), (nn.Linear(5, 3).double(), 0)):
        intake = intake_of(model, toy_data())
        constants = constants_of(intake, records=60, lot=20.0, steps=4, noise=[1e-3, 1e-3])
        starts = torch.cat([stack([model], intake.layout, CPU), torch.zeros_like(stack([model], intake.layout, CPU))])
        state = (rule := rules.Echo()).init(starts, constants)
        eta = rule.pace(state, constants)[:, 0]
        if not matrices:
            assert state["reach"].isinf().all()
            continue
        torch.testing.assert_close(eta, 2 / matrices * starts.norm(dim=1).clamp(min=1), rtol=1e-6, atol=0)
        params, _ = rule.move(starts, state, Release(torch.ones_like(starts)), constants)
        torch.testing.assert_close(starts - params, eta[:, None].expand_as(params), rtol=1e-6, atol=1e-9)


def test_how_long_a_step_may_be_is_rounded_once_in_whatever_company_the_run_is() -> None:
    """Were it another in another copy of a run, the same lots and noise would come to other weights."""
    model = nn.Sequential(nn.Linear(300, 100), nn.Linear(100, 3))
    constants = constants_of(intake_of(toy_model(), toy_data()), records=60, lot=20.0, steps=4, noise=[1.0])
    constants = replace(constants, layout=layout_of(model))
    starts = torch.randn(200, layout_of(model).width, generator=torch.Generator().manual_seed(3))
    found = _reach(starts, constants)
    assert torch.equal(found, torch.stack([row.double().square().sum().sqrt() for row in starts]).float())
    assert all(torch.equal(_reach(starts[n : n + 1], constants), found[n : n + 1]) for n in range(10))


def test_training_goes_by_the_measured_table_and_not_by_the_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []
    kept = rules.Echo.memory

    def memory(self: rules.Echo, params: Tensor, constants: honestdp.boundary.query.Constants) -> rules.State:
        seen.extend([] if constants.echo is None else [constants.echo])
        return kept(self, params, constants)

    monkeypatch.setattr(rules.Echo, "memory", memory)
    honestdp.train_population(linear(), clouds(), run=RUN, optimizers=["echo", "echo"], noise_seed=1)
    assert seen[-1].shape == (2, len(LOG_NORMS), len(SHAKES))


def test_runs_go_by_the_weights_they_start_from_in_any_chunk_halved_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the table of other weights a resumed run would take other steps with the same noise."""
    heard: list[tuple[Tensor, Tensor]] = []
    kept, eager, made = rules.Echo.memory, Mechanism._eager, [0]

    def memory(self: rules.Echo, params: Tensor, constants: Constants) -> rules.State:
        if constants.echo is not None:
            wanted = echoes(toy_model(), constants.layout, params, torch.zeros(2, 5, dtype=torch.float64))
            heard.append((constants.echo, wanted))
        return kept(self, params, constants)

    def limited(self: Mechanism, *args: Any) -> Any:
        made[0] += 1
        if self._runs > 2:
            raise torch.OutOfMemoryError
        if made[0] == 6:
            raise KeyboardInterrupt
        return eager(self, *args)

    monkeypatch.setattr(rules.Echo, "memory", memory)
    monkeypatch.setattr(Mechanism, "_eager", limited)

    def go(first: int) -> None:
        models = [scaled(1 + number, seed=first + number) for number in range(5)]
        run = honestdp.Run(records=60, lot=10, steps=3, noise=1.0)
        optimizers = ["echo", rules.SGD(lr=0.1, clip=1.0), "echo", "echo", "echo"]
        compute = honestdp.Compute(checkpoint=tmp_path / "kept", workers=0)
        honestdp.train_population(models, toy_data(), run=run, optimizers=optimizers, noise_seed=1, compute=compute)

    with pytest.raises(KeyboardInterrupt):
        go(0)
    go(10)  # in a process that has drawn other ones, of which none is trained
    assert [len(table) for table, _ in heard] == [4, 2, 2, 2]
    for table, wanted in heard:
        assert torch.equal(table, wanted)
    assert not torch.equal(heard[1][0], heard[2][0])


def scaled(by: float, *, seed: int) -> nn.Module:
    model = toy_model(seed=seed)
    for value in model.parameters():
        value.data *= by
    return model


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(7, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.table(x).mean(1))  # type: ignore[no-any-return]


def test_tokens_are_words_that_the_model_knows_and_nothing_is_asked_of_them() -> None:
    x = made_up(Words(), torch.zeros(2, 5, dtype=torch.int64), 1.0)
    assert isinstance(x, Tensor)
    assert x.min() >= 1
    assert x.max() <= 6
    assert len(x.unique()) > 3
    data = torch.randint(0, 7, (60, 5)), torch.randint(0, 3, (60,))
    run = honestdp.Run(records=60, lot=20, steps=3, noise=2.0)
    moved = honestdp.train(Words(), data, run=run, optimizer="echo", delta=1e-3).model
    assert all(value.isfinite().all() for value in moved.parameters())


def test_a_model_that_takes_no_made_up_inputs_is_a_chain_of_its_layers() -> None:
    class Picky(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * (math.nan if bool(x.any()) else 1.0)

    model, blank = Picky(5, 3), torch.zeros(2, 5)
    layout, rows = laid_out(model, blank)
    torch.testing.assert_close(echoes(model, layout, rows, blank)[0], chain(layout).float())


class Drawing(nn.Linear):
    """What it draws it draws in eval() mode too."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 100 * torch.randn(len(x), self.out_features)


def test_what_a_model_draws_is_the_same_in_every_copy_of_a_run_and_no_part_of_what_noise_does() -> None:
    """Else two copies of a search would take other steps with the same noise, whose difference is that of two bare sums."""
    torch.manual_seed(0)
    model, blank = Drawing(5, 3), torch.zeros(2, 5)
    plain = nn.Linear(5, 3)
    plain.load_state_dict(model.state_dict())
    layout, rows = laid_out(model, blank)
    tables = []
    for seed, given in ((1, rows), (2, torch.cat([2 * rows, rows]))):  # the second time behind another run's
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        tables.append(echoes(model, layout, given, blank)[-1])
        assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(*tables)
    torch.testing.assert_close(tables[0], echoes(plain, layout, rows, blank)[0], rtol=1e-2, atol=1e-4)


def test_a_lack_of_memory_gives_no_other_table() -> None:
    """What is free differs between two copies of a search, whose results have to be one."""

    class Hungry(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            raise torch.OutOfMemoryError

    model, blank = Hungry(5, 3), torch.zeros(2, 5)
    with pytest.raises(torch.OutOfMemoryError):
        echoes(model, *laid_out(model, blank), blank)


@pytest.mark.parametrize("words", [None, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"])
def test_nor_does_one_of_which_torch_makes_a_plain_error(words: str | None) -> None:
    """On a CPU it is no OutOfMemoryError, and a chain in its place would be another table than where there is room."""

    class Hungry(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            if words is not None:
                raise RuntimeError(words)
            return torch.empty(2**56)

    model, blank = Hungry(5, 3), torch.zeros(2, 5)
    for hear in (echoes, lambda model, layout, rows, blank: try_once(model, layout, rows[0], blank)):
        with pytest.raises(MemoryError):
            hear(model, *laid_out(model, blank), blank)


def test_a_table_of_any_numbers_gives_steps_that_are_finite() -> None:
    shape = (1, len(LOG_NORMS), len(SHAKES))
    for table in (torch.zeros(shape), torch.full(shape, 1e30), torch.rand(shape), torch.full(shape, 1.0)):
        found = allowed(table)
        assert found.isfinite().all()
        assert (found <= math.log(SHAKES[-1]) + 1e-6).all()


class Placed(nn.Module):
    """Classes at each of four places: along the second dimension, or along the last."""

    def __init__(self, last: bool) -> None:
        super().__init__()
        self.hidden, self.head, self.last = nn.Linear(5, 6), nn.Linear(6, 12), last

    def forward(self, x: Tensor) -> Tensor:
        found = self.head(self.hidden(x).relu()).unflatten(1, (3, 4))
        return found.transpose(1, 2) if self.last else found


def test_classes_are_where_the_loss_looks_for_them() -> None:
    blank, tables = torch.zeros(2, 5), []
    for last, at in ((False, 1), (True, -1), (False, -1)):
        model = seeded(partial(Placed, last))
        tables.append(echoes(model, *laid_out(model, blank), blank, at))
    torch.testing.assert_close(tables[0], tables[1])
    assert not torch.allclose(tables[0], tables[2], rtol=1e-2)
    assert classes_at(cross_entropy) == classes_at(ClassWeighted((1.0, 2.0))) == 1
    assert classes_at(nn.BCEWithLogitsLoss(reduction="none")) is None
    assert classes_at(nn.MSELoss(reduction="none")) == -1


def test_the_loss_that_is_trained_with_says_where_classes_are(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int | None] = []

    def heard(*given: Any) -> Tensor:
        asked.append(given[4])
        return echoes(*given)

    monkeypatch.setattr(loop, "echoes", heard)
    x, y = clouds()
    for loss, labels in ((None, y), (nn.BCEWithLogitsLoss(reduction="none"), y.astype("float32"))):
        model = nn.Sequential(nn.Linear(3, 1), nn.Flatten(0)) if loss else linear()
        honestdp.train_population(model, (x, labels), run=RUN, optimizers=["echo"], loss=loss, noise_seed=1)
    assert asked == [1, None]


def test_where_every_output_is_a_question_what_moves_all_alike_counts() -> None:
    class Common(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Linear(5, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.weight(x).expand(-1, 3)  # type: ignore[no-any-return]

    blank, model = torch.zeros(2, 5), seeded(Common)
    one = seeded(lambda: nn.Sequential(nn.Linear(5, 1)))
    alone = echoes(one, *laid_out(one, blank), blank, None)
    torch.testing.assert_close(echoes(model, *laid_out(model, blank), blank, None), alone)
    torch.testing.assert_close(
        echoes(model, *laid_out(model, blank), blank)[0], chain(laid_out(model, blank)[0]).float()
    )


def test_of_outputs_by_name_the_logits_are_heard() -> None:
    class ByName(nn.Linear):
        def forward(self, x: Tensor) -> Any:
            found = super().forward(x)
            return {"loss": found.sum(), "logits": found}

    blank = torch.zeros(2, 5)
    named, plain = (seeded(partial(make, 5, 3)) for make in (ByName, nn.Linear))
    assert torch.equal(*(echoes(model, *laid_out(model, blank), blank) for model in (named, plain)))


def test_made_up_inputs_that_cannot_be_made_stop_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is after the charge: whatever goes wrong, the model is a chain of its layers."""
    model, blank = nn.Linear(5, 3), torch.zeros(2, 5)

    def fails(*_: object) -> None:
        raise RuntimeError("inputs of a kind that nobody thought of")

    monkeypatch.setattr(measuring, "made_up", fails)
    layout, rows = laid_out(model, blank)
    torch.testing.assert_close(echoes(model, layout, rows, blank)[0], chain(layout).float())


def test_the_first_rank_hears_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """On another machine the last digits may be others, and the ranks' weights would part."""
    depth = [0]
    first, inner = Ranks.first, list[int]()

    def inside(self: Ranks, act: Callable[[], Any]) -> Any:
        depth[0] += 1
        try:
            return first(self, act)
        finally:
            depth[0] -= 1

    def heard(*given: Any) -> Tensor:
        inner.append(depth[0])
        return echoes(*given)

    monkeypatch.setattr(Ranks, "first", inside)
    monkeypatch.setattr(loop, "echoes", heard)
    honestdp.train(linear(), clouds(), run=RUN, optimizer="echo", delta=1e-5)
    assert inner == [1]


def test_who_waits_for_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    def spinner(words: str) -> Any:
        told.append(words)
        return nullcontext()

    monkeypatch.setattr(loop, "spinner", spinner)
    for name in ("horizon", "echo"):
        for progress in (False, True):
            how = honestdp.Compute(device="cpu", progress=progress)
            honestdp.train(linear(), clouds(), run=RUN, optimizer=name, delta=1e-5, compute=how)
    assert told == ["measuring what noise does to the outputs"]


def test_a_lack_of_memory_for_it_shows_before_the_charge(tmp_path: Path) -> None:
    class Hungry(nn.Linear):
        """With as many inputs as noise is heard on."""

        def forward(self, x: Tensor) -> Tensor:
            if len(x) == 8 * len(LOG_NORMS):
                raise torch.OutOfMemoryError
            return super().forward(x)

    ledger = honestdp.Ledger(tmp_path / "ledger.db")
    ledger.set_budget("data", honestdp.Budget(3.0, 1e-4))
    how: dict[str, Any] = {"run": RUN, "delta": 1e-5, "ledger": ledger, "dataset": "data"}
    with pytest.raises(torch.OutOfMemoryError):
        honestdp.train(Hungry(3, 2), clouds(), **how)
    assert ledger.balance("data").charges == 0
