"""Models of transformers with an attention mask, random weights: gradients are those of plain autograd, mixing is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

transformers = pytest.importorskip(
    "transformers", reason="NOT TESTED: transformers is not installed, see the dev extra"
)

from honestdp.gradients import RefusedModel, inputs, per_example  # noqa: E402
from honestdp.gradients.layers.attention import MappableAttention, attention  # noqa: E402
from honestdp.losses import cross_entropy  # noqa: E402

SIZES: dict[str, Any] = {"vocab_size": 20, "num_labels": 3, "pad_token_id": 0}


def bert() -> nn.Module:
    config = transformers.BertConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, max_position_embeddings=8,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **SIZES,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config)


def distilbert() -> nn.Module:
    config = transformers.DistilBertConfig(
        dim=8, n_layers=1, n_heads=2, hidden_dim=8, max_position_embeddings=8, dropout=0.0, attention_dropout=0.0,
        seq_classif_dropout=0.0, **SIZES,
    )  # fmt: skip
    return transformers.DistilBertForSequenceClassification(config)


def gpt2() -> nn.Module:
    """It also gives back a cache, which is no tensor."""
    config = transformers.GPT2Config(
        n_embd=8, n_layer=1, n_head=2, n_positions=8, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1,
        eos_token_id=2, **SIZES,
    )  # fmt: skip
    return transformers.GPT2ForSequenceClassification(config)


def lot(lengths: list[int]) -> tuple[dict[str, Tensor], Tensor]:
    """One run's, padded as a tokenizer pads."""
    mask = (torch.arange(5) < torch.tensor(lengths)[:, None]).long()
    ids = torch.randint(3, 20, (len(lengths), 5), generator=torch.Generator().manual_seed(0)) * mask
    y = torch.arange(len(lengths)) % 3
    return {"input_ids": ids[None], "attention_mask": mask[None]}, y[None]


@pytest.mark.parametrize("make", [bert, distilbert, gpt2])
def test_gradients_of_masked_sequences_are_those_of_autograd(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    model = make().double()
    x, y = lot([5, 2, 4])
    params = {name: value.detach()[None].clone() for name, value in model.named_parameters()}
    result = per_example(model, cross_entropy, params, x, y)
    found = result.weighted_sum(torch.tensor([[1.0, 0.5, 0.25]], dtype=torch.float64))
    own = dict(model.named_parameters())
    norms, total = [], torch.zeros((), dtype=torch.float64)
    for place, weight in enumerate((1.0, 0.5, 0.25)):
        alone = inputs.rows(x, (0, slice(place, place + 1)))
        number = cross_entropy(inputs.call(model, alone), y[0, place : place + 1]).squeeze(0)
        parts = torch.autograd.grad(
            number, list(own.values()), retain_graph=True, materialize_grads=True, allow_unused=True
        )
        norms.append(torch.cat([part.flatten() for part in parts]).norm())
        total = total + weight * number
    torch.testing.assert_close(result.norms[0], torch.stack(norms))
    expected = torch.autograd.grad(total, list(own.values()), materialize_grads=True, allow_unused=True)
    for name, value in zip(own, expected, strict=True):
        torch.testing.assert_close(found[name][0], value)


class Counting(nn.Module):
    """Weighs its logits by how much of the whole lot is padding."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = distilbert()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        output = self.inner(input_ids=input_ids, attention_mask=attention_mask)
        output.logits = output.logits * attention_mask.double().mean()
        return output


def test_one_that_counts_the_padding_of_a_lot_is_refused() -> None:
    model = Counting().double()
    x, y = lot([5, 2, 4])
    params = {name: value.detach()[None].clone() for name, value in model.named_parameters()}
    with pytest.raises(RefusedModel, match="mix examples"):
        per_example(model, cross_entropy, params, x, y)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("make", [transformers.BertConfig, transformers.GPT2Config])
def test_one_that_drops_within_its_attention_is_mapped(make: Any, strict: bool) -> None:
    """As every model of transformers does that is trained as it comes."""
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = make(**sizes, **SIZES, bos_token_id=1, eos_token_id=2)
    model = transformers.AutoModelForSequenceClassification.from_config(config).train()
    x, y = lot([5, 2, 4])
    params = {name: value.detach()[None].clone() for name, value in model.named_parameters()}
    torch.manual_seed(0)
    found = [per_example(model, cross_entropy, params, x, y, strict=strict).norms for _ in range(2)]
    assert torch.isfinite(torch.stack(found)).all()
    assert not torch.equal(*found), "nothing was dropped"


def test_attention_by_hand_is_torchs_own() -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(2, 4, 3, 6), torch.randn(2, 2, 5, 6), torch.randn(2, 2, 5, 6)
    seen = torch.rand(2, 1, 3, 5) > 0.4
    seen[0, 0, 1] = False
    for more in (
        {"attn_mask": seen},
        {"attn_mask": torch.randn(2, 1, 3, 5), "scale": 0.3},
        {"is_causal": True},
    ):
        expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, enable_gqa=True, **more)
        torch.testing.assert_close(attention(query, key, value, enable_gqa=True, **more), expected)
    with MappableAttention():
        half = torch.nn.functional.scaled_dot_product_attention(query, query, query, None, 0.5)
        none = torch.nn.functional.scaled_dot_product_attention(query, query, query, dropout_p=0.0)
    assert not torch.allclose(half, none)
