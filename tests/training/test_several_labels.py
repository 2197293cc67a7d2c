"""Labels of several tensors reach the loss in the layout of the data, with all their digits, in every way of training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

pytest.importorskip("safetensors")

import honestdp
from honestdp import Budget, Compute, DeclaredMetric, Run
from honestdp import optimizers as rules
from honestdp.augment import PerRecord
from honestdp.boundary.data import PrivateData
from honestdp.boundary.mechanism import Mechanism
from honestdp.boundary.seed import Seed
from honestdp.checks import InvalidArgument
from honestdp.training.train import Interrupted

N = 60
_maker = torch.Generator().manual_seed(0)
X = torch.randn(N, 5, generator=_maker)
CLASS = torch.randint(0, 3, (N,), generator=_maker)
SCORE = torch.randn(N, 2, generator=_maker)
ID = torch.arange(N) + 2**24 + 1
NAMED = {"cls": CLASS, "score": SCORE}
PLAIN = (CLASS, SCORE)
STACKED = torch.cat([CLASS[:, None].float(), SCORE], 1)
RUN = Run(records=N, lot=20, steps=6, noise=0.9)


class Heads(nn.Module):
    """Two tasks over one hidden layer."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.first, self.second = nn.Linear(5, 4), nn.Linear(4, 3), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        hidden = self.body(x).tanh()
        return {"cls": self.first(hidden), "score": self.second(hidden)}


def loss_of(output: Any, cls: Tensor, score: Tensor) -> Tensor:
    both = functional.cross_entropy(output["cls"], cls, reduction="none")
    return both + (output["score"] - score).square().sum(1)


def of_a_dict(output: Any, y: Any) -> Tensor:
    assert type(y) is dict
    return loss_of(output, y["cls"], y["score"])


def of_a_tuple(output: Any, y: Any) -> Tensor:
    assert type(y) is tuple
    return loss_of(output, *y)


def of_one(output: Any, y: Tensor) -> Tensor:
    return loss_of(output, y[:, 0].long(), y[:, 1:])


def heads() -> nn.Module:
    torch.manual_seed(0)
    return Heads()


def flat(model: nn.Module) -> Tensor:
    return torch.cat([value.detach().flatten() for value in model.parameters()])


def weights(y: Any, loss: Any, *, x: Any = X, data: Any = None, **more: Any) -> Tensor:
    settings: dict[str, Any] = {
        "run": RUN,
        "optimizer": rules.SGD(lr=0.5, clip=1.0),
        "delta": 1e-5,
        "noise_seed": 3,
        **more,
    }
    return flat(honestdp.train(heads(), (x, y) if data is None else data, loss=loss, **settings).model)


class Listed(Dataset[Any]):
    """Records with labels of a dict, a tuple, or a tuple of plain numbers."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> Any:
        if self.kind == "a dict under labels":
            return {"x": X[index], "labels": {name: part[index] for name, part in NAMED.items()}}
        if self.kind == "a tuple with a plain number":
            return X[index], (int(CLASS[index]), SCORE[index].numpy())
        return X[index], {"cls": CLASS[index], "score": SCORE[index]}


LAYOUTS: dict[str, tuple[Any, Any]] = {
    "a dict": ((X, NAMED), of_a_dict),
    "a tuple": ((X, PLAIN), of_a_tuple),
    "arrays": ((X.numpy(), {name: part.numpy() for name, part in NAMED.items()}), of_a_dict),
    "labels in a dict": ({"x": X, "labels": NAMED}, of_a_dict),
    "a Dataset of dicts": (Listed("a dict"), of_a_dict),
    "a Dataset with labels": (Listed("a dict under labels"), of_a_dict),
    "a Dataset of tuples": (Listed("a tuple with a plain number"), of_a_tuple),
}


@pytest.fixture(scope="module")
def expected() -> Tensor:
    return weights(STACKED, of_one)


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_of_labels_trains_the_same_model(layout: str, expected: Tensor) -> None:
    data, loss = LAYOUTS[layout]
    assert torch.equal(weights(None, loss, data=data), expected)


def test_labels_on_a_disk_train_the_same_model(tmp_path: Path, expected: Tensor) -> None:
    np.save(tmp_path / "x.npy", X.numpy())
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert torch.equal(weights({name: part.numpy() for name, part in NAMED.items()}, of_a_dict, x=x), expected)


def test_workers_and_maps_over_single_examples_train_it_too(expected: Tensor) -> None:
    assert torch.equal(weights(None, of_a_dict, data=Listed("a dict"), compute=Compute(workers=1)), expected)
    torch.testing.assert_close(weights(NAMED, of_a_dict, strict=True), expected, atol=1e-4, rtol=1e-3)


def test_a_loss_that_reads_numbers_gets_the_labels_of_one_example_at_a_time(expected: Tensor) -> None:
    def reading(output: Any, y: Any) -> Tensor:
        return of_a_dict(output, y) * (2.0 if float(y["score"].sum()) > 1e9 else 1.0)

    torch.testing.assert_close(weights(NAMED, reading), expected, atol=1e-4, rtol=1e-3)


def test_people_and_augmented_records_take_several_labels() -> None:
    person, run = np.arange(N) // 3, Run(records=N // 3, lot=5, steps=4, noise=0.9)
    found = [
        weights(None, loss, data=honestdp.by_person((X, y), person, rows=2), run=run)
        for y, loss in ((NAMED, of_a_dict), (STACKED, of_one))
    ]
    assert torch.equal(*found)
    varied = PerRecord(lambda x, u: x * (1 + u[0]), draws=1)
    assert torch.equal(*(weights(y, loss, augment=varied) for y, loss in ((PLAIN, of_a_tuple), (STACKED, of_one))))


def test_whole_numbers_keep_all_their_digits() -> None:
    y = {"id": ID, "cls": CLASS.to(torch.int32)}
    source = PrivateData((X, y))._open(device=torch.device("cpu"), dtype=torch.float32, workers=0)
    lot = torch.tensor([[3, 7], [0, 19]])
    fetched = source.fetch(lot).y
    assert isinstance(fetched, dict)
    assert torch.equal(fetched["id"], ID[lot])
    assert fetched["cls"].dtype == torch.int64
    _, validation = PrivateData((X, y)).split(np.arange(N) % 2 == 0)
    gathered = validation._gathered(dtype=torch.float32, device=torch.device("cpu"), workers=0, seed=Seed.fixed(0))[1]
    assert isinstance(gathered, dict)
    assert torch.equal(gathered["id"], ID[::2])


def test_a_training_goes_on_from_its_checkpoint_and_not_with_another_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long: dict[str, Any] = {"run": Run(records=N, lot=10, steps=150, noise=0.9)}
    path, expected, eager, made = tmp_path / "kept", weights(NAMED, of_a_dict, **long), Mechanism._eager, [0]

    def stopping(self: Mechanism, *args: Any) -> Any:
        made[0] += 1
        if made[0] == 100:
            raise KeyboardInterrupt
        return eager(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Mechanism, "_eager", stopping)
        with pytest.raises(Interrupted):
            weights(NAMED, of_a_dict, compute=Compute(checkpoint=path, checkpoint_seconds=1e9), **long)
    others = {**NAMED, "score": SCORE.roll(1, 0)}, {"score": SCORE, "cls": CLASS}
    for other in others:
        with pytest.raises(InvalidArgument, match="checkpoint"):
            weights(other, of_a_dict, compute=Compute(checkpoint=path), **long)
    assert torch.equal(weights(NAMED, of_a_dict, compute=Compute(checkpoint=path), **long), expected)


def right(output: Any, y: Any) -> Tensor:
    return output["cls"].argmax() == y["cls"]


SEARCH: dict[str, Any] = {
    "budget": Budget(8, 1e-4), "optimizer": "sgd", "space": {"lr": [0.1, 0.5], "clip": 1.0}, "lot": 20, "steps": 4,
    "validation": 0.5, "noise_seed": 1,
}  # fmt: skip


@pytest.mark.slow
def test_a_search_trains_and_scores_with_several_labels() -> None:
    def right_of_one(output: Any, y: Tensor) -> Tensor:
        return output["cls"].argmax() == y[0]

    found = [
        honestdp.tune(heads, (X, y), loss=loss, metric=DeclaredMetric(metric, low=0, high=1), **SEARCH)
        for y, loss, metric in ((NAMED, of_a_dict, right), (STACKED, of_one, right_of_one))
    ]
    assert found[0].hyperparameters == found[1].hyperparameters
    assert found[0].score is not None
    assert found[1].score is not None
    assert found[0].score.value == found[1].score.value
    assert torch.equal(flat(found[0].model), flat(found[1].model))
    clipped = honestdp.tune(heads, (X, NAMED), loss=of_a_dict, metric=honestdp.ClippedLoss(5.0), **SEARCH)
    assert clipped.score is not None


@pytest.mark.slow
@pytest.mark.parametrize("metric", [None, "accuracy", "log loss"])
def test_a_metric_of_one_label_is_refused_with_those_that_take_several(metric: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"metric must be .*labels of several tensors honestdp\.DeclaredMetric"):
        honestdp.tune(heads, (X, NAMED), loss=of_a_dict, metric=metric, **SEARCH)


@pytest.mark.parametrize("optimizer", [None, "horizon"])
def test_without_a_loss_one_is_asked_for(optimizer: Any) -> None:
    wanted = r"loss must be given where labels are several tensors: loss\(output, y\) .* got .*\['cls', 'score'\]"
    with pytest.raises(InvalidArgument, match=wanted):
        honestdp.train(heads(), (X, NAMED), run=RUN, optimizer=optimizer)
    with pytest.raises(InvalidArgument, match=r"y\[0\] is the first of them"):
        honestdp.train(heads(), (X, PLAIN), run=RUN, optimizer=optimizer, loss=honestdp.losses.cross_entropy)


def test_labels_of_another_number_of_records_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="60 inputs and 59 labels"):
        PrivateData((X, {"cls": CLASS, "score": SCORE[1:]}))


@pytest.mark.parametrize("which", NAMED)
def test_a_loss_that_mixes_the_labels_of_a_lot_is_refused(which: str) -> None:
    def loss(output: Any, y: Any) -> Tensor:
        return of_a_dict(output, y) * (1 + y[which].float().square().mean())

    with pytest.raises(InvalidArgument, match="loss that mixes examples"):
        weights(NAMED, loss)


def test_a_loss_that_fails_on_the_labels_is_told_what_they_are() -> None:
    with pytest.raises(InvalidArgument, match=r"cls torch\.int64 \[\], score torch\.float32 \[2\]"):
        weights(NAMED, lambda output, y: loss_of(output, y["cls"], y["missing"]))


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["a dict", "a tuple"])
def test_a_record_with_one_label_that_is_no_class_contributes_nothing(layout: str) -> None:
    """And does not stop the training, which would tell that it is there."""
    wrong = CLASS.clone()
    wrong[7] = 12
    y, loss = ({"cls": wrong, "score": SCORE}, of_a_dict) if layout == "a dict" else ((wrong, SCORE), of_a_tuple)
    x = X.clone()
    x[7] = torch.nan  # contributes nothing either
    silent, given = (weights(NAMED, of_a_dict, x=x), weights(y, loss))
    assert torch.equal(silent, given)
    assert not torch.equal(given, weights(NAMED, of_a_dict))
