"""The secret progress of a search between two batches: what is done, the best run, noisy scores."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from torch import Tensor

from honestdp.training.checkpoint import packed, unpacked


@dataclass
class Standing:
    """Where a search stands. Secret.

    done: batches that are over. best: the run that wins so far, its noisy score and its weights `[d]`. For a selection whose
    candidates all leave, of every run: kept, the weights; chosen_by, the score with the noise of the choice; scored, the score
    with the noise that leaves. No score without noise is in here.
    """

    done: int = 0
    best: int | None = None
    noisy: float = -math.inf
    weights: Tensor | None = None
    kept: dict[int, Tensor] = field(default_factory=dict)
    chosen_by: dict[int, int] = field(default_factory=dict)
    scored: dict[int, int] = field(default_factory=dict)

    def written(self) -> bytes:
        tensors = {f"kept.{run}": weights for run, weights in self.kept.items()}
        if self.weights is not None and self.best not in self.kept:
            tensors["best"] = self.weights
        noisy = None if math.isinf(self.noisy) else self.noisy
        scores = {"chosen_by": self.chosen_by, "scored": self.scored}
        return packed(tensors, {"done": self.done, "best": self.best, "noisy": noisy, **scores})

    @classmethod
    def read(cls, content: bytes | None) -> Standing:
        """What was written; the beginning where nothing was."""
        if content is None:
            return cls()
        tensors, about = unpacked(content)
        kept = {int(name[5:]): value for name, value in tensors.items() if name.startswith("kept.")}
        return cls(
            done=about["done"],
            best=about["best"],
            noisy=-math.inf if about["noisy"] is None else about["noisy"],
            weights=kept.get(about["best"], tensors.get("best")),
            kept=kept,
            chosen_by={int(run): noisy for run, noisy in about["chosen_by"].items()},
            scored={int(run): noisy for run, noisy in about["scored"].items()},
        )
