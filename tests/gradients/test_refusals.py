"""Models, losses and arguments that are refused, and what the error says."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from honestdp.checks import InvalidArgument
from honestdp.gradients import RefusedModel, per_example

from .plain_autograd import drawn


def total(output: Tensor, y: Tensor) -> Tensor:
    return output.flatten(1).sum(1)


def ask(model: nn.Module, x: Tensor, loss: object = total) -> object:
    return per_example(model, loss, drawn(model, len(x), torch.float32), x, torch.zeros(x.shape[:2]))


def test_a_model_that_draws_by_numpy_is_told_so_and_not_that_it_mixes_examples() -> None:
    class Drawing(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + float(np.random.default_rng().normal())

    with pytest.raises(RefusedModel, match="What draws by numpy"):
        ask(Drawing(3, 2), torch.randn(1, 4, 3))


@pytest.mark.parametrize(
    ("module", "shape", "way_out"),
    [
        (nn.BatchNorm1d(4), (4,), "GroupNorm"),
        (nn.BatchNorm2d(4), (4, 3, 3), "GroupNorm"),
        (nn.BatchNorm3d(4), (4, 3, 3, 3), "GroupNorm"),
        (nn.BatchNorm2d(4, affine=False), (4, 3, 3), "GroupNorm"),
        (nn.BatchNorm2d(4, track_running_stats=False).eval(), (4, 3, 3), "GroupNorm"),
        (nn.SyncBatchNorm(4), (4, 3, 3), "GroupNorm"),
        (nn.InstanceNorm2d(4, affine=True, track_running_stats=True), (4, 3, 3), "track_running_stats=False"),
        (nn.InstanceNorm1d(4, track_running_stats=True), (4, 3), "track_running_stats=False"),
    ],
    ids=repr,
)
def test_known_modules_that_mix_examples_are_refused_by_name(
    module: nn.Module, shape: tuple[int, ...], way_out: str
) -> None:
    model = nn.Sequential(nn.Identity(), nn.Sequential(module, nn.Flatten(), nn.Linear(shape[-1], 2)))
    with pytest.raises(RefusedModel, match=rf"{way_out}.*{type(module).__name__} at '1.0'"):
        ask(model, torch.randn(2, 4, *shape))


def test_lazy_batch_norm_is_refused() -> None:
    model = nn.Sequential(nn.LazyBatchNorm1d(), nn.Linear(4, 2))
    with pytest.raises(RefusedModel, match=r"run it once.*LazyBatchNorm1d at '0'"):
        per_example(model, total, {"1.weight": torch.ones(1, 2, 4)}, torch.ones(1, 2, 4), torch.ones(1, 2))


def test_embedding_scaled_by_frequency_is_refused() -> None:
    model = nn.Sequential(nn.Embedding(5, 3, scale_grad_by_freq=True))
    with pytest.raises(RefusedModel, match=r"scale_grad_by_freq=False.*Embedding at '0'"):
        ask(model, torch.zeros(1, 2, 4, dtype=torch.long))


class MinusMean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - 1e-3 * x.mean(0)


class OverExamples(nn.Module):
    """Attention over the first dimension: a forgotten batch_first."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x)[0]


class LastState(nn.Module):
    """A recurrent layer over the first dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRU(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.cell(x)[0]


class Sorted(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sort(0).values


@pytest.mark.parametrize(
    ("module", "named"),
    [
        (MinusMean(), "MinusMean at '1'"),
        (Sorted(), "Sorted at '1'"),
        (nn.Softmax(dim=0), "Softmax at '1'"),
        (OverExamples(), "MultiheadAttention at '1.attention'"),
        (LastState(), "GRU at '1.cell'"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
@pytest.mark.parametrize("runs", [1, 2])
def test_unknown_modules_that_mix_examples_are_found_by_trial(module: nn.Module, named: str, runs: int) -> None:
    model = nn.Sequential(nn.Linear(4, 4), module, nn.Flatten(), nn.LazyLinear(2))
    model(torch.randn(2, 5, 4))
    with pytest.raises(RefusedModel, match=rf"batch_first.*{named}"):
        ask(model, torch.randn(runs, 3, 5, 4))


class Remembers(nn.Module):
    """Keeps a running mean of what it saw, without using it: it would leave with the model."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean.mul_(0.9).add_(0.1 * x.detach().mean(0))
        return x


def test_a_module_that_writes_what_it_saw_to_a_buffer_is_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 4), Remembers())
    with pytest.raises(RefusedModel, match=r"'1.mean'.*Remembers at '1'"):
        ask(model, torch.randn(2, 3, 4))
    assert model[1].mean.eq(0).all()
    ask(model.eval(), torch.randn(2, 3, 4))


def test_a_model_put_back_into_training_is_asked_again() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval()
    ask(model, torch.randn(2, 3, 4))
    model.train()
    with pytest.raises(RefusedModel, match="BatchNorm1d"):
        ask(model, torch.randn(2, 3, 4))


def test_zero_trainable_parameters_are_an_error() -> None:
    model = nn.Linear(4, 2).requires_grad_(False)
    with pytest.raises(InvalidArgument, match="zero trainable parameters"):
        per_example(model, total, {}, torch.ones(1, 2, 4), torch.ones(1, 2))


@pytest.mark.parametrize(
    ("loss", "shape"),
    [
        (lambda output, y: F.mse_loss(output.squeeze(-1), y), r"\(\)"),
        (lambda output, y: F.mse_loss(output, y.unsqueeze(-1), reduction="none"), r"\(6, 1\)"),
    ],
)
def test_a_loss_without_one_number_an_example_is_an_error(loss: object, shape: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"loss must be one number an example.*reduction='none'.*{shape}"):
        ask(nn.Linear(4, 1), torch.ones(2, 3, 4), loss)


def test_a_loss_that_mixes_examples_is_refused() -> None:
    def spread(output: Tensor, y: Tensor) -> Tensor:
        return (output - output.mean(0)).square().sum(1)

    with pytest.raises(InvalidArgument, match="loss that mixes examples"):
        ask(nn.Linear(4, 1), torch.ones(2, 3, 4), spread)


def test_outputs_that_do_not_fit_the_labels_are_an_error_that_gives_both_shapes() -> None:
    def cross_entropy(output: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(output, y, reduction="none")

    model = nn.Linear(4, 3)
    params, x = drawn(model, 2, torch.float32), torch.ones(2, 3, 5, 4)
    with pytest.raises(InvalidArgument, match=r"output of shape \[\(9, 5, 3\)\] and y of shape \(9,\)"):
        per_example(model, cross_entropy, params, x, torch.zeros(2, 3, dtype=torch.long))


@pytest.mark.parametrize("output", [lambda x: x.sum(), lambda x: x.flatten(0, 1)])
def test_a_model_without_a_row_an_example_is_an_error(output: object) -> None:
    class Wrong(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return output(self.layer(x))

    with pytest.raises(InvalidArgument, match="model must be a module whose output has a row an example"):
        ask(Wrong(), torch.ones(2, 3, 5, 4))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"params": {"weight": torch.ones(2, 1, 4)}}, r"params must be named .*\['bias', 'weight'\]"),
        ({"params": {"weight": torch.ones(1, 1, 4), "bias": torch.ones(2, 1)}}, r"params\['weight'\].*\(2, 1, 4\)"),
        ({"params": {"weight": torch.ones(2, 1, 4).half(), "bias": torch.ones(2, 1).half()}}, "float32 or float64"),
        ({"y": torch.ones(2, 4)}, "the same runs and lot"),
        ({"x": torch.ones(3)}, "the same runs and lot"),
        ({"memory": 0}, "memory must be a whole number"),
    ],
)
def test_wrong_arguments_are_named(change: dict[str, object], message: str) -> None:
    good = {
        "params": {"weight": torch.ones(2, 1, 4), "bias": torch.ones(2, 1)},
        "x": torch.ones(2, 3, 4),
        "y": torch.ones(2, 3),
    }
    with pytest.raises(InvalidArgument, match=message):
        per_example(nn.Linear(4, 1), total, **(good | change))
