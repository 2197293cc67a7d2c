"""Attention and transformers keep books, whatever their masks: norms and sums are those of plain autograd."""

import pytest
import torch
from torch import Tensor, nn

from honestdp.gradients import per_example
from honestdp.gradients.bookkeeping import BookKeeping
from honestdp.gradients.branching import Reads
from honestdp.gradients.inputs import one_way
from honestdp.gradients.layers import attention
from honestdp.gradients.materialised import Materialised

from .plain_autograd import assert_agrees, drawn
from .test_layers import weighed


class Attending(nn.Module):
    """Attention of some sequences to others, with a mask made of the input."""

    def __init__(self, to: str, weights: bool = False, mask: str = "padding", **settings: object) -> None:
        super().__init__()
        self.first, self.attention = nn.Linear(6, 6), nn.MultiheadAttention(6, 2, **settings)
        self.head, self.whom, self.weights, self.mask = nn.Linear(6, 3), to, weights, mask

    def forward(self, x: Tensor) -> Tensor:
        one, other = self.first(x), self.first(x).tanh()
        padding = (x[..., 0] > 1).index_fill(1, torch.tensor([0]), False)
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        masks: dict[str, Tensor] = {}
        if "padding" in self.mask:
            masks["key_padding_mask"] = padding
        if "later" in self.mask:
            masks["attn_mask"] = later
        if self.mask == "each":  # for every head of every example
            masks["attn_mask"] = (padding[:, None] & ~torch.eye(x.shape[1], dtype=torch.bool)).repeat_interleave(2, 0)
        if not self.attention.batch_first:
            one, other = one.transpose(0, 1), other.transpose(0, 1)
        seen = {"itself": (one, one, one), "another": (one, other, other), "two": (one, other, one)}[self.whom]
        out, weights = self.attention(*seen, need_weights=self.weights, **masks)
        out = out if self.attention.batch_first else out.transpose(0, 1)
        return self.head(out) if weights is None else self.head(out) * weights.sum(1, keepdim=True).mT


ATTENDING = {
    "to itself": lambda: Attending("itself", batch_first=True),
    "to itself, no mask": lambda: Attending("itself", mask="", batch_first=True),
    "to itself, positions first": lambda: Attending("itself"),
    "to itself, later ones hidden, weights used": lambda: Attending("itself", True, "padding later", batch_first=True),
    "to itself, a mask for each head": lambda: Attending("itself", mask="each", batch_first=True),
    "to itself, no bias": lambda: Attending("itself", batch_first=True, bias=False),
    "to another": lambda: Attending("another", batch_first=True),
    "to two others": lambda: Attending("two", True, batch_first=True),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("name", ATTENDING)
def test_attention_gives_the_gradients_of_one_at_a_time_backward(name: str, runs: int, dtype: torch.dtype) -> None:
    torch.manual_seed(7)
    model = ATTENDING[name]().to(dtype)
    params = drawn(model, runs, dtype)
    x = torch.randn(runs, 4, 7, 6, dtype=torch.float64).to(dtype)
    y = torch.randn(runs, 4, 7, 3, dtype=torch.float64).to(dtype)
    result = per_example(model, weighed, params, x, y)
    assert isinstance(result, BookKeeping)
    assert_agrees(result, model, weighed, params, x, y)


@pytest.mark.parametrize("frozen", ["in_proj", "out_proj", "bias"])
def test_attention_of_which_a_part_is_frozen(frozen: str) -> None:
    torch.manual_seed(7)
    model = Attending("another", batch_first=True).double()
    for name, value in model.attention.named_parameters():
        value.requires_grad_(frozen not in name)
    params = drawn(model, 2)
    x, y = torch.randn(2, 4, 7, 6).double(), torch.randn(2, 4, 7, 3).double()
    result = per_example(model, weighed, params, x, y)
    assert isinstance(result, BookKeeping)
    assert_agrees(result, model, weighed, params, x, y)


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
def test_a_block_of_rows_in_the_wrong_place_is_found_by_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    right = attention.F.pad
    monkeypatch.setattr(attention.F, "pad", lambda grad, others: right(grad, (0, sum(others))))
    model = Attending("two", batch_first=True)
    x, y = torch.randn(1, 4, 7, 6), torch.randn(1, 4, 7, 3)
    assert isinstance(per_example(model, weighed, drawn(model, 1, torch.float32), x, y), Materialised)


class Encoder(nn.Module):
    """torch's encoder over words; 0 is padding."""

    def __init__(self, causal: bool = False, dropout: float = 0.1) -> None:
        super().__init__()
        self.table, self.causal = nn.Embedding(9, 8, padding_idx=0), causal
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=dropout, batch_first=True)
        self.body, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(8, 3)

    def forward(self, ids: Tensor) -> Tensor:
        later = nn.Transformer.generate_square_subsequent_mask(ids.shape[1]) if self.causal else None
        padding = torch.where(ids == 0, -torch.inf, 0.0).index_fill(1, torch.tensor([0]), 0.0)
        seen = self.body(self.table(ids), mask=later, src_key_padding_mask=padding)
        return self.head((seen * (ids != 0).unsqueeze(-1)).sum(1))


def texts(runs: int) -> Tensor:
    ids = torch.randint(1, 9, (runs, 4, 6))
    ids[:, 1, 3:] = 0
    ids[:, 2, 4:] = 0
    return ids


@pytest.mark.parametrize("runs", [1, 2])
@pytest.mark.parametrize("causal", [False, True])
def test_an_encoder_with_dropout_and_a_padding_mask_keeps_books(causal: bool, runs: int) -> None:
    torch.manual_seed(7)
    model, x, y = Encoder(causal), texts(runs), torch.randn(runs, 4, 3)
    params = drawn(model, runs, torch.float32)
    assert isinstance(per_example(model, weighed, params, x, y), BookKeeping)
    model.eval()  # its fast path for inference reads the mask
    result = per_example(model, weighed, params, x, y)
    assert isinstance(result, BookKeeping)
    assert_agrees(result, model, weighed, params, x, y)


def test_a_mask_is_not_read_to_choose_a_way_and_the_ways_agree() -> None:
    torch.manual_seed(7)
    model, x = Encoder(causal=True, dropout=0.0).eval(), texts(1)[0]
    with torch.no_grad(), Reads() as free:
        usual = model(x)
    with one_way(model), torch.no_grad(), Reads() as reads:
        output = model(x)
    assert free.seen
    assert not reads.seen
    torch.testing.assert_close(output, usual, rtol=1e-4, atol=1e-5)
    assert torch.backends.mha.get_fastpath_enabled()
