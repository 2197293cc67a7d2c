"""Convolutions without windows, and chains of convolutions and pools, give the gradients of plain autograd.

The kernels of a GPU are stood in for by tensor operations (tests/kernels/plain_convolution.py), with which they are compared
where there is Triton (tests/kernels/test_convolution.py).
"""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from honestdp import kernels
from honestdp.boundary.noise import noise_source
from honestdp.boundary.query import Constants, Query
from honestdp.boundary.records import Examples
from honestdp.boundary.release import release
from honestdp.boundary.seed import Seed
from honestdp.gradients import Prepared, bookkeeping, per_example
from honestdp.gradients.bookkeeping import BookKeeping
from honestdp.gradients.by_formula import Convolve
from honestdp.gradients.choice import ruled_layers
from honestdp.gradients.layers import implicit, normalisation
from honestdp.gradients.layers.implicit import Convolved
from honestdp.gradients.layout import layout_of, stack
from tests.toy_training import vetted_of

from ..kernels import plain_convolution, plain_normalisation
from .plain_autograd import assert_agrees, drawn


def loss(output: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(output, y, reduction="none")


@pytest.fixture(params=[False, True], ids=["by torch", "by kernels"])
def by_kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param:
        monkeypatch.setattr(kernels, "convolutions", lambda device: plain_convolution)
        monkeypatch.setattr(kernels, "normalisations", lambda device: plain_normalisation)
    return request.param


def _with_a_frozen_bias(layer: Any) -> nn.Module:
    layer.bias.requires_grad_(False)
    return layer  # type: ignore[no-any-return]


CHAINS = {
    "pools of two": lambda: nn.Sequential(
        *(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(3, 4, 2), nn.Tanh(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(16, 3)),
    ),
    "many channels": lambda: nn.Sequential(
        nn.Conv2d(1, 16, 2),
        nn.Sigmoid(),
        nn.Conv2d(16, 4, 2),
        nn.MaxPool2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16, 3),
    ),
    "padding, stride and dilation": lambda: nn.Sequential(
        *(
            nn.Conv2d(1, 3, 3, padding=1, stride=2, bias=False),
            nn.ReLU(),
            nn.Conv2d(3, 2, 2, dilation=2, padding=(1, 0)),
        ),
        *(nn.Tanh(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 3)),
    ),
    "pools that overlap": lambda: nn.Sequential(
        *(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1, ceil_mode=True), nn.Conv2d(3, 3, 2), nn.ReLU()),
        *(nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(48, 3)),
    ),
    "pools over the end": lambda: nn.Sequential(
        *(nn.Conv2d(1, 3, 4), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True), nn.Conv2d(3, 3, 2), nn.Tanh()),
        *(nn.MaxPool2d(2, padding=1), nn.Flatten(), nn.Linear(27, 3)),
    ),
    "pools with holes": lambda: nn.Sequential(
        nn.Conv2d(1, 3, (4, 2)), nn.ReLU(), nn.MaxPool2d(2, dilation=2), nn.Flatten(), nn.Linear(60, 3)
    ),
    "two pools": lambda: nn.Sequential(
        nn.Conv2d(1, 5, 3), nn.MaxPool2d(2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(20, 3)
    ),
    "one channel, padded, without bias": lambda: nn.Sequential(
        *(nn.Conv2d(1, 3, (3, 2), stride=(1, 2), padding=(1, 2), bias=False), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(3, 2, 2), nn.ReLU(), nn.Conv2d(2, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)),
    ),
    "transposed": lambda: nn.Sequential(
        *(
            nn.Conv2d(1, 4, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(4, 3, 3, stride=2, padding=1),
            nn.ReLU(),
        ),
        *(nn.ConvTranspose2d(3, 2, (2, 3), stride=2, output_padding=1, bias=False), nn.Tanh()),
        *(nn.ConvTranspose2d(2, 1, 3, dilation=2), nn.Flatten(), nn.Linear(756, 3)),
    ),
    "biases that stay as they are": lambda: nn.Sequential(
        *(_with_a_frozen_bias(nn.Conv2d(1, 3, 3)), nn.ReLU(), _with_a_frozen_bias(nn.ConvTranspose2d(3, 2, 3))),
        *(nn.ReLU(), nn.Flatten(), nn.Linear(288, 3)),
    ),
    "groups": lambda: nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 2, groups=2), nn.Flatten(), nn.Linear(64, 3)
    ),
}


@pytest.mark.parametrize("runs", [1, 2])
@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_of_convolutions_and_pools_gives_the_gradients_of_plain_autograd(
    name: str, runs: int, by_kernels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    model = CHAINS[name]()
    monkeypatch.setattr(bookkeeping, "ByAutograd", None)  # autograd's way is not taken
    params = {key: 0.5 * value for key, value in drawn(model, runs, torch.float32).items()}
    x, y = torch.randn(runs, 4, 1, 12, 12), torch.randint(0, 3, (runs, 4))
    result = per_example(model, loss, params, x, y)
    assert isinstance(result, BookKeeping)
    assert any(isinstance(form, Convolved) for form in result.forms.values()) == by_kernels
    assert_agrees(result, model, loss, params, x, y)


def test_pools_of_squares_are_taken_along_by_the_convolution_before_them() -> None:
    def taken(model: nn.Module) -> list[bool]:
        chain = ruled_layers(model, frozenset(name for name, _ in model.named_parameters())).chain
        assert chain is not None
        return [link.pool is not None for link in chain if isinstance(link, Convolve)]

    assert [taken(CHAINS[name]()) for name in CHAINS] == [
        [True, True], [False, True], [False, True], [False, False], [False, False], [False], [True], [True, False, False],
        [False] * 4, [False, False],
        [True, False],
    ]  # fmt: skip


class Residual(nn.Module):
    """Not a chain: ways around, a norm, a convolution that is used twice and one whose padding is put on before it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1, stride=2)
        self.norm, self.around = nn.GroupNorm(2, 4), nn.Conv2d(4, 4, 1, stride=2, bias=False)
        self.twice, self.head = nn.Conv2d(4, 4, 3, padding="same", padding_mode="reflect"), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.first(x))
        x = F.relu(self.norm(self.second(x)) + self.around(x))
        return self.head(self.twice(self.twice(x)).mean((2, 3)))


@pytest.mark.parametrize("runs", [1, 2])
def test_convolutions_within_a_model_of_ones_own_too(runs: int, by_kernels: bool) -> None:
    torch.manual_seed(1)
    model = Residual()
    params, x, y = drawn(model, runs, torch.float32), torch.randn(runs, 3, 2, 6, 6), torch.randint(0, 3, (runs, 3))
    result = per_example(model, loss, params, x, y)
    assert isinstance(result, BookKeeping)
    assert any(isinstance(form, Convolved) for form in result.forms.values()) == by_kernels
    assert_agrees(result, model, loss, params, x, y)


@pytest.mark.parametrize("first", [False, True], ids=["behind a convolution", "first"])
def test_a_norm_of_groups_goes_over_its_gradient_once_and_gives_that_of_gain_and_shift(
    first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind another layer on the way back, whose sums are kept; as the first layer there is no way back."""
    monkeypatch.setattr(kernels, "normalisations", lambda device: plain_normalisation)
    layers = [nn.GroupNorm(2, 4), nn.Conv2d(4, 4, 2), nn.GELU()]
    layers = layers if first else [layers[1], layers[0], layers[2]]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(36, 3))
    params, x, y = drawn(model, 2, torch.float32), torch.randn(2, 3, 4, 4, 4), torch.randint(0, 3, (2, 3))
    prepared = Prepared(model, loss)
    with torch.no_grad():
        result = prepared(params, x, y)
    assert isinstance(result, BookKeeping)
    assert_agrees(result, model, loss, params, x, y)
    calls: list[int] = []
    right = plain_normalisation.back
    monkeypatch.setattr(plain_normalisation, "back", lambda *args: calls.append(1) or right(*args))
    with torch.no_grad():
        again = prepared(params, x, y)
    assert_agrees(again, model, loss, params, x, y)
    assert len(calls) == 1


def test_what_the_way_back_left_is_used_for_the_gradient_that_it_was_gone_with_alone() -> None:
    torch.manual_seed(1)
    (x, one, other), (gain, shift) = torch.randn(3, 6, 4, 3, 3), torch.randn(2, 2, 4)
    asked = [normalisation._Once(plain_normalisation, 2, 1e-5) for _ in range(2)]
    for use in asked:
        use.forward(x, gain, shift)
    asked[0].back(one)
    found, wanted = (use.gradients(other.view(2, 3, 4, 3, 3), frozenset({"weight", "bias"})) for use in asked)
    for name in ("weight", "bias"):
        torch.testing.assert_close(found[name], wanted[name])


@pytest.mark.parametrize("settings", [{"padding_mode": "circular", "padding": 1}, {"padding": "same"}], ids=str)
def test_a_convolution_whose_padding_is_put_on_before_it_is_no_link_of_a_chain(settings: Any, by_kernels: bool) -> None:
    torch.manual_seed(1)
    second = nn.Conv2d(3, 2, 3, **settings)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Tanh(), second, nn.Flatten(), nn.Linear(32, 3))
    params, x, y = drawn(model, 2, torch.float32), torch.randn(2, 3, 1, 6, 6), torch.randint(0, 3, (2, 3))
    result = per_example(model, loss, params, x, y)
    assert isinstance(result, BookKeeping)
    assert_agrees(result, model, loss, params, x, y)


@pytest.mark.parametrize("most", [10**9, 0], ids=["kept", "made again"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_gradients_are_kept_or_made_again_and_no_number_of_weight_zero_is_read(
    most: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "convolutions", lambda device: plain_convolution)
    monkeypatch.setattr(implicit, "_KEPT", most)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(75, 3))
    params, x, y = drawn(model, 2, torch.float32), torch.randn(2, 3, 1, 12, 12), torch.randint(0, 3, (2, 3))
    plain = per_example(model, loss, params, x, y)
    weights = torch.tensor([[0.5, 0.0, 1.0], [0.25, 0.0, 2.0]])
    wanted = {name: torch.zeros_like(value, dtype=dtype) for name, value in params.items()}
    plain.add_weighted_sum(wanted, weights)
    x[:, 1, :, 4, 4] = float("nan")
    found = per_example(model, loss, params, x, y)
    assert found.norms.isnan().tolist() == [[False, True, False]] * 2
    totals = {name: torch.zeros_like(value, dtype=dtype) for name, value in params.items()}
    found.add_weighted_sum(totals, weights)
    for name, total in totals.items():
        assert total.dtype == dtype
        torch.testing.assert_close(total, wanted[name])


class _Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.head = nn.Conv2d(1, 3, 3), nn.Conv2d(3, 3, 3, padding=1), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.one(x))
        out: Tensor = self.head((x + self.two(x)).mean((2, 3)))
        return out


def _wide() -> nn.Module:
    """Two convolutions of 16 channels and more whose kernels fit in four places and in one."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 9, stride=3), nn.ReLU(), nn.Conv2d(16, 32, 2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(32, 3)),
    )


def test_norms_of_wide_layers_with_few_positions_are_made_of_their_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel multiplies 32 positions at least, and would make every example's gradient of the whole weight."""
    asked: list[int] = []

    def square_norms(*args: Any, **how: Any) -> Any:
        asked.append(args[3].channels)
        return plain_convolution.square_norms(*args, **how)

    ways = {name: getattr(plain_convolution, name) for name in ("forward", "back", "sum_rows")}
    monkeypatch.setattr(kernels, "convolutions", lambda device: SimpleNamespace(**ways, square_norms=square_norms))
    torch.manual_seed(0)
    model, x, y = _wide(), torch.randn(2, 3, 1, 12, 12) / 20, torch.randint(0, 3, (2, 3))
    params = drawn(model, 2, torch.float32)
    assert_agrees(per_example(model, loss, params, x, y), model, loss, params, x, y)
    assert not asked
    model[0] = nn.Conv2d(1, 2, 9, stride=3)
    model[2] = nn.Conv2d(2, 8, 1)
    per_example(model, loss, drawn(model, 2, torch.float32), x, y)
    assert set(asked) == {1, 2}


PADDED = {
    "a chain": lambda: nn.Sequential(
        *(
            nn.Conv2d(1, 16, 3),
            nn.ReLU(),
            nn.Conv2d(16, 3, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(48, 3),
        )
    ),
    "flattened behind a convolution": lambda: nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 3, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(48, 3))
    ),
    "wide with few positions": _wide,
    "flattened at once": lambda: nn.Sequential(nn.Conv2d(1, 3, 3), nn.Conv2d(3, 2, 5), nn.Flatten(), nn.Linear(72, 3)),
    "by autograd": _Residual,
}


@pytest.mark.parametrize("name", PADDED)
def test_padding_is_not_multiplied_and_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not promised of examples behind a lot's last member is NaN here: neither norms of members nor sums have any of it,
    with and without gradients that are kept."""
    monkeypatch.setattr(kernels, "convolutions", lambda device: plain_convolution)
    torch.manual_seed(1)
    model = PADDED[name]()
    params, x, y = drawn(model, 2, torch.float32), torch.randn(2, 5, 1, 12, 12), torch.randint(0, 3, (2, 5))
    present = torch.tensor([[1.0, 0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0]])
    seen = []
    right = plain_convolution.forward
    monkeypatch.setattr(plain_convolution, "forward", lambda *a, **k: seen.append(k["counts"]) or right(*a, **k))
    prepared = Prepared(model, loss)
    with torch.no_grad():
        whole = prepared(params, x, y)
        assert seen
        assert all(counts is None for counts in seen)
        seen.clear()
        part = prepared(params, x, y, present=present)
    assert [counts.tolist() for counts in seen] == [[3, 1]] * 2  # up to the last member, gaps and all
    members = torch.tensor([[True, True, True, False, False], [True, False, False, False, False]])
    assert torch.equal(part.norms[members], whole.norms[members])
    assert part.norms[~members].isnan().all()
    weights = present / (1 + whole.norms)
    for one, other in zip(whole.weighted_sum(weights).values(), part.weighted_sum(weights).values(), strict=True):
        torch.testing.assert_close(one, other)


def test_members_are_of_a_lot_and_of_its_runs_and_of_nothing_else_that_is_convolved() -> None:
    """Six images may be two lots of three, or one of six: where they are not the lots that were counted, all of them are made."""
    with implicit.members(torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])):
        counts = implicit._counts(6, 2)
        assert counts is not None
        assert counts.tolist() == [2, 1]
        assert implicit._counts(6, 1) is None
        assert implicit._counts(12, 2) is None
        with implicit.members(None):
            assert implicit._counts(6, 2) is None
    assert implicit._counts(6, 2) is None


def test_no_member_of_a_lot_is_taken_for_padding_by_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is released of lots of two members and of none is the sum of those members, by kernels as without."""
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 3))
    x, y = torch.randn(2, 4, 1, 6, 6), torch.randint(0, 3, (2, 4))
    present = torch.tensor([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    layout = layout_of(model)
    constants = Constants(100, 4.0, 1, torch.zeros(2), layout, torch.ones(1))
    params, query = stack([model, model], layout, torch.device("cpu")), Query(clip=torch.ones(2))

    def released() -> Tensor:
        lot, noise = [Examples(x, y, present)], noise_source(torch.device("cpu"), Seed.fixed(0))
        how: dict[str, Any] = {"vetted": vetted_of(copy.deepcopy(model), loss), "constants": constants, "noise": noise}
        return release(lot, params, query, **how).gradient

    plain = released()
    monkeypatch.setattr(kernels, "convolutions", lambda device: plain_convolution)
    x[present == 0] = torch.nan
    torch.testing.assert_close(released(), plain)
    assert plain[0].norm() > 0
    assert not plain[1].any()


@pytest.mark.parametrize("fault", ["back", "square_norms", "forward"])
def test_a_kernel_that_is_wrong_is_found_before_a_record_is_read(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = getattr(plain_convolution, fault)

    def wrong(*args: object, **kwargs: object) -> object:
        made = right(*args, **kwargs)
        return 0.9 * made if isinstance(made, Tensor) else (0.9 * made[0], made[1])

    monkeypatch.setattr(plain_convolution, fault, wrong)
    monkeypatch.setattr(kernels, "convolutions", lambda device: plain_convolution)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(8, 3))
    params, x, y = drawn(model, 2, torch.float32), torch.randn(2, 3, 1, 6, 6), torch.randint(0, 3, (2, 3))
    result = per_example(model, loss, params, x, y)
    assert not isinstance(result, BookKeeping)
    assert_agrees(result, model, loss, params, x, y)
