"""CPU seconds from the call of `train` to its first step and to the end of it, each model in a process of its own, on one thread.

    python benchmarks/first_step.py [--models linear conv ...] [--lot 64] [--profile]

The models are random and the records made up. Imports of the model's own packages (transformers, peft) are made before the clock
starts; imports that the training makes are part of the time.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

import honestdp  # noqa: E402
from honestdp.boundary.mechanism import Mechanism  # noqa: E402

RECORDS, STEPS = 4096, 1
WORDS, LENGTH, WIDTH, DEPTH = 1000, 64, 256, 4


def linear() -> nn.Module:
    return nn.Linear(784, 10)


def conv() -> nn.Module:
    """Convolutions of 32 and 64 channels, and dense layers, on 28 x 28 pictures."""
    body = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*body, nn.Linear(64 * 144, 128), nn.ReLU(), nn.Linear(128, 10))


class Block(nn.Module):
    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.two = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norm_one, self.norm_two = nn.GroupNorm(8, out), nn.GroupNorm(8, out)
        self.short = nn.Conv2d(channels, out, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return (self.norm_two(self.two(self.norm_one(self.one(x)).relu())) + self.short(x)).relu()


def resnet() -> nn.Module:
    """ResNet-20 with GroupNorm, on 32 x 32 pictures in colours."""
    blocks, channels = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.GroupNorm(8, 16), nn.ReLU()], 16
    for out in (16, 32, 64):
        for place in range(3):
            blocks.append(Block(channels, out, 2 if place == 0 and out > 16 else 1))
            channels = out
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class Bert(nn.Module):
    """A BERT of random weights and a head of classes, over ids without padding."""

    def __init__(self, *, adapters: bool) -> None:
        super().__init__()
        from transformers import BertConfig, BertForSequenceClassification

        config = BertConfig(
            vocab_size=WORDS,
            hidden_size=WIDTH,
            num_hidden_layers=DEPTH,
            num_attention_heads=4,
            intermediate_size=4 * WIDTH,
            max_position_embeddings=LENGTH,
            num_labels=10,
        )
        self.bert: nn.Module = BertForSequenceClassification(config)
        if adapters:
            from peft import LoraConfig, get_peft_model

            wanted = LoraConfig(task_type="SEQ_CLS", r=8, target_modules=["query", "value"])
            self.bert = get_peft_model(self.bert, wanted)
        else:
            self.bert.bert.requires_grad_(False)

    def forward(self, ids: Tensor) -> Tensor:
        return self.bert(input_ids=ids).logits


def frozen() -> nn.Module:
    return Bert(adapters=False)


def lora() -> nn.Module:
    return Bert(adapters=True)


def _pictures(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(RECORDS, *shape)


def _words() -> Tensor:
    return torch.randint(1, WORDS, (RECORDS, LENGTH))


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "linear": (linear, _pictures(784)),
    "conv": (conv, _pictures(1, 28, 28)),
    "resnet": (resnet, _pictures(3, 32, 32)),
    "frozen": (frozen, _words),
    "lora": (lora, _words),
}


def alone(name: str, lot: int, profile: bool) -> None:
    """Print the seconds of one model in this process."""
    make, records = CASES[name]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, x = make(), records()
    y = torch.randint(10, (RECORDS,))
    run = honestdp.Run(records=RECORDS, lot=lot, steps=STEPS, noise=1.0)
    watch, ready = cProfile.Profile(time.process_time), []
    steps = Mechanism.steps

    def first(*args: object, **named: object) -> object:
        ready.append(time.process_time() - used)
        return steps(*args, **named)

    Mechanism.steps = first
    used = time.process_time()
    if profile:
        watch.enable()
    honestdp.train(model, (x, y), run=run, optimizer=honestdp.optimizers.SGD(lr=0.1, clip=1.0))
    seconds = time.process_time() - used
    if profile:
        watch.disable()
        pstats.Stats(watch).sort_stats("cumulative").print_stats(60)
    marks = "" if "torch._dynamo" not in sys.modules else "  (torch._dynamo was imported)"
    print(f"{name:10} {ready[0]:6.2f} s before the first step, {seconds:6.2f} s after it{marks}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--lot", type=int, default=64)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--alone", choices=list(CASES), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.alone:
        alone(asked.alone, asked.lot, asked.profile)
        return
    for name in asked.models:
        words = [sys.executable, __file__, "--alone", name, "--lot", str(asked.lot)]
        words += ["--profile"] if asked.profile else []
        subprocess.run(words, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


if __name__ == "__main__":
    main()
