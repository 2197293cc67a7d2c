"""Models of transformers and adapters of peft keep books, with random weights: masks, frozen bodies, LoRA, tied weights."""

import pytest
import torch
from torch import Tensor, nn

from honestdp.gradients import per_example
from honestdp.gradients.bookkeeping import BookKeeping
from honestdp.gradients.branching import Reads
from honestdp.gradients.by_autograd import ByAutograd
from honestdp.gradients.choice import ruled_layers
from honestdp.gradients.inputs import one_way

from .plain_autograd import assert_agrees, drawn
from .test_layers import weighed

transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")


class Logits(nn.Module):
    """A model of transformers whose ids and mask come stacked, `[lot, 2, words]`."""

    def __init__(self, within: nn.Module) -> None:
        super().__init__()
        self.within = within
        for name, value in self.named_parameters():
            if name.endswith("key.bias"):  # shifts all scores alike, so that its gradient is nothing but rounding
                value.requires_grad_(False)

    def forward(self, both: Tensor) -> Tensor:
        return self.within(input_ids=both[:, 0], attention_mask=both[:, 1]).logits


SIZES = {"vocab_size": 11, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12}


def bert() -> nn.Module:
    config = transformers.BertConfig(**SIZES, max_position_embeddings=6, num_labels=3)  # with its usual dropout
    return transformers.BertForSequenceClassification(config)


def roberta() -> nn.Module:
    config = transformers.RobertaConfig(**SIZES, max_position_embeddings=9, num_labels=3, attn_implementation="eager")
    return transformers.RobertaForSequenceClassification(config)


def with_adapters() -> nn.Module:
    wanted = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value"], lora_dropout=0.1)
    return peft.get_peft_model(bert(), wanted)


def frozen() -> nn.Module:
    model = bert()
    model.bert.requires_grad_(False)
    return model


MODELS = {"bert": bert, "roberta": roberta, "frozen body": frozen, "adapters": with_adapters}


def texts(runs: int) -> Tensor:
    ids = torch.randint(2, 11, (runs, 4, 6))
    mask = torch.ones_like(ids)
    mask[:, 1, 3:] = mask[:, 2, 5:] = 0
    return torch.stack([torch.where(mask == 1, ids, 1), mask], 2)


@pytest.mark.parametrize("runs", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_models_with_an_attention_mask_keep_books(name: str, runs: int, lines: list[str]) -> None:
    torch.manual_seed(7)
    model, x, y = Logits(MODELS[name]()), texts(runs), torch.randn(runs, 4, 3)
    params = drawn(model, runs, torch.float32)
    assert isinstance(per_example(model.train(), weighed, params, x, y), BookKeeping)
    result = per_example(model.eval(), weighed, params, x, y)
    assert isinstance(result, BookKeeping)
    assert lines == []
    assert_agrees(result, model, weighed, params, x, y)


@pytest.mark.parametrize("padded", [True, False])
def test_a_mask_of_transformers_is_not_read_and_its_ways_agree(padded: bool) -> None:
    torch.manual_seed(7)
    model, x = Logits(bert()).eval(), texts(1)[0]
    if not padded:
        x[:, 1] = 1
    with torch.no_grad(), Reads() as free:
        usual = model(x)
    with one_way(model), torch.no_grad(), Reads() as reads:
        output = model(x)
    assert free.seen
    assert not reads.seen
    torch.testing.assert_close(output, usual, rtol=1e-4, atol=1e-5)


def test_a_frozen_body_has_no_graph_and_its_layers_are_not_noted() -> None:
    model, x = Logits(frozen()), texts(2)
    seen: list[bool] = []
    model.within.bert.register_forward_hook(lambda _module, _args, out: seen.append(out.pooler_output.requires_grad))
    params = drawn(model, 2, torch.float32)
    forward = ByAutograd(model, ruled_layers(model, frozenset(params)).ruled, params, x)
    assert seen == [False]
    assert [call.ruled.path for call in forward.calls] == ["within.classifier"]


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
def test_tied_weights_of_a_language_model_are_right_by_the_slow_way_which_says_so(lines: list[str]) -> None:
    torch.manual_seed(7)
    sizes = {"vocab_size": 11, "n_positions": 6, "n_embd": 4, "n_layer": 1, "n_head": 1}
    model = Logits(
        transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    ).eval()
    x = texts(1)
    y, params = torch.randn(1, 4, 6, 11), drawn(model, 1, torch.float32)
    result = per_example(model, weighed, params, x, y)
    assert not isinstance(result, BookKeeping)
    assert "are tied" in lines[0]
    assert "tie_word_embeddings=False" in lines[0]
    assert_agrees(result, model, weighed, params, x, y)
