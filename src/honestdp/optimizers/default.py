"""The optimizer of a call that names none. It has nothing to tune, and follows from the loss, which is public.

Echo's step lets noise move an output by 2, which is much or little by what an output is. Of a logit that is known. What other
losses make of their outputs is not, nor in which units they are: there it is Horizon, which goes by weights alone.
"""

from __future__ import annotations

from honestdp.gradients.inputs import Inputs
from honestdp.losses import Loss, default_loss
from honestdp.losses.logits import on_logits
from honestdp.optimizers.echo import Echo
from honestdp.optimizers.horizon import Horizon
from honestdp.optimizers.rule import Rule

NOT_NAMED = "no optimizer was named: "
"""What the note of a statement begins with that says which was taken."""


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
