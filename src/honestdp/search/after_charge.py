"""A search that is paid for: the records are compared with those that it was begun with, read, trained on and scored."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, replace

import torch

from honestdp.boundary.data import PrivateData
from honestdp.budget import Statement
from honestdp.checks import InvalidArgument
from honestdp.ledger import Balance
from honestdp.search import result
from honestdp.search.configuration import Configuration
from honestdp.search.design import Design
from honestdp.search.result import TuneResult
from honestdp.search.runs import Execution, Setting
from honestdp.search.secret import Secret
from honestdp.search.vault import Store

DATA, WEIGHTS = "data", "weights"


@dataclass(frozen=True, kw_only=True)
class PaidSearch:
    """store: for what a resume needs. classes: how many outputs a label may name, where that is known."""

    design: Design
    configuration: Configuration
    plan: Secret
    store: Store
    data: PrivateData
    classes: int | None

    def run(self, statement: Statement, balance: Balance | None) -> TuneResult:
        """What leaves. To be called within `silence`."""
        self._check_data()
        execution = Execution(
            self.design,
            self.plan,
            self._setting(),
            self.data,
            records=self.design.records,
            store=self.store,
            classes=self.classes,
        )
        standing = execution.finish()
        return result.result_of(self.design, statement, execution, self.plan, standing, balance)

    def _setting(self) -> Setting:
        """With the initial weights that the search began with: a module made anew may well have others."""
        setting, weights = self.configuration.setting, self.store.read(WEIGHTS)
        if not isinstance(setting.model, torch.nn.Module) or weights is None:
            return setting
        return replace(setting, model=result.load_weights(copy.deepcopy(setting.model), weights))

    def _check_data(self) -> None:
        """The same records as before, and the same numbers in the code."""
        digests = {"records": self.data.fingerprint(), "values": self.configuration.values()}
        content = self.store.read(DATA)
        known = digests if content is None else json.loads(content)
        if known["records"] != digests["records"]:
            raise InvalidArgument("data", "others", "the records that this search was begun with")
        if known["values"] != digests["values"]:
            wanted = "a search with the same numbers in its code: weights of the loss, what the factory makes, or the like differ"
            raise InvalidArgument("resume", True, wanted)
        if content is None:
            self.store.write(DATA, json.dumps(digests).encode())
