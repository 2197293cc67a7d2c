"""Carries out a search that is charged: checks that the records are those it began with, trains, scores."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import torch

from honestdp.boundary.data import PrivateData
from honestdp.checks import InvalidArgument
from honestdp.ledger import LedgerError
from honestdp.ledger.paying import Account
from honestdp.search import result
from honestdp.search.configuration import Configuration
from honestdp.search.runs import Setting
from honestdp.search.vault import Store

DATA, WEIGHTS = "data", "weights"
PAID = "what it was charged stays charged"
UNPAID = "nothing was charged yet: the charge comes when it goes on"
NO_LEDGER = "it is in no ledger"


def standing(account: Account | None) -> str:
    """What an interrupted search has paid, in words: the interruption may have come while its charge was composed."""
    if account is None:
        return NO_LEDGER
    try:
        return PAID if account.is_charged() else UNPAID
    except (LedgerError, OSError, KeyboardInterrupt):  # what cannot be read may well be charged
        return PAID


def check_data(configuration: Configuration, data: PrivateData, store: Store) -> None:
    """The same records as before, and the same numbers in the code."""
    digests = {"records": data.fingerprint(), "values": configuration.values()}
    content = store.read(DATA)
    known = digests if content is None else json.loads(content)
    if known["records"] != digests["records"]:
        raise InvalidArgument("data", "others", "the records that this search was begun with")
    if known["values"] != digests["values"]:
        wanted = "a search with the same numbers in its code: weights of the loss, what the factory makes, or the like differ"
        raise InvalidArgument("resume", True, wanted)
    if content is None:
        store.write(DATA, json.dumps(digests).encode())


def with_first_weights(setting: Setting, store: Store) -> Setting:
    """With the initial weights that the search began with: a module made anew may well have others."""
    weights = store.read(WEIGHTS)
    if not isinstance(setting.model, torch.nn.Module) or weights is None:
        return setting
    return replace(setting, model=result.load_weights(copy.deepcopy(setting.model), weights))
