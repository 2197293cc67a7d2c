"""Text with a transformer: a small BERT of Hugging Face's learns from made-up reviews. Run with `python examples/text.py`.

Needs `pip install transformers`. Nothing is downloaded: the words are numbered here and the weights start at random. With a
pretrained body, `AutoModelForSequenceClassification.from_pretrained(...)` and its tokenizer take their places.
"""

from __future__ import annotations

import random

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification

import honestdp

GOOD, BAD = ["good", "kind", "quick", "clean", "warm"], ["bad", "rude", "slow", "dirty", "cold"]
PLAIN = ["the", "room", "was", "staff", "were", "and", "food", "a", "bit", "very", "with"]
WORDS = ["[PAD]", *GOOD, *BAD, *PLAIN]
LENGTH, RECORDS = 10, 2000


def made_up(records: int, seed: int) -> tuple[list[str], torch.Tensor]:
    """Reviews of five to ten words, two of which say what the guest thought."""
    draw = random.Random(seed)
    texts, labels = [], []
    for _ in range(records):
        label = draw.randrange(2)
        words = draw.choices(PLAIN, k=draw.randint(3, LENGTH - 2)) + draw.choices((BAD, GOOD)[label], k=2)
        draw.shuffle(words)
        texts.append(" ".join(words))
        labels.append(label)
    return texts, torch.tensor(labels)


def tokens(texts: list[str]) -> dict[str, torch.Tensor]:
    """Every text by itself, padded to one public length: no text changes how another is read."""
    numbers = torch.zeros(len(texts), LENGTH, dtype=torch.long)
    for row, text in zip(numbers, texts, strict=True):
        words = [WORDS.index(word) for word in text.split()[:LENGTH]]
        row[: len(words)] = torch.tensor(words)
    return {"input_ids": numbers, "attention_mask": (numbers > 0).long()}


def transformer() -> torch.nn.Module:
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "bert", vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=LENGTH, num_labels=2,
    )  # fmt: skip
    return AutoModelForSequenceClassification.from_config(config)


def main(steps: int = 150) -> honestdp.Result:
    texts, labels = made_up(RECORDS, seed=0)
    result = honestdp.train(
        transformer(),
        (tokens(texts), labels),  # a dict of inputs: the model is called as model(**inputs), one record a review
        run=honestdp.Run(records=RECORDS, lot=200, steps=steps, noise=0),
        optimizer=honestdp.optimizers.Adam(lr=0.01, clip=0.5),
        budget=honestdp.Budget(epsilon=8.0, delta=1e-5),
        preprocessing="a public list of words, cut at ten",
    )
    fresh, truth = made_up(500, seed=1)
    with torch.no_grad():
        answers = result.model.eval()(**tokens(fresh)).logits.argmax(1)
    print(result)
    print(f"accuracy on made-up reviews that nobody wrote: {(answers == truth).double().mean():.3f}")
    return result


if __name__ == "__main__":
    main()
