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
    return _known(loss) in (*_OF_CLASSES, *_OF_EACH)


def classes_at(loss: Loss) -> int | None:
    """The dimension of the outputs along which classes are, so that what is added to all of them changes no answer; None where
    every output is a question of its own. Of a loss that nobody knows it is taken to be the last.
    """
    known = _known(loss)
    return None if known in _OF_EACH else 1 if known in _OF_CLASSES else -1


def _known(loss: Loss) -> object:
    """The function, or the class of the module, that a loss is made of."""
    base = base_of(loss)
    base = base.func if isinstance(base, partial) else base
    return type(base) if isinstance(base, nn.Module) else base
