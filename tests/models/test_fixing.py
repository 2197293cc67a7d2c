"""`fix` replaces what private training refuses, says what it did, and leaves the model it was given as it was."""

import copy

import pytest
import torch
from torch import Tensor, nn

import honestdp
from honestdp.gradients import RefusedModel, per_example

from ..gradients.plain_autograd import drawn


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(20)


def accepted(model: nn.Module, *shape: int) -> None:
    x = torch.randn(1, 4, *shape)
    per_example(model, lambda output, y: output.flatten(1).sum(1), drawn(model, 1, torch.float32), x, torch.zeros(1, 4))


@pytest.mark.parametrize(
    ("norm", "shape"),
    [
        (nn.BatchNorm1d(12), (12,)),
        (nn.BatchNorm1d(12), (12, 5)),
        (nn.BatchNorm2d(12), (12, 4, 4)),
        (nn.BatchNorm3d(7), (7, 2, 3, 3)),
        (nn.BatchNorm2d(12, affine=False, track_running_stats=False), (12, 4, 4)),
        (nn.InstanceNorm2d(12, affine=True, track_running_stats=True), (12, 4, 4)),
    ],
    ids=repr,
)
def test_what_is_refused_is_accepted_once_it_is_fixed(norm: nn.Module, shape: tuple[int, ...]) -> None:
    model = nn.Sequential(nn.Identity(), norm, nn.Flatten(), nn.LazyLinear(3))
    model(torch.randn(2, *shape))
    with pytest.raises(RefusedModel, match=r"honestdp\.fix"):
        accepted(model, *shape)
    fixed, changes = honestdp.fix(model)
    assert len(changes) == 1
    assert changes[0].startswith(f"'1': {type(norm).__name__}")
    assert model[1] is norm
    accepted(fixed, *shape)


@pytest.mark.parametrize(
    ("channels", "groups"), [(1, 1), (3, 1), (6, 1), (8, 2), (16, 4), (64, 16), (128, 32), (512, 32)]
)
def test_groups_have_four_channels_and_are_at_most_32(channels: int, groups: int) -> None:
    assert honestdp.fix(nn.BatchNorm2d(channels)).model.num_groups == groups


def test_gain_and_shift_are_carried_over_and_fixed_statistics_are_left() -> None:
    norm = nn.BatchNorm2d(8)
    nn.init.normal_(norm.weight)
    fixed = honestdp.fix(norm).model
    assert isinstance(fixed, nn.GroupNorm)
    assert torch.equal(fixed.weight, norm.weight)
    assert fixed.weight is not norm.weight
    assert honestdp.fix(norm.eval()).changes == ()


class Turning(nn.Module):
    """Turns its input around for a layer that reads positions first, or forgets to."""

    def __init__(self, turns: bool) -> None:
        super().__init__()
        self.layer, self.turns = nn.GRU(6, 4), turns

    def forward(self, x: Tensor) -> Tensor:
        out = self.layer(x.transpose(0, 1))[0].transpose(0, 1) if self.turns else self.layer(x)[0]
        return out[:, -1]


def test_layers_read_examples_first_where_that_mends_the_model_and_nowhere_else() -> None:
    x = torch.randn(5, 3, 6)
    wrong, right = Turning(False), Turning(True)
    with pytest.raises(RefusedModel, match=r"honestdp\.fix"):
        accepted(wrong, 3, 6)
    fixed, changes = honestdp.fix(wrong, x)
    assert "'layer': GRU reads [examples, positions, features]" in changes[0]
    accepted(fixed, 3, 6)
    assert not wrong.layer.batch_first
    kept = honestdp.fix(right, x)
    assert (kept.model.layer.batch_first, kept.changes) == (False, ())
    accepted(kept.model, 3, 6)
    assert "is left" in honestdp.fix(right).changes[0]
    assert not honestdp.fix(right).model.layer.batch_first


def test_layers_are_turned_where_all_but_a_few_sequences_end_in_padding() -> None:
    """One example in the place of another moves nothing at a padded position, and the model reads that one alone."""
    ids = torch.zeros(8, 12, dtype=torch.long)
    ids[:, :2], ids[5] = torch.randint(1, 9, (8, 2)), 3
    fixed, changes = honestdp.fix(nn.Sequential(nn.Embedding(9, 6), Turning(False)), ids)
    assert len(changes) == 1
    assert fixed[1].layer.batch_first


def test_a_layer_that_is_the_model_itself_reads_examples_first() -> None:
    assert honestdp.fix(nn.LSTM(3, 2)).model.batch_first
    encoder = nn.Sequential(nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8), 2, enable_nested_tensor=False))
    fixed = honestdp.fix(encoder).model
    accepted(fixed, 3, 4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_and_wrapped_models_are_unwrapped() -> None:
    model = nn.Linear(3, 2)
    for wrapped in (torch.compile(model), nn.Sequential(torch.compile(model)), nn.DataParallel(model)):
        with pytest.raises(RefusedModel):
            accepted(wrapped, 3)
        fixed, changes = honestdp.fix(wrapped)
        assert "taken off" in changes[0]
        accepted(fixed, 3)
    called = copy.deepcopy(model)
    called.compile()
    with pytest.raises(RefusedModel, match=r"before torch\.compile"):
        accepted(called, 3)
    accepted(honestdp.fix(called).model, 3)


def test_spectral_norm_is_refused_for_its_own_reason_and_taken_off() -> None:
    model = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2)))
    with pytest.raises(RefusedModel, match="largest singular value"):
        accepted(model, 3)
    fixed, changes = honestdp.fix(model)
    assert "spectral_norm of weight is taken off" in changes[0]
    accepted(fixed, 3)
    accepted(model.eval(), 3)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_weights_that_hooks_put_in_are_refused_for_their_own_reason() -> None:
    with pytest.raises(RefusedModel, match="parametrizations"):
        accepted(nn.Sequential(nn.utils.weight_norm(nn.Linear(3, 2))), 3)
