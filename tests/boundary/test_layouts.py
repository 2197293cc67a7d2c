"""Layouts of data: which of them are a record's inputs and which its label, and how inputs reach a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset, TensorDataset

import honestdp
from honestdp.boundary.data import PrivateData
from honestdp.boundary.intake import open_door
from honestdp.boundary.scores import ScoreDoor
from honestdp.boundary.seed import Seed
from honestdp.checks import InvalidArgument
from honestdp.gradients import inputs
from honestdp.losses import cross_entropy
from tests.several_inputs import InTwo, Named, Reader, records

X, Y = records(20)
ROWS = tuple(X.values())


def on_disk(folder: Path) -> Any:
    parts = {}
    for name, part in X.items():
        np.save(folder / f"{name}.npy", part.numpy())
        parts[name] = np.load(folder / f"{name}.npy", mmap_mode="r")
    return parts, Y.numpy()


LAYOUTS: dict[str, Any] = {
    "a tuple": lambda _: (ROWS, Y),
    "a list": lambda _: (list(ROWS), Y),
    "a dict": lambda _: (X, Y),
    "arrays": lambda _: ({name: part.numpy() for name, part in X.items()}, Y.numpy()),
    "with labels": lambda _: {**X, "labels": Y},
    "with a label": lambda _: {"label": Y, **X},
    "TensorDataset": lambda _: TensorDataset(*ROWS, Y),
    "a part of it": lambda _: Subset(TensorDataset(*(part.repeat_interleave(2, 0) for part in (*ROWS, Y))), range(0, 40, 2)),
    "a Dataset of dicts": lambda _: Named(X, Y),
    "a Dataset of tuples": lambda _: InTwo(X, Y),
    "on a disk": on_disk,
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_records(layout: str, tmp_path: Path) -> None:
    data = PrivateData(LAYOUTS[layout](tmp_path))
    assert len(data) == 20
    source = data._open(device=torch.device("cpu"), dtype=torch.float32, workers=0)
    lot = torch.tensor([[3, 7], [0, 19]])
    source.expect([lot], Seed.fixed(0))
    x, y, _, _ = source.fetch(lot)
    assert torch.equal(y, Y[lot])
    for part, expected in zip(inputs.leaves(x), ROWS, strict=True):
        wanted = expected[lot]
        assert part.dtype == (torch.float32 if wanted.is_floating_point() else wanted.dtype)
        assert torch.equal(part, wanted.to(part.dtype))
    assert list(x) == list(X) if isinstance(x, dict) else isinstance(x, tuple)
    training, validation = data.split(np.arange(20) % 2 == 0)
    whole, labels = validation._gathered(dtype=torch.float32, device=torch.device("cpu"), workers=0, seed=Seed.fixed(0))
    assert torch.equal(inputs.first(whole), X["ids"][::2])
    assert torch.equal(labels, Y[::2])
    assert len(training) == 10
    blank, _ = source.blank(Reader())
    ids, mask, table = inputs.leaves(blank)
    assert mask.all()
    assert not ids.any()
    assert not table.any()


class Alone(Dataset[Any]):
    """Records without labels."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> tuple[Tensor]:
        return (X["table"][index],)


NO_LABELS: dict[str, Any] = {
    "a tensor": lambda x: x,
    "an array": lambda x: x.numpy(),
    "a tuple of one": lambda x: (x,),
    "a list of one": lambda x: [x],
    "with None": lambda x: (x, None),
    "an array with None": lambda x: (x.numpy(), None),
    "TensorDataset": TensorDataset,
    "a part of it": lambda x: Subset(TensorDataset(x), range(20)),
    "a Dataset": lambda _: Alone(),
    "a dict": lambda x: ({"table": x},),
    "a dict with None": lambda x: ({"table": x}, None),
}


@pytest.mark.parametrize("layout", NO_LABELS)
def test_records_without_labels_have_a_label_of_no_numbers(layout: str) -> None:
    data = PrivateData(NO_LABELS[layout](X["table"]))
    assert len(data) == 20
    source = data._open(device=torch.device("cpu"), dtype=torch.float32, workers=0)
    lot = torch.tensor([[3, 7], [0, 19]])
    source.expect([lot], Seed.fixed(0))
    x, y, _, _ = source.fetch(lot)
    assert torch.equal(inputs.first(x), X["table"][lot].float())
    assert y.shape == (2, 2, 0)
    _, validation = data.split(np.arange(20) % 2 == 0)
    whole, labels = validation._gathered(dtype=torch.float32, device=torch.device("cpu"), workers=0, seed=Seed.fixed(0))
    assert torch.equal(inputs.first(whole), X["table"][::2].float())
    assert labels.shape == (10, 0)


def test_a_dict_without_a_label_has_to_be_meant() -> None:
    with pytest.raises(InvalidArgument, match=r"where there are no labels, \(inputs, None\)"):
        PrivateData(X)


def test_of_several_inputs_bools_and_whole_numbers_stay_as_they_are() -> None:
    """One tensor of pixels is scaled and one of bools becomes floating, as before."""
    kinds = (torch.uint8, torch.bool, torch.int32, torch.int64, torch.float16, torch.float64)
    x = tuple(torch.ones(4, 2, dtype=kind) for kind in kinds)
    several = PrivateData((x, Y[:4]))._open(device=torch.device("cpu"), dtype=torch.float32, workers=0)
    found = inputs.leaves(several.fetch(torch.zeros(1, 1).long()).x)
    assert [part.dtype for part in found] == [*kinds[:4], torch.float32, torch.float32]
    for part in x[:2]:
        alone = PrivateData((part, Y[:4]))._open(device=torch.device("cpu"), dtype=torch.float32, workers=0)
        assert inputs.first(alone.fetch(torch.zeros(1, 1).long()).x).dtype == torch.float32


def test_a_list_of_rows_is_one_array_as_before() -> None:
    data = PrivateData(([np.ones(3), np.zeros(3)], [0, 1]))
    assert data.shapes is not None
    assert data.shapes.words[0] == "[3] float64"


def test_shapes_name_every_input_and_hold_no_record() -> None:
    shapes = PrivateData((X, Y)).shapes
    assert shapes is not None
    assert shapes.words == ("'ids' [5] torch.int64, 'mask' [5] torch.bool, 'table' [3] torch.float64", "[] torch.int64")
    assert [len(part) for part in inputs.leaves(shapes.x)] == [0, 0, 0]
    assert not {part.untyped_storage().data_ptr() for part in inputs.leaves(shapes.x)} & {
        part.untyped_storage().data_ptr() for part in ROWS
    }


def test_a_fingerprint_is_of_every_input_and_of_its_name() -> None:
    other = {**X, "mask": X["mask"].clone()}
    other["mask"][3, 0] ^= True
    marks = {
        PrivateData(data).fingerprint()
        for data in ((X, Y), (other, Y), (ROWS, Y), ({"ids": X["ids"], "msk": X["mask"], "table": X["table"]}, Y))
    }
    assert len(marks) == 4


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"ids": X["ids"], "mask": X["mask"]}, r"label under the key 'labels' or 'label'.*got .*'ids', 'mask'"),
        (({"ids": X["ids"], "mask": X["mask"][:7]}, Y), "7 inputs and 20 labels"),
        (({"ids": X["ids"], "text": ["a"] * 20}, Y), r"data\[0\]\['text'\] must be an array or a tensor of numbers"),
        ((X["ids"], X["mask"], Y), "a pair .* each one of them or a tuple or a dict of them"),
    ],
)
def test_a_layout_that_is_not_understood_says_what_would_be(data: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        PrivateData(data)


class Attention(nn.Module):
    """Fails where nothing may be attended to."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(5, 2)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        if not mask.any(1).all():
            raise ValueError("nothing to attend to")
        return self.out(ids * mask)


def test_blank_records_are_ones_that_a_model_takes() -> None:
    """A batch of scores is filled up with them, and masks of zeros would make every record of it fail."""
    x, model, metric = {"ids": X["ids"].float(), "mask": X["mask"]}, Attention().eval(), honestdp.Accuracy()
    expected = (int(metric.units(model(**x).argmax(1) == Y).sum()),)
    blank = inputs.blank(model, x, 1)
    door = ScoreDoor(x, Y, loss=cross_entropy, metric=metric, noise=[(0,)], width=32, blank=blank)
    assert door.score(0, model) == expected
    zeros = ScoreDoor(x, Y, loss=cross_entropy, metric=metric, noise=[(0,)], width=32)
    assert zeros.score(0, model) == (-20,), "all of them failed"


@pytest.mark.slow
def test_the_door_of_scores_is_opened_with_such_blank_records() -> None:
    model, metric = Reader().double().eval(), honestdp.Accuracy()
    door = open_door(PrivateData((X, Y)), model, loss=None, metric=metric, noise=[(0,)], workers=0, seed=Seed.fixed(0))
    assert inputs.each(torch.all, door._blank)["mask"]
    assert door.score(0, model) == (int(metric.units(model(**X).argmax(1) == Y).sum()),)
