"""Models of several inputs and outputs: their gradients are those of plain autograd, and every input of a record is tried."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from honestdp.checks import InvalidArgument
from honestdp.gradients import RefusedModel, inputs, per_example, vet_forward
from honestdp.gradients.inputs import Inputs
from honestdp.gradients.probe import Probe, made_up_inputs
from honestdp.losses import cross_entropy, prediction, squared_error
from tests.several_inputs import Reader, records

RUNS, LOT = 2, 6


def lots(**changed: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """`[runs, lot, ...]`, in float64."""
    x, y = records(RUNS * LOT)
    shaped = {name: part.view(RUNS, LOT, *part.shape[1:]) for name, part in {**x, **changed}.items()}
    return shaped, y.view(RUNS, LOT)


def params_of(model: nn.Module) -> dict[str, Tensor]:
    torch.manual_seed(1)
    return {name: torch.randn(RUNS, *value.shape, dtype=torch.float64) for name, value in model.named_parameters()}


def assert_plain(model: nn.Module, x: Inputs, y: Tensor, loss: Any = cross_entropy, **more: Any) -> None:
    """Norms and a weighted sum are those of autograd, an example at a time."""
    model, params = model.double(), params_of(model)
    result, weights = per_example(model, loss, params, x, y, **more), torch.rand(RUNS, LOT, dtype=torch.float64)
    sums = result.weighted_sum(weights)
    for run in range(RUNS):
        expected = {name: torch.zeros_like(value[run]) for name, value in params.items()}
        for place in range(LOT):
            own = {name: value[run].clone().requires_grad_() for name, value in params.items()}
            output = inputs.call_with(model, own, inputs.rows(x, (run, slice(place, place + 1))))
            number = loss(output, y[run, place : place + 1]).squeeze(0)
            found = dict(zip(own, torch.autograd.grad(number, list(own.values())), strict=True))
            norm = torch.cat([value.flatten() for value in found.values()]).norm()
            torch.testing.assert_close(result.norms[run, place], norm)
            for name, value in found.items():
                expected[name] += weights[run, place] * value
        for name, value in expected.items():
            torch.testing.assert_close(sums[name][run], value)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("named", [True, False])
def test_gradients_of_several_inputs_are_those_of_autograd(named: bool, strict: bool) -> None:
    x, y = lots()
    assert_plain(Reader(), x if named else tuple(x.values()), y, strict=strict)


def logits_and_more(logits: Tensor, hidden: Tensor) -> dict[str, Any]:
    return {"hidden": hidden, "logits": logits, "cache": None, "count": 3, "other": SimpleNamespace(kept=hidden)}


def in_a_row(logits: Tensor, hidden: Tensor) -> tuple[Any, ...]:
    return None, logits, hidden


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("wrap", [logits_and_more, in_a_row])
def test_the_default_loss_finds_the_prediction_in_an_output(wrap: Any, strict: bool) -> None:
    x, y = lots()
    assert_plain(Reader(wrap), x, y, strict=strict)


@pytest.mark.parametrize("strict", [False, True])
def test_a_loss_of_ones_own_gets_the_whole_output(strict: bool) -> None:
    """As of an autoencoder that draws nothing: how far from the table, and how far from zero."""

    def loss(output: Any, y: Tensor) -> Tensor:
        _, logits, hidden = output
        return F.cross_entropy(logits, y, reduction="none") + 0.1 * hidden.square().sum(1)

    x, y = lots()
    assert_plain(Reader(in_a_row), x, y, loss, strict=strict)


def test_what_counts_as_a_prediction() -> None:
    one, other = torch.ones(2, 3), torch.zeros(2, 3)
    for output in (
        one,
        (None, one, other),
        {"logits": one, "hidden": other},
        SimpleNamespace(logits=one),
        {"out": one},
    ):
        assert prediction(output) is one
    for output in ({"a": one, "b": other}, (None,), SimpleNamespace(scores=one)):
        with pytest.raises(InvalidArgument, match=r"\.logits or \['logits'\]; for any other, give a loss"):
            prediction(output)
    assert torch.equal(squared_error({"logits": one}, other), torch.full((2,), 3.0))


# ---- Made-up inputs


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.lstm, self.out = nn.Embedding(7, 4), nn.LSTM(4, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, ids: Tensor, lengths: Tensor, seen: Tensor, token_type_mask: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(
            self.words(ids), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        return self.out(self.lstm(packed)[1][0][0])


def test_made_up_inputs_are_ones_that_a_model_can_read() -> None:
    """Ids within every table, masks and lengths of something: attention to nothing would be NaN, and no sequence is empty."""
    like = torch.zeros(2, 5).long(), torch.zeros(2).long(), torch.zeros(2).bool(), torch.zeros(2, 5).int()
    made = made_up_inputs(Recurrent(), like, (500,), torch.Generator().manual_seed(0))
    ids, lengths, seen, mask = inputs.leaves(made)
    assert [part.dtype for part in inputs.leaves(made)] == [part.dtype for part in like]
    assert set(ids.unique().tolist()) == set(range(7))
    assert set(lengths.tolist()) == {1, 2, 3, 4, 5}
    assert set(seen.tolist()) == {False, True}
    assert set(mask.sum(1).tolist()) == {1, 2, 3, 4, 5}
    assert set(mask.unique().tolist()) == {0, 1}
    blank = inputs.leaves(inputs.blank(Recurrent(), made, 2))
    assert [part.tolist() for part in blank] == [[[0] * 5] * 2, [1, 1], [True, True], [[1] * 5] * 2]


def test_other_examples_of_a_pool_differ_in_every_input() -> None:
    """Where one did not, a model that mixes it alone would pass; so it is for inputs of one number of two, too."""
    like = torch.zeros(1, 2, 5).long(), torch.zeros(1, 2).long(), torch.zeros(1, 2).bool(), torch.ones(1, 2, 5).int()
    model = Recurrent()
    params = {name: value.detach()[None] for name, value in model.named_parameters()}
    pool = Probe(model, params, like).pool(8)
    for place, part in enumerate(inputs.leaves(pool)):
        assert not torch.equal(part[8], part[0])
        assert not torch.equal(part[9], part[7])
        moved = [index for index in range(4) if not torch.equal(part[11 + index], part[0])]
        assert moved == [place], "each input is also moved alone"


# ---- Models that mix one of their inputs


class Mixing(Reader):
    """A reader that changes what it reads, by the whole lot."""

    def __init__(self, change: Any) -> None:
        super().__init__()
        self.change = change

    def forward(self, ids: Tensor, mask: Tensor, table: Tensor) -> Tensor:
        return super().forward(*self.change(ids, mask, table))


def by_the_mask(ids: Tensor, mask: Tensor, table: Tensor) -> Any:
    return ids, mask, table * mask.sum()


def by_the_second_inputs_mean(ids: Tensor, mask: Tensor, table: Tensor) -> Any:
    return ids, mask, table - table.mean(0)


def by_the_ids(ids: Tensor, mask: Tensor, table: Tensor) -> Any:
    return ids, mask, table + (ids == ids[:1]).all(0).sum()


def by_the_longest(ids: Tensor, mask: Tensor, table: Tensor) -> Any:
    """Cut to the longest of the lot, whose length then weighs the words."""
    longest = (mask.long() * torch.arange(1, 6)).amax()
    return ids, mask, table * longest


def by_what_is_masked_whole(ids: Tensor, mask: Tensor, table: Tensor) -> Any:
    return ids, mask, table * (~mask.any(1)).any()


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(
    "change", [by_the_mask, by_the_second_inputs_mean, by_the_ids, by_the_longest, by_what_is_masked_whole]
)
def test_a_model_that_mixes_one_of_its_inputs_is_refused(change: Any, named: bool) -> None:
    x, y = lots()
    model = Mixing(change).double()
    with pytest.raises(RefusedModel, match="mix examples"):
        per_example(model, cross_entropy, params_of(model), x if named else tuple(x.values()), y)


@pytest.mark.parametrize("change", [by_the_mask, by_the_second_inputs_mean, by_the_ids, by_the_longest])
def test_it_is_refused_before_it_scores_a_record(change: Any) -> None:
    x, y = records(2)
    with pytest.raises(RefusedModel, match="mix examples"):
        vet_forward(Mixing(change).double().eval(), cross_entropy, x, y, examples=20)


@pytest.mark.parametrize("change", [by_the_mask, by_the_second_inputs_mean])
def test_strict_makes_it_one_examples_own(change: Any) -> None:
    """There is no other example that it could read."""
    x, y = lots()
    assert_plain(Mixing(change), x, y, strict=True)


class Flagged(nn.Module):
    """A bool for each record, and a model that counts them."""

    def __init__(self, *, counts: bool) -> None:
        super().__init__()
        self.out, self.counts = nn.Linear(3, 2), counts

    def forward(self, table: Tensor, flag: Tensor) -> Tensor:
        seen = flag.sum() if self.counts else flag[:, None]
        return self.out(table * (1 + seen.to(table.dtype)))


def test_a_bool_for_each_record_is_tried_too() -> None:
    x = {"table": torch.randn(RUNS, LOT, 3, dtype=torch.float64), "flag": torch.rand(RUNS, LOT) > 0.5}
    y = torch.zeros(RUNS, LOT).long()
    assert_plain(Flagged(counts=False), x, y)
    model = Flagged(counts=True).double()
    with pytest.raises(RefusedModel, match="mix examples"):
        per_example(model, cross_entropy, params_of(model), x, y)


def test_inputs_of_different_lots_are_refused() -> None:
    x, y = lots()
    model = Reader().double()
    with pytest.raises(InvalidArgument, match="all with the same runs and lot"):
        per_example(model, cross_entropy, params_of(model), {**x, "mask": x["mask"][:, 1:]}, y)
