"""The gradient of a record of several rows is that of the sum of their losses by their shares, in every engine."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from honestdp.checks import InvalidArgument
from honestdp.gradients import grouped
from honestdp.gradients.bookkeeping import BookKeeping
from honestdp.gradients.prepared import Prepared
from honestdp.losses import cross_entropy
from honestdp.reference import gradient
from tests.boundary.crying_records import planted

RECORDS, ROWS = 4, 3


class Own(nn.Module):
    """A parameter that no rule knows, so that every row is mapped."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(6, 3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x) @ self.weight


class Words(nn.Module):
    def __init__(self, table: nn.Module) -> None:
        super().__init__()
        self.table, self.last = table, nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        rows = self.table(x)
        return self.last(rows if rows.dim() == 2 else rows.mean(1))


WIDE = [nn.Linear(6, 40), nn.Tanh(), nn.LayerNorm(40), nn.Linear(40, 60), nn.ReLU(), nn.Linear(60, 3)]
MODELS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "linear": (nn.Linear(6, 3), (6,)),
    "by Gram matrices": (nn.Sequential(*WIDE), (6,)),
    "materialised": (Own(), (6,)),
    "convolution": (nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)), (1, 6, 6)),
    "looked up": (Words(nn.Embedding(50, 5)), (7,)),
    "bags": (Words(nn.EmbeddingBag(50, 5)), (7,)),
}


def case(name: str, runs: int) -> tuple[nn.Module, dict[str, Tensor], Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    model, shape = MODELS[name]
    size = (runs, RECORDS * ROWS, *shape)
    x = torch.randint(0, 50, size) if isinstance(model, Words) else torch.randn(size)
    y = torch.randint(0, 3, (runs, RECORDS * ROWS))
    params = {name: torch.randn(runs, *value.shape) / 2 for name, value in model.named_parameters()}
    counts = torch.randint(1, ROWS + 1, (runs, RECORDS, 1))
    return model, params, x, y, (torch.arange(ROWS) < counts) / counts


def check(name: str, *, runs: int, strict: bool = False) -> object:
    """The two verbs against autograd on the mean over each record's own rows."""
    model, params, x, y, shares = case(name, runs)
    weights = torch.rand(runs, RECORDS)
    with torch.no_grad():
        found = Prepared(model, cross_entropy, strict=strict)(params, x, y, shares=shares)
        total = found.weighted_sum(weights)
    expected = {name: torch.zeros_like(value) for name, value in params.items()}
    for run in range(runs):
        for record in range(RECORDS):
            own = torch.cat([value[run].flatten() for value in params.values()])
            rows = slice(record * ROWS, record * ROWS + int((shares[run, record] > 0).sum()))
            whole = gradient(model, cross_entropy, own, list(zip(x[run, rows], y[run, rows], strict=True)))
            assert float(found.norms[run, record]) == pytest.approx(float(whole.norm()), rel=1e-4)
            for each, part in zip(params, whole.split([value[0].numel() for value in params.values()]), strict=True):
                expected[each][run] += weights[run, record] * part.view_as(expected[each][run])
    for each, value in expected.items():
        assert torch.allclose(total[each], value, rtol=1e-3, atol=1e-4), each
    return found


@pytest.mark.parametrize("runs", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_a_record_of_rows_has_the_gradient_of_their_mean(name: str, runs: int) -> None:
    assert isinstance(check(name, runs=runs), BookKeeping) is (name != "materialised")


def test_so_it_has_where_every_row_is_mapped_by_itself() -> None:
    check("linear", runs=2, strict=True)


def test_a_row_without_a_share_adds_nothing_whatever_its_gradient_is() -> None:
    values, shares = torch.tensor([[[1.0], [torch.inf], [3.0], [torch.nan]]]), torch.tensor([[[1.0, 0.0], [0.5, 0.0]]])
    assert grouped.shared(values, shares).tolist() == [[[1.0], [1.5]]]


@pytest.mark.parametrize("name", ["linear", "by Gram matrices", "looked up"])
def test_rows_that_are_not_added_up_to_records_in_their_order_are_found(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = "values.reshape(runs, count // rows, rows * positions, *values.shape[3:])"
    other = "values.reshape(runs, rows, count // rows, *values.shape[2:]).transpose(1, 2).flatten(2, 3)"
    planted(monkeypatch, grouped, grouped, "_positions", shape, other)
    with pytest.raises(AssertionError):
        check(name, runs=1)


def test_shares_of_another_number_of_rows_are_refused() -> None:
    model, params, x, y, shares = case("linear", 1)
    with pytest.raises(InvalidArgument, match="shares"), torch.no_grad():
        Prepared(model, cross_entropy)(params, x, y, shares=shares[:, :2])
