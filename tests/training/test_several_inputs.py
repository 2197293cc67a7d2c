"""Trainings of models of several inputs: in every layout the same, with workers, from a checkpoint, strictly, and refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

pytest.importorskip("safetensors")

import honestdp
from honestdp import Compute, Run
from honestdp import optimizers as rules
from honestdp.boundary.mechanism import Mechanism
from honestdp.checks import InvalidArgument
from honestdp.gradients import RefusedModel
from honestdp.losses import cross_entropy
from honestdp.training.train import Interrupted
from tests.several_inputs import RECORDS, InTwo, Named, Reader, records

X, Y = records()
RUN = Run(records=RECORDS, lot=10, steps=6, noise=0.9)


def dict_of(logits: Tensor, hidden: Tensor) -> dict[str, Any]:
    return {"hidden": hidden, "logits": logits, "cache": None}


def weights(data: Any, model: nn.Module | None = None, **more: Any) -> Tensor:
    torch.manual_seed(0)
    model = Reader(dict_of) if model is None else model
    settings = {"run": RUN, "optimizers": [rules.SGD(lr=0.5, clip=1.0), rules.Adam(clip=0.5)], "delta": 1e-5}
    results = honestdp.train_population(model, data, **{**settings, "noise_seed": 3, **more})
    return torch.stack([torch.cat([p.detach().flatten() for p in r.model.parameters()]) for r in results])


def test_every_layout_trains_the_same_models() -> None:
    expected = weights((X, Y))
    start = torch.cat([p.detach().flatten() for p in _start().parameters()])
    assert not torch.allclose(expected[0], start)
    assert not torch.equal(expected[0], expected[1])
    for data in (tuple(X.values()), Y), {**X, "labels": Y}, TensorDataset(*X.values(), Y):
        assert torch.equal(weights(data), expected)


def _start() -> nn.Module:
    torch.manual_seed(0)
    return Reader(dict_of)


@pytest.mark.parametrize("kind", [Named, InTwo])
def test_a_dataset_decoded_by_workers_trains_the_same_models(kind: Any) -> None:
    expected = weights((X, Y))
    assert torch.equal(weights(kind(X, Y), compute=Compute(workers=1)), expected)


def test_a_strict_training_is_the_same_but_for_rounding() -> None:
    torch.testing.assert_close(weights((X, Y), strict=True), weights((X, Y)), atol=1e-4, rtol=1e-3)


def test_a_mask_matters_to_what_is_trained() -> None:
    everything = {**X, "mask": torch.ones_like(X["mask"])}
    assert not torch.allclose(weights((everything, Y)), weights((X, Y)))


@pytest.mark.slow
def test_a_training_goes_on_from_its_checkpoint_and_not_with_another_mask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long: dict[str, Any] = {"run": Run(records=RECORDS, lot=10, steps=150, noise=0.9)}
    path, expected, eager, made = tmp_path / "kept", weights((X, Y), **long), Mechanism._eager, [0]

    def stopping(self: Mechanism, *args: Any) -> Any:
        made[0] += 1
        if made[0] == 100:
            raise KeyboardInterrupt
        return eager(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Mechanism, "_eager", stopping)
        with pytest.raises(Interrupted):
            weights((X, Y), compute=Compute(checkpoint=path, checkpoint_seconds=1e9), **long)
    other = {**X, "mask": X["mask"].roll(1, 0)}
    with pytest.raises(InvalidArgument, match="checkpoint"):
        weights((other, Y), compute=Compute(checkpoint=path), **long)
    assert torch.equal(weights((X, Y), compute=Compute(checkpoint=path), **long), expected)


@pytest.mark.slow
def test_a_loss_of_ones_own_gets_the_whole_output() -> None:
    def loss(output: Any, y: Tensor) -> Tensor:
        assert type(output) is dict
        return cross_entropy(output["logits"], y) + 0.1 * output["hidden"].square().sum(1)

    assert not torch.equal(weights((X, Y), loss=loss), weights((X, Y)))


class Careless(Reader):
    """Centres a record's table by that of the others, or weighs it by how much of the lot counts."""

    def __init__(self, by: str) -> None:
        super().__init__()
        self.by = by

    def forward(self, ids: Tensor, mask: Tensor, table: Tensor) -> Any:
        changed = table * mask.sum() if self.by == "mask" else table - table.mean(0)
        return super().forward(ids, mask, changed)


@pytest.mark.parametrize("by", ["mask", "table"])
def test_a_model_that_mixes_one_input_is_refused_before_a_step(by: str) -> None:
    with pytest.raises(RefusedModel, match="mix examples"):
        weights((X, Y), Careless(by))


def test_a_model_without_that_argument_is_refused_in_words() -> None:
    with pytest.raises(
        InvalidArgument, match=r"records of inputs ids torch\.int64 \[5\], .* extra .*unexpected keyword"
    ):
        weights(({**X, "extra": X["table"]}, Y))


@pytest.mark.slow
def test_a_label_never_reaches_the_model() -> None:
    class Curious(Reader):
        def forward(self, ids: Tensor, mask: Tensor, table: Tensor, labels: Tensor | None = None) -> Any:
            assert labels is None
            return super().forward(ids, mask, table)

    assert weights({**X, "labels": Y}, Curious()).isfinite().all()


def test_a_loss_of_tensors_for_a_dict_is_told_what_it_gets() -> None:
    with pytest.raises(
        InvalidArgument, match=r"whole output, a dict here, .* loss=lambda output, y: .*CrossEntropyLoss"
    ):
        weights((X, Y), loss=nn.CrossEntropyLoss(reduction="none"))


@dataclass
class Answer:
    logits: Tensor
    hidden: Tensor


def test_a_dataclass_is_understood_once_torch_knows_it() -> None:
    with pytest.raises(InvalidArgument, match=r"torch\.export\.register_dataclass"):
        weights((X, Y), Reader(Answer))
    torch.export.register_dataclass(Answer)
    torch.manual_seed(0)
    assert torch.equal(weights((X, Y), Reader(Answer)), weights((X, Y)))
