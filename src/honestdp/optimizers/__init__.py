"""The papers' optimizers as pure rules over releases, two of our own, and the base of a user's own (FixedClip).

Each has a name, by which `train`, `tune` and the command line know it, and a grid, which `tune` searches where it gets no space.

>>> import honestdp
>>> honestdp.optimizers.SGD(lr=0.1, clip=1.0)
SGD(lr=0.1, clip=1.0)
>>> honestdp.optimizers.SGD.name, honestdp.optimizers.Adam.grid
('sgd', {'clip': (0.1, 0.2, 0.5, 1.0)})
"""

from honestdp.optimizers.adadp import ADADP
from honestdp.optimizers.adam import Adam
from honestdp.optimizers.adam_oso import AdamOSO
from honestdp.optimizers.adam_wosm import AdamWOSM
from honestdp.optimizers.echo import Echo
from honestdp.optimizers.horizon import Horizon
from honestdp.optimizers.momentum import Momentum
from honestdp.optimizers.oso import OSO
from honestdp.optimizers.quantile import Quantile
from honestdp.optimizers.rule import BY_NAME, FixedClip, Rule, State
from honestdp.optimizers.sgd import SGD

__all__ = [
    "ADADP", "BY_NAME", "OSO", "SGD", "Adam", "AdamOSO", "AdamWOSM", "Echo", "FixedClip", "Horizon", "Momentum",
    "Quantile", "Rule", "State",
]  # fmt: skip
