"""The papers' optimizers as pure rules over releases, one of our own (Horizon), and the base of a user's own (FixedClip)."""

from honestdp.optimizers.adadp import ADADP
from honestdp.optimizers.adam import Adam
from honestdp.optimizers.adam_wosm import AdamWOSM
from honestdp.optimizers.horizon import Horizon
from honestdp.optimizers.momentum import Momentum
from honestdp.optimizers.oso import OSO
from honestdp.optimizers.quantile import Quantile
from honestdp.optimizers.rule import BY_NAME, FixedClip, Rule, State
from honestdp.optimizers.sgd import SGD

__all__ = [
    "ADADP",
    "BY_NAME",
    "OSO",
    "SGD",
    "Adam",
    "AdamWOSM",
    "FixedClip",
    "Horizon",
    "Momentum",
    "Quantile",
    "Rule",
    "State",
]
