"""The door of federated training: clients' records side by side, and a mechanism whose steps come in rounds.

A client of federated averaging gets weights, makes some steps on its own records and gives weights back, again and again. Every
step is the Poisson-sampled Gaussian of `release`, at weights that the server chose and that may depend on every earlier release:
adaptive composition covers that, whoever the server is, since a record's part is clipped at any weights. All rounds of a client
are steps of one declared run, and `MechanismOfRounds` makes no more of them.

Clients that are trained together are runs of one population. `ClientsData` gives run r the records of its own client and no
others: numbers of records are drawn below the number of one client's, and moved by its place. Lots and noise of each run follow
from a seed of its own, so that a client draws the same numbers alone as beside others.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from honestdp.boundary.data import PrivateData
from honestdp.boundary.mechanism import Mechanism
from honestdp.boundary.noise import NoiseOfEach, NoiseSource, NoNoise, noise_source, torch_generator
from honestdp.boundary.query import Constants
from honestdp.boundary.records import DeviceRecords, Fetched, Pair, Records, as_tensor
from honestdp.boundary.release import Question
from honestdp.boundary.sampling import PendingOfEach, block_steps
from honestdp.boundary.seed import Seed
from honestdp.checks import InvalidArgument
from honestdp.losses import Taken


class ClientsData(PrivateData):
    """The records of several clients, as many of each, for a population whose run r belongs to the client `owners[r]`."""

    def __init__(self, each: Sequence[PrivateData], owners: Sequence[int]) -> None:
        pairs = _pairs(each)
        super().__init__((torch.cat([x for x, _ in pairs]), torch.cat([y for _, y in pairs])))
        self._size, self._owners = len(pairs[0][1]), tuple(owners)

    def __len__(self) -> int:
        """Of one client: what its chance of being in a lot is counted by."""
        return self._size

    def _open(self, *, device: torch.device, dtype: torch.dtype, workers: int) -> Records:
        assert self._pair is not None
        every = DeviceRecords(*self._pair, device=device, dtype=dtype)
        return RecordsOfClients(every, size=self._size, owners=self._owners, device=device)


def _pairs(each: Sequence[PrivateData]) -> list[list[Tensor]]:
    """Inputs and labels of each client, where they can lie side by side; which follows from shapes and kinds alone."""
    if any(client.unit.person for client in each):
        raise InvalidArgument("data", "people of several rows", "single rows, where clients are trained together")
    plain = all(client._pair is not None and hasattr(client._pair[0], "shape") for client in each)
    if not plain or any(client.augment is not None for client in each):
        wanted = "pairs (x, y) of one array each, a record a row, where several clients are trained together"
        raise InvalidArgument("data", "a Dataset, several inputs, people with rows, or augmented records", wanted)
    pairs = [[as_tensor(part) for part in client._pair or ()] for client in each]
    sizes, kinds = {len(y) for _, y in pairs}, {(x.shape[1:], x.dtype, y.shape[1:], y.dtype) for x, y in pairs}
    if len(sizes) > 1 or len(kinds) > 1:
        wanted = "as many records of one shape and kind for all clients that are trained together"
        raise InvalidArgument("data", f"{len(sizes)} sizes and {len(kinds)} shapes", wanted)
    return pairs


def check_beside(each: Sequence[PrivateData]) -> None:
    """Refuse records of clients that cannot be trained together, before any of them is paid for; none is read for it."""
    if len(each) > 1:
        _pairs(each)


class RecordsOfClients(Records):
    """Records on the device, `size` of each client one after another. Run r reads those of client `owners[r]` alone."""

    resident = True

    def __init__(self, every: DeviceRecords, *, size: int, owners: Sequence[int], device: torch.device) -> None:
        self._every, self._size, self.finite = every, size, every.finite
        self._first = torch.tensor(owners, device=device)[:, None] * size

    def __len__(self) -> int:
        return self._size

    def fetch(self, indices: Tensor) -> Fetched:
        return self._every.fetch(indices + self._first)

    def blank(self, model: nn.Module) -> Pair:
        return self._every.blank(model)


class MechanismOfRounds(Mechanism):
    """A mechanism over all rounds of its runs. Every round draws from seeds of its own, one a run."""

    def __init__(
        self,
        question: Question,
        records: Records,
        constants: Constants,
        *,
        seeds: Sequence[Seed],
        secure: bool = False,
        labels: Taken = (),
    ) -> None:
        super().__init__(question, records, constants, seed=seeds[0], secure=secure, labels=labels)
        self._secure = secure
        self._silent = not bool(constants.noise.any())
        # As of one run: how many lots are drawn at once decides which numbers they are.
        self._block = block_steps(records=constants.records, rate=self._rate, runs=1)
        self.begin(seeds, made=0)

    def begin(self, seeds: Sequence[Seed], *, made: int) -> None:
        """A round after so many steps, whose lots and noise follow from these seeds alone."""
        if self._begun is not None or self._pending is not None:
            raise RuntimeError("the round before is not over")
        if len(seeds) != self._runs or made < self._made:
            raise RuntimeError("a seed for each run is needed, and steps that were made stay made")
        device = self._declared.noise.device
        self._made = made
        self._lots_of = [torch_generator(device, seed.child("lots")) for seed in seeds]
        self._decoding = seeds[0].child("decoding")
        self._noise: NoiseSource
        if self._silent:
            self._noise = NoNoise(self._declared.noise)
            return
        self._noise = NoiseOfEach([noise_source(device, seed.child("noise"), secure=self._secure) for seed in seeds])
        self._captured = None  # a graph holds the generators it was captured with

    def _start(self, steps: int) -> None:
        records, rate = len(self._records), self._rate
        self._pending = PendingOfEach(self._lots_of, records=records, rate=rate, steps=steps)

    def random_state(self) -> list[Tensor]:
        raise RuntimeError("a round is made whole: between rounds there is no state to be kept")

    def restore(self, random_state: list[Tensor], *, step: int) -> None:
        raise RuntimeError("a round is made whole: between rounds there is no state to be restored")
