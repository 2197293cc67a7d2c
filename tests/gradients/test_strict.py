"""strict: each example goes through model and loss under a map of its own, in training and where it is scored."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from honestdp import Run
from honestdp import optimizers as rules
from honestdp.checks import InvalidArgument
from honestdp.gradients import RefusedModel, mapped_outputs, per_example, vet_forward
from honestdp.gradients.materialised import Materialised
from honestdp.training.spec import Compute, TrainSpec
from honestdp.training.train import assemble, train, train_population
from tests.toy_training import toy_data, toy_model

RUN = Run(records=60, lot=20, steps=5, noise=1.0)
RULE = rules.SGD(lr=0.1, clip=1.0)


class Seen(nn.Module):
    """Notes how many examples its forward is shown."""

    widths: list[int] = []  # noqa: RUF012 (copies of the model share it on purpose)

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 3).double()

    def mixed(self, x: Tensor) -> Tensor:
        return x

    def forward(self, x: Tensor) -> Tensor:
        Seen.widths.append(len(x))
        return self.mixed(self.layer(x))


class Mixes(Seen):
    """The mean of the lot is taken off, in wide lots and in eval() mode."""

    def mixed(self, x: Tensor) -> Tensor:
        return x - x.mean(0) if len(x) >= 16 or (not self.training and len(x) > 1) else x


def hardest(output: Tensor, y: Tensor) -> Tensor:
    losses = F.cross_entropy(output, y, reduction="none")
    if len(losses) <= 16:
        return losses
    return torch.where(losses >= losses.detach().topk(16).values[-1], losses, 0)


@pytest.mark.parametrize("runs", [1, 3])
def test_strict_training_shows_the_model_one_example_at_a_time(runs: int) -> None:
    job = assemble(Seen(), toy_data(), run=RUN, optimizers=[RULE] * runs, spec=TrainSpec(strict=True))
    population = job.population([*range(runs)])
    Seen.widths.clear()
    population.block()
    assert Seen.widths
    assert set(Seen.widths) == {1}
    loose = assemble(Seen(), toy_data(), run=RUN, optimizers=[RULE] * runs).population([*range(runs)])
    Seen.widths.clear()
    loose.block()
    assert max(Seen.widths) > 1


def test_strict_training_gives_the_weights_that_training_gives() -> None:
    given = {"run": RUN, "optimizers": [RULE, rules.SGD(lr=0.5, clip=0.3)], "noise_seed": 7}
    plain = train_population(toy_model(), toy_data(), **given)
    strict = train_population(toy_model(), toy_data(), strict=True, **given)
    for one, other in zip(plain, strict, strict=True):
        for a, b in zip(one.model.parameters(), other.model.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_a_model_and_a_loss_that_mix_examples_do_not_under_strict() -> None:
    """Each gradient is the one that the example has alone, whatever the others are."""
    model, x, y = Mixes(), *(part[None, :40] for part in toy_data())
    params = {name: value.detach()[None] for name, value in model.named_parameters()}
    with pytest.raises(RefusedModel, match="Mixes"):
        per_example(model, hardest, params, x, y)
    found = per_example(model, hardest, params, x, y, strict=True)
    assert isinstance(found, Materialised)
    for place in (0, 17, 39):
        alone = per_example(model, hardest, params, x[:, place, None], y[:, place, None], strict=True)
        torch.testing.assert_close(found.norms[:, place], alone.norms[:, 0])
    moved = x.clone()
    moved[0, 0] = 1e6
    torch.testing.assert_close(
        per_example(model, hardest, params, moved, y, strict=True).norms[:, 1:], found.norms[:, 1:], rtol=0, atol=0
    )
    train(model, toy_data(), run=RUN, optimizer=RULE, loss=hardest, strict=True)


class Remembers(Seen):
    """Adds what it was shown in the call before."""

    before: Tensor | None = None

    def mixed(self, x: Tensor) -> Tensor:
        before, self.before = self.before, x.detach()
        return x if before is None else x + before


def test_nothing_is_kept_in_the_module_from_call_to_call() -> None:
    model, x, y = Remembers(), *(part[None] for part in toy_data())
    params = {name: value.detach()[None] for name, value in model.named_parameters()}
    first, second = (per_example(model, hardest, params, x, y, strict=True, memory=4000) for _ in range(2))
    torch.testing.assert_close(first.norms, second.norms, rtol=0, atol=0)
    alone = per_example(model, hardest, params, x[:, -1:], y[:, -1:], strict=True)
    torch.testing.assert_close(first.norms[:, -1], alone.norms[:, 0])
    outputs = [mapped_outputs(model.eval(), x[0]) for _ in range(2)]
    torch.testing.assert_close(*outputs, rtol=0, atol=0)
    assert model.before is None


def reads(x: Tensor) -> Tensor:
    return x if x.sum().item() > 0 else 2 * x


class Unmapped(Seen):
    def mixed(self, x: Tensor) -> Tensor:
        return reads(x)


class Keeps(Seen):
    """What it saw goes into a buffer for all."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3, dtype=torch.float64))

    def mixed(self, x: Tensor) -> Tensor:
        self.mean.mul_(0.9).add_(0.1 * x.detach().mean(0))
        return x


@pytest.mark.parametrize("kind", [Unmapped, Keeps])
def test_a_model_that_cannot_be_mapped_is_refused_with_the_reason(kind: type[Seen]) -> None:
    with pytest.raises(RefusedModel, match=r"strict=True.*torch\.func\.vmap maps.*(vmap|captured Tensor)"):
        train(kind(), toy_data(), run=RUN, optimizer=RULE, strict=True)
    with pytest.raises(RefusedModel, match=r"strict=True.*torch\.func\.vmap"):
        vet_forward(kind(), hardest, *(part[:2] for part in toy_data()), examples=8, strict=True)


def test_a_loss_that_cannot_be_mapped_is_refused_with_the_reason() -> None:
    def chooses(output: Tensor, y: Tensor) -> Tensor:
        return reads(F.cross_entropy(output, y, reduction="none"))

    with pytest.raises(InvalidArgument, match=r"loss must be for strict=True.*vmap"):
        train(toy_model(), toy_data(), run=RUN, optimizer=RULE, loss=chooses, strict=True)


def test_mapped_outputs_are_those_of_each_example_alone() -> None:
    x, _ = toy_data()
    plain, mixes = toy_model().eval(), Mixes().eval()
    torch.testing.assert_close(mapped_outputs(plain, x), plain(x).detach())
    with torch.no_grad():
        alone = torch.cat([mixes(one) for one in x.split(1)])
        assert not torch.allclose(mixes(x), alone)
    for together in (None, 7):
        torch.testing.assert_close(mapped_outputs(mixes, x, together=together), alone)
    assert vet_forward(mixes, hardest, x[:2], torch.zeros(2, dtype=torch.long), examples=50, strict=True) == 50


def test_strict_is_part_of_what_a_checkpoint_is_of(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    given = {"run": RUN, "optimizer": RULE, "compute": Compute(checkpoint=tmp_path / "kept")}
    train(toy_model(), toy_data(), strict=True, **given)
    train(toy_model(), toy_data(), strict=True, **given)
    with pytest.raises(InvalidArgument, match="the file differs in strict"):
        train(toy_model(), toy_data(), **given)


def test_the_statement_says_whether_independence_was_tried_or_made() -> None:
    for strict, words in (
        (False, "tried on made-up inputs, which proves nothing"),
        (True, "independent by construction"),
    ):
        result = train(toy_model(), toy_data(), run=RUN, optimizer=RULE, delta=1e-5, strict=strict)
        assert words in str(result.statement)
        assert ("tried on" in str(result.statement)) is not strict
