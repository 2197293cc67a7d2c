"""Augmentation: a function of one record and its own random numbers, drawn by a generator that follows from the seed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import honestdp
from honestdp.augment import Augmentation, CropAndFlip, PerRecord, variants
from honestdp.boundary.data import PrivateData
from honestdp.boundary.intake import take_in
from honestdp.boundary.mechanism import Variants
from honestdp.boundary.seed import Seed
from honestdp.checks import InvalidArgument
from honestdp.gradients.layout import stack
from honestdp.optimizers.rule import stack_rules
from honestdp.training.population import Population
from tests.toy_training import CPU, constants_of

RECORDS, LOT, STEPS = 40, 8.0, 6


def images(kind: torch.dtype = torch.uint8) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randint(0, 256, (RECORDS, 1, 6, 6), generator=generator).to(kind)
    return x, torch.randint(0, 2, (RECORDS,), generator=generator)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 2))


def by_hand(x: Tensor, down: int, right: int, mirrored: bool, pad: int) -> Tensor:
    """A crop of one image `[channels, height, width]`, pixel by pixel."""
    out = torch.zeros_like(x)
    height, width = x.shape[1:]
    for i in range(height):
        for j in range(width):
            row, column = i + down - pad, (width - 1 - j if mirrored else j) + right - pad
            if 0 <= row < height and 0 <= column < width:
                out[:, i, j] = x[:, row, column]
    return out


def test_a_crop_is_what_it_is_by_hand_and_every_one_can_be_drawn() -> None:
    x = torch.rand(1, 2, 4, 5, generator=torch.Generator().manual_seed(0))
    for down in range(5):
        for right in range(5):
            for flip in (0.2, 0.9):
                u = torch.tensor([[down / 5 + 0.01, right / 5 + 0.01, flip]])
                expected = by_hand(x[0], down, right, flip < 0.5, 2)
                assert torch.equal(CropAndFlip(pad=2)(x, u)[0], expected)
    nearly_one = torch.tensor([[1 - 2**-24] * 3])
    assert torch.equal(CropAndFlip(pad=2)(x, nearly_one)[0], by_hand(x[0], 4, 4, False, 2))
    assert torch.equal(CropAndFlip(pad=0, flip=False)(x, nearly_one[:, :2]), x)


def trained(augment: Augmentation | None, seed: int = 5, **how: Any) -> Tensor:
    run = honestdp.Run(records=RECORDS, lot=LOT, steps=STEPS, noise=0.01)
    rule = honestdp.optimizers.SGD(lr=0.5, clip=1.0)
    result = honestdp.train(
        model(), images(), run=run, optimizer=rule, delta=1e-5, noise_seed=seed, augment=augment, **how
    )
    return torch.cat([value.flatten() for value in result.model.parameters()])


def test_a_training_reads_variants_and_repeats_them_by_its_seed() -> None:
    plain, varied = trained(None), trained(CropAndFlip(pad=1))
    assert not torch.equal(plain, varied)
    assert torch.equal(varied, trained(CropAndFlip(pad=1)))
    nothing = PerRecord(lambda x, u: x + 0 * u[0])
    assert torch.equal(plain, trained(nothing)), "its numbers are taken from a generator of their own"


def test_a_resumed_training_reads_the_same_variants_bit_for_bit(tmp_path: Path) -> None:
    whole = trained(CropAndFlip(pad=1))
    calls = []

    def stop(step: int, _: nn.Module) -> None:
        calls.append(step)
        if step == 4 and len(calls) < 7:
            raise KeyboardInterrupt

    compute = honestdp.Compute(checkpoint=tmp_path / "kept", checkpoint_seconds=0)
    with pytest.raises(KeyboardInterrupt):
        trained(CropAndFlip(pad=1), compute=compute, on_step=stop, every=1)
    with pytest.raises(InvalidArgument, match="augmentation"):
        trained(CropAndFlip(pad=2), compute=compute)
    with pytest.raises(InvalidArgument, match="augmentation"):
        trained(None, compute=compute)
    assert torch.equal(whole, trained(CropAndFlip(pad=1), compute=compute))


def population(augment: Augmentation | None, data: tuple[Tensor, Tensor], runs: int = 2) -> Population:
    module = model()
    private = PrivateData(data).augmented(augment)
    intake = take_in(module, private, records=RECORDS, loss=None, device=CPU, workers=0)
    constants = constants_of(intake, records=RECORDS, lot=LOT, steps=STEPS, noise=[0.0] * runs)
    rule = stack_rules([honestdp.optimizers.SGD(lr=0.5, clip=1.0)] * runs, dtype=torch.float32, device=CPU)
    mechanism = intake.mechanism(constants, seed=Seed.fixed(1), secure=False, pause=2)
    return Population(mechanism, rule, stack([module] * runs, intake.layout, CPU))


def test_a_snapshot_between_blocks_holds_the_generator_of_the_variants() -> None:
    some = population(CropAndFlip(pad=1), images())
    some.block()
    kept = some.snapshot()
    assert kept.step == 2
    while some.step < STEPS:
        some.block()
    again = population(CropAndFlip(pad=1), images())
    again.restore(kept)
    while again.step < STEPS:
        again.block()
    assert torch.equal(some.weights(), again.weights())


def test_every_step_run_and_record_has_a_variant_of_its_own() -> None:
    """Of all numbers that variants were made by, `[runs, width, 3]` a step, none is given twice."""
    seen: list[Tensor] = []
    original = torch.rand

    def noted(*args: Any, **kwargs: Any) -> Tensor:
        drawn = original(*args, **kwargs)
        if drawn.dim() == 3 and drawn.shape[2] == 3:
            seen.append(drawn)
        return drawn

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("honestdp.boundary.mechanism.torch.rand", noted)
        some = population(CropAndFlip(pad=1), images())
        while some.step < STEPS:
            some.block()
    numbers = torch.cat([drawn.flatten() for drawn in seen])
    assert len(seen) == STEPS
    assert len(numbers.unique()) > 0.99 * len(numbers)


def test_two_runs_that_read_the_same_records_read_other_variants_of_them() -> None:
    shift = Variants(PerRecord(lambda x, u: x + u), CPU, Seed.fixed(5), width=8)
    made = torch.stack([shift.of(torch.zeros(3, 8, 1)) for _ in range(2)])
    assert len(made.unique()) == made.numel()


def test_what_is_known_of_a_record_is_not_taken_for_known_of_its_variant() -> None:
    """A GPU gathers records together with their norms, and bytes are finite; what a variant is follows from neither."""
    some = population(CropAndFlip(pad=1), images())._mechanism
    fetched = some._records.fetch
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(some._records, "fetch", lambda at: fetched(at)._replace(norms=torch.zeros(at.shape)))
        examples = some._examples(torch.zeros(2, 3, dtype=torch.int64), torch.ones(2, 3))
    assert some._records.finite
    assert (examples.norms, examples.finite) == (None, False)


def test_a_variant_that_is_no_number_adds_nothing() -> None:
    broken = PerRecord(lambda x, u: torch.where(u[0] < 0.5, x * torch.nan, x))
    some = population(broken, images())
    while some.step < STEPS:
        some.block()
    assert torch.isfinite(some.weights()).all()


def test_one_record_moves_a_sum_by_at_most_the_clip_whatever_its_variant() -> None:
    """Without noise: a record that is added changes the first step by no more than lr * clip / lot; it is in the lot or not."""
    x, y = images()
    others = x.clone()
    others[7] = 255 - others[7]
    moved = []
    for data in ((x, y), (others, y)):
        some = population(CropAndFlip(pad=2), data)
        some.block(look=1)
        moved.append(some.weights())
    # One record is another: at most two clips.
    assert ((moved[0] - moved[1]).norm(dim=1) <= 2 * 0.5 * 1.0 / LOT + 1e-6).all()


@dataclass(frozen=True)
class Mixing(Augmentation):
    """Takes the mean of the lot where it gets one; its class has a way for many that is never used."""

    draws: int = 1

    def one(self, x: Any, u: Tensor) -> Any:
        return x * (0.5 + u[0])

    def __call__(self, x: Any, u: Tensor) -> Any:
        return x.mean(0, keepdim=True).expand_as(x)


def test_a_users_own_class_is_shown_one_record_at_a_time() -> None:
    x, u = torch.rand(4, 3), torch.rand(4, 1)
    assert torch.allclose(variants(Mixing(), x, u), x * (0.5 + u))


class Brightened(CropAndFlip):
    """A class of one's own that derives from ours."""

    def one(self, x: Any, u: Tensor) -> Any:
        return x * 2

    def __call__(self, x: Any, u: Tensor) -> Any:
        return x.mean(0, keepdim=True).expand_as(x)


def test_a_class_that_derives_from_one_of_ours_is_shown_one_record_at_a_time_too() -> None:
    x = torch.rand(4, 1, 3, 3)
    assert torch.equal(variants(Brightened(), x, torch.rand(4, 3)), x * 2)


@pytest.mark.parametrize(
    ("augment", "said"),
    [
        (PerRecord(lambda x, u: x[:, :3]), "keeps the shape"),
        (PerRecord(lambda x, u: x.double()), "keeps the shape"),
        (PerRecord(lambda x, u: x + torch.rand(1)), "one that takes"),
        (PerRecord(lambda x, u: x if u[0] < 0.5 else -x), "one that takes"),
        ("crop", "honestdp.augment"),
        (lambda x, u: x, "honestdp.augment"),
    ],
)
def test_what_cannot_be_used_is_refused_before_a_record_is_read(augment: Any, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        PrivateData(images()).augmented(augment)


def test_a_function_that_keeps_something_of_earlier_records_is_refused() -> None:
    calls: list[int] = []

    def counting(x: Tensor, u: Tensor) -> Tensor:
        calls.append(0)
        return x * len(calls)

    with pytest.raises(InvalidArgument, match="other company"):
        PrivateData(images()).augmented(PerRecord(counting))


def test_flat_images_are_refused_with_the_way_out() -> None:
    with pytest.raises(InvalidArgument, match="reshape x"):
        PrivateData((torch.zeros(4, 36, dtype=torch.uint8), torch.zeros(4).long())).augmented(CropAndFlip())


def test_a_statement_says_how_records_were_varied() -> None:
    run = honestdp.Run(records=RECORDS, lot=LOT, steps=2, noise=1.0)
    result = honestdp.train(model(), images(), run=run, delta=1e-5, augment=CropAndFlip(pad=1))
    assert "varied by itself: CropAndFlip(pad=1, flip=True)" in str(result.statement)


@pytest.mark.slow
def test_a_search_trains_on_variants_and_another_augmentation_is_another_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def counted(self: Variants, x: Tensor) -> Tensor:
        made.append(x.shape)
        return original(self, x)  # type: ignore[return-value]

    original = Variants.of
    monkeypatch.setattr(Variants, "of", counted)
    asked = {
        "budget": honestdp.Budget(epsilon=20.0, delta=1e-3), "optimizer": "sgd", "selection": "compose", "lot": 8.0,
        "space": {"lr": [0.5, 1.0], "clip": 1.0}, "steps": 2, "noise_seed": 1, "out": tmp_path / "search",
    }  # fmt: skip
    result = honestdp.tune(model, images(), augment=CropAndFlip(pad=1), **asked)
    assert len(made) >= 4
    assert "varied by itself: CropAndFlip(pad=1, flip=True)" in str(result.statement)
    for other in (CropAndFlip(pad=2), None):
        with pytest.raises(InvalidArgument, match="augment"):
            honestdp.tune(model, images(), augment=other, **asked)
