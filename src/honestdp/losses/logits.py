"""Which losses are of logits: a move of 1 in one of their outputs multiplies odds by e, whatever the data are."""

from __future__ import annotations

from functools import partial

from torch import nn
from torch.nn import functional

from honestdp.losses import Loss, cross_entropy
from honestdp.losses.class_weights import base_of

# By what they are and not by their names: a subclass, or a function around one, may do anything with its outputs.
_OF_CLASSES = (cross_entropy, functional.cross_entropy, nn.CrossEntropyLoss)
_OF_EACH = (functional.binary_cross_entropy_with_logits, nn.BCEWithLogitsLoss)


def on_logits(loss: Loss) -> bool:
    """Whether it is a cross-entropy, of classes or of single outputs, ours or torch's, with class weights or without.

    >>> on_logits(cross_entropy), on_logits(nn.BCEWithLogitsLoss(reduction="none")), on_logits(nn.MSELoss(reduction="none"))
    (True, True, False)
    """
    return _one_of((*_OF_CLASSES, *_OF_EACH), loss)


def classes_at(loss: Loss) -> int | None:
    """The dimension of the outputs along which classes are, so that what is added to all of them changes no answer; None where
    every output is a question of its own. Of a loss that nobody knows it is taken to be the last.
    """
    return None if _one_of(_OF_EACH, loss) else 1 if _one_of(_OF_CLASSES, loss) else -1


def _one_of(known: tuple[object, ...], loss: Loss) -> bool:
    """Whether a loss is made of one of these functions, or classes of modules: of itself, whatever it says that it equals."""
    base = base_of(loss)
    base = base.func if isinstance(base, partial) else base
    made_of = type(base) if isinstance(base, nn.Module) else base
    return any(made_of is one for one in known)
