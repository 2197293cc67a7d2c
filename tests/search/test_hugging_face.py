"""A search over a model of transformers with an attention mask, random weights: trained and scored by its logits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

transformers = pytest.importorskip(
    "transformers", reason="NOT TESTED: transformers is not installed, see the dev extra"
)

import honestdp  # noqa: E402
from honestdp.selection import Compose  # noqa: E402

RECORDS = 60


def make() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        max_position_embeddings=8, num_labels=2,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config)


def records() -> tuple[dict[str, Tensor], Tensor]:
    maker = torch.Generator().manual_seed(0)
    mask = (torch.arange(5) < torch.randint(1, 6, (RECORDS, 1), generator=maker)).long()
    ids = torch.randint(3, 20, (RECORDS, 5), generator=maker) * mask
    return {"input_ids": ids, "attention_mask": mask}, ids[:, 0] % 2


@pytest.mark.slow
@pytest.mark.parametrize("strict", [False, True])
def test_a_search_trains_and_scores_it(strict: bool) -> None:
    settings: dict[str, Any] = {"optimizer": "sgd", "space": {"lr": [0.1, 1.0], "clip": 1.0}, "lot": 20, "steps": 4}
    result = honestdp.tune(
        make, records(), budget=honestdp.Budget(20.0, 1e-3), selection=Compose(candidates=2), strict=strict, **settings
    )
    assert result.score is not None
    x, _ = records()
    assert result.model(**x).logits.shape == (RECORDS, 2)
