"""The optimizer of a call that names none, and which losses are of logits, by which it is chosen.

It has nothing to tune, and follows from the loss, which is public.

Echo's step lets noise move an output by 2, which is much or little by what an output is. Of a logit that is known: a move of
1 multiplies odds by e, whatever the data are. What other losses make of their outputs is not, nor in which units they are:
there it is Horizon, which goes by weights alone.
"""

from __future__ import annotations

from functools import partial

from torch import nn
from torch.nn import functional

from honestdp.gradients.inputs import Inputs
from honestdp.losses import Loss, cross_entropy, default_loss
from honestdp.losses.class_weights import base_of
from honestdp.optimizers.echo import Echo
from honestdp.optimizers.horizon import Horizon
from honestdp.optimizers.rule import Rule

NOT_NAMED = "no optimizer was named: "
"""What the note of a statement begins with that says which was taken."""

# By what they are and not by their names: a subclass, or a function around one, may do anything with its outputs.
_OF_CLASSES = (cross_entropy, functional.cross_entropy, nn.CrossEntropyLoss)
_OF_EACH = (functional.binary_cross_entropy_with_logits, nn.BCEWithLogitsLoss)


def default_rule(loss: Loss | None, labels: Inputs | None = None) -> type[Rule]:
    """Echo for a cross-entropy, Horizon for any other loss, and where it is not known.

    loss: None for that which follows from the labels. labels: of no record, `[0, ...]`, for their kind; None of a Dataset, which
    is not read before it is paid for.

    >>> import torch
    >>> default_rule(None, torch.zeros(0, dtype=torch.int64)).name, default_rule(None, torch.zeros(0)).name
    ('echo', 'horizon')
    """
    if loss is None and labels is not None:
        loss = default_loss(labels)
    return Echo if loss is not None and on_logits(loss) else Horizon


def default_note(rule: type[Rule]) -> str:
    """For the statement of a call that named no optimizer: which was taken, and why."""
    why = "is" if rule is Echo else "is not known to be"
    return f"{NOT_NAMED}{rule.name} was taken, which has nothing to tune, because the loss {why} a cross-entropy"


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
