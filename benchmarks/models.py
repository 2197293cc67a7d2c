"""Time of one training step of the models that teams have, against the best mode of Opacus.

    python benchmarks/models.py [--device cuda] [--models bert] [--rounds 5] [--threads 1] [--json results.json]

Each case is DPSGD, one run, lots of 64 of 4000 made-up records. Weights are random and sizes small: what is compared is how a
library goes about a kind of model. Transformers with a padding mask, bodies that are frozen, adapters, bags of words, biases of
sequences, recurrent layers. Every library draws its own Poisson lots. Opacus gets what its own validator makes of the model (its
attention and recurrent layers in place of torch's), and each of its modes is tried; the fastest counts. All cases of a model run
round by round in this process, and each figure is the median over the rounds; on a CPU it is the time of the process, on one
thread unless told. Two inputs travel in one tensor, ids and mask stacked, so that all modes take them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from honestdp import Compute, Run, optimizers  # noqa: E402
from honestdp.training.spec import TrainSpec  # noqa: E402
from honestdp.training.train import assemble  # noqa: E402

RECORDS, LOT, NOISE, CLIP, LR = 4000, 64, 1.0, 1.0, 0.1
WORDS, LENGTH, WIDTH, CLASSES = 1000, 32, 64, 4
Step = Callable[[], None]
MODES = ("hooks", "functorch", "ew", "ghost", "fast gradient clipping")


class Encoder(nn.Module):
    """torch's own transformer encoder over words, with a padding mask made of the words that are 0."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(WORDS, WIDTH, padding_idx=0)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        seen = self.body(self.table(ids), src_key_padding_mask=ids == 0)
        present = (ids != 0).unsqueeze(-1)
        return self.head((seen * present).sum(1) / present.sum(1))


class Bert(nn.Module):
    """A BERT of random weights; ids and attention mask come stacked, `[lot, 2, words]`."""

    def __init__(self, frozen: bool = False, adapters: bool = False) -> None:
        super().__init__()
        from transformers import BertConfig, BertForSequenceClassification

        config = BertConfig(
            vocab_size=WORDS, hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=4, intermediate_size=2 * WIDTH,
            max_position_embeddings=LENGTH, num_labels=CLASSES, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )  # fmt: skip
        self.bert = BertForSequenceClassification(config)
        if frozen:
            self.bert.bert.requires_grad_(False)
        if adapters:
            from peft import LoraConfig, get_peft_model

            wanted = LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["query", "value"], lora_dropout=0.0)
            self.bert = get_peft_model(self.bert, wanted)

    def forward(self, both: Tensor) -> Tensor:
        ids, mask = both.unbind(1)
        # Opacus wants every input of a layer to have a row an example; ours takes a model without these two as well.
        places = torch.arange(LENGTH, device=ids.device).expand_as(ids)
        more = {"position_ids": places.contiguous(), "token_type_ids": torch.zeros_like(ids)}
        return self.bert(input_ids=ids, attention_mask=mask, **more).logits


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(10 * WORDS, WIDTH, mode="mean", padding_idx=0)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.bag(ids))


class TableBag(nn.Module):
    """The same of an Embedding: Opacus takes an EmbeddingBag with offsets alone, and forgets its padding."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10 * WORDS, WIDTH, padding_idx=0)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.table(ids).sum(1) / (ids != 0).sum(1, keepdim=True))


class Sequences(nn.Module):
    """Linear layers along a sequence, of which the biases alone are trained, or all."""

    def __init__(self, biases_alone: bool) -> None:
        super().__init__()
        layers = [part for _ in range(3) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
        self.body, self.head = nn.Sequential(*layers), nn.Linear(WIDTH, CLASSES)
        for name, value in self.named_parameters():
            value.requires_grad_(name.endswith("bias") or not biases_alone)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).mean(1))


def frozen_convolutions() -> nn.Module:
    """The network of Koskela & Honkela 2020 for CIFAR-10: two frozen convolutions, and dense layers that are trained."""
    body = [nn.Conv2d(3, 64, 3), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.MaxPool2d(3, 2)]
    head = [nn.Linear(1600, 500, bias=False), nn.ReLU(), nn.Linear(500, CLASSES, bias=False)]
    return nn.Sequential(nn.Sequential(*body, nn.Flatten()).requires_grad_(False), *head)


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.layer, self.head = kind(WIDTH, WIDTH, batch_first=True), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x)[0][:, -1])


def words(maker: torch.Generator) -> Tensor:
    """Words from 1 on, and 0 after the end of a text."""
    ids = torch.randint(1, WORDS, (RECORDS, LENGTH), generator=maker)
    ends = torch.randint(LENGTH // 4, LENGTH + 1, (RECORDS, 1), generator=maker)
    return torch.where(torch.arange(LENGTH) < ends, ids, 0)


def masked(maker: torch.Generator) -> Tensor:
    ids = words(maker)
    return torch.stack([ids, (ids != 0).long()], 1)


def sequences(maker: torch.Generator) -> Tensor:
    return torch.randn(RECORDS, LENGTH, WIDTH, generator=maker)


def pictures(maker: torch.Generator) -> Tensor:
    return torch.rand(RECORDS, 3, 32, 32, generator=maker)


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[torch.Generator], Tensor]]] = {
    "transformer encoder": (Encoder, words),
    "bert": (Bert, masked),
    "frozen bert, head": (lambda: Bert(frozen=True), masked),
    "frozen bert, lora": (lambda: Bert(adapters=True), masked),
    "frozen convolutions, head": (frozen_convolutions, pictures),
    "bag of words": (Bag, words),
    "sequences": (lambda: Sequences(biases_alone=False), sequences),
    "biases of sequences": (lambda: Sequences(biases_alone=True), sequences),
    "lstm": (lambda: Recurrent(nn.LSTM), sequences),
    "gru": (lambda: Recurrent(nn.GRU), sequences),
}


def ours(make: Callable[[], nn.Module], x: Tensor, y: Tensor) -> tuple[Step, int]:
    """Some steps of one run, and how many."""
    run = Run(records=RECORDS, lot=LOT, steps=100_000, noise=NOISE)
    rules = [optimizers.SGD(lr=LR, clip=CLIP)]
    job = assemble(make, (x, y), run=run, optimizers=rules, spec=TrainSpec(compute=Compute(device=x.device)))
    population = job.population([0])
    population.block(most=2)

    def step() -> None:
        population.block(most=4)

    return step, 4


def opacus_step(mode: str, make: Callable[[], nn.Module], x: Tensor, y: Tensor) -> Step:
    from opacus.grad_sample import (
        GradSampleModule,
        GradSampleModuleExpandedWeights,
        GradSampleModuleFastGradientClipping,
    )
    from opacus.layers import DPMultiheadAttention
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
    from opacus.utils.uniform_sampler import UniformWithReplacementSampler
    from opacus.validators import ModuleValidator

    module, criterion = ModuleValidator.fix(make()).to(x.device).train(), nn.CrossEntropyLoss()
    for attention in (part for part in module.modules() if isinstance(part, DPMultiheadAttention)):
        attention.register_forward_pre_hook(_boolean_masks, with_kwargs=True)
    common = {"noise_multiplier": NOISE, "max_grad_norm": CLIP, "expected_batch_size": LOT}
    if mode in ("ghost", "fast gradient clipping"):
        ghost = mode == "ghost"
        wrapped = GradSampleModuleFastGradientClipping(module, max_grad_norm=CLIP, use_ghost_clipping=ghost)
        trained = [p for p in wrapped.parameters() if p.requires_grad]
        optimizer = DPOptimizerFastGradientClipping(torch.optim.SGD(trained, lr=LR), **common)
        criterion = DPLossFastGradientClipping(wrapped, optimizer, criterion)
    else:
        if mode == "ew":
            wrapped = GradSampleModuleExpandedWeights(module)
        else:
            wrapped = GradSampleModule(module, force_functorch=mode == "functorch")
        trained = [p for p in wrapped.parameters() if p.requires_grad]
        optimizer = DPOptimizer(torch.optim.SGD(trained, lr=LR), **common)
    lots = iter(UniformWithReplacementSampler(num_samples=RECORDS, sample_rate=LOT / RECORDS, steps=10**9))

    def step() -> None:
        lot = torch.tensor(next(lots), device=x.device)
        optimizer.zero_grad()
        criterion(wrapped(x[lot]), y[lot]).backward()
        optimizer.step()

    return step


def _boolean_masks(module: nn.Module, args: tuple, kwargs: dict) -> tuple:
    """torch's encoder hands masks on as numbers to add, and Opacus' attention takes True and False."""
    mask = kwargs.get("key_padding_mask")
    changed = mask is not None and mask.is_floating_point()
    return args, {**kwargs, "key_padding_mask": mask == -torch.inf} if changed else kwargs


def seconds(step: Step, count: int, device: torch.device) -> float:
    """Of this process on a CPU, so that others on the machine do not count; by the clock on a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    began = clock()
    for _ in range(count):
        step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return (clock() - began) / count


def measure(name: str, rounds: int, device: torch.device) -> dict[str, float]:
    """Milliseconds per step by library and mode, the medians over the rounds."""
    make, data = CASES[name]
    maker = torch.Generator().manual_seed(1)
    x, y = data(maker).to(device), torch.randint(0, CLASSES, (RECORDS,), generator=maker).to(device)

    def seeded() -> nn.Module:
        torch.manual_seed(1)
        return make()

    step, steps = ours(seeded, x, y)
    found: dict[str, tuple[Step, int, int]] = {"honestdp": (step, 1, steps)}
    for mode in MODES:
        try:
            peer = opacus_step(mode, seeded if name != "bag of words" else TableBag, x, y)
            once = min(seconds(peer, 1, device) for _ in range(3))
        except Exception as trouble:
            print(f"  {name}, opacus {mode}: does not run here ({type(trouble).__name__}: {str(trouble)[:80]!r})")
            continue
        found[f"opacus {mode}"] = peer, max(1, min(4, int(0.1 / once))), 1
    times: dict[str, list[float]] = {label: [] for label in found}
    for _, (label, (step, calls, share)) in itertools.product(range(rounds), found.items()):
        times[label].append(1000 * seconds(step, calls, device) / share)
    return {label: statistics.median(values) for label, values in times.items()}


def show(name: str, rows: dict[str, float]) -> None:
    best = min((row for label, row in rows.items() if label != "honestdp"), default=float("nan"))
    print(
        f"{name}: {rows['honestdp']:.2f} ms a step, Opacus' best {best:.2f}, {best / rows['honestdp']:.2f} times as fast"
    )
    print("   " + ", ".join(f"{label} {value:.2f}" for label, value in rows.items() if label != "honestdp"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--threads", type=int, default=1, help="of a CPU")
    parser.add_argument("--rounds", type=int, default=5, help="of which each figure is the median")
    parser.add_argument("--models", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--json", type=Path, help="write the figures there")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(chosen.threads)
    logging.getLogger("honestdp").setLevel(logging.WARNING)
    device = torch.device(chosen.device)
    where = torch.cuda.get_device_name() if device.type == "cuda" else f"{torch.get_num_threads()} CPU threads"
    print(f"torch {torch.__version__} on {where}; one run, lot {LOT}, {RECORDS} records; milliseconds per step")
    everything = {}
    for name in chosen.models:
        everything[name] = measure(name, chosen.rounds, device)
        show(name, everything[name])
        if chosen.json:
            _write(chosen.json, where, everything)


def _write(path: Path, where: str, results: dict[str, dict[str, float]]) -> None:
    command = " ".join(["python benchmarks/models.py", *sys.argv[1:]])
    facts = {"command": command, "where": where, "torch": torch.__version__, "unit": "milliseconds per step"}
    path.write_text(json.dumps({**facts, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
