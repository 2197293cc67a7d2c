"""The papers' optimizers as pure rules over releases, and one of our own (Horizon)."""

from honestdp.optimizers.adadp import ADADP
from honestdp.optimizers.adam import Adam
from honestdp.optimizers.adam_wosm import AdamWOSM
from honestdp.optimizers.horizon import Horizon
from honestdp.optimizers.momentum import Momentum
from honestdp.optimizers.oso import OSO
from honestdp.optimizers.quantile import Quantile
from honestdp.optimizers.rule import Rule, State
from honestdp.optimizers.sgd import SGD

BY_NAME: dict[str, type[Rule]] = {
    "sgd": SGD,
    "momentum": Momentum,
    "adam": Adam,
    "adam-wosm": AdamWOSM,
    "adadp": ADADP,
    "oso": OSO,
    "quantile": Quantile,
    "horizon": Horizon,
}

__all__ = ["ADADP", "BY_NAME", "OSO", "SGD", "Adam", "AdamWOSM", "Horizon", "Momentum", "Quantile", "Rule", "State"]
