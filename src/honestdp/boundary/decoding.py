"""Records behind a map-style Dataset, decoded by worker processes.

torch notices the death of a worker (killed, out of memory, a crash in a decoder) in a signal handler, which raises wherever
this process happens to be, or by a connection that breaks. Both are raised as `WorkerDied`, and the other workers are ended,
so that no signal comes later.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from honestdp.boundary.layouts import as_pair, described, together
from honestdp.boundary.records import Fetched, Pair, Records, shaped, two_blanks
from honestdp.boundary.seed import Seed, lent, seed_all
from honestdp.checks import HonestdpError, InvalidArgument
from honestdp.gradients import inputs

_AHEAD = 64  # records that a worker decodes together when all are read once


class WorkerDied(RuntimeError):
    """A process that decodes a Dataset has ended; no record's fault need be behind it."""

    def __init__(self, trouble: BaseException) -> None:
        super().__init__(
            f"a worker process of the Dataset died while decoding records ({trouble}); no step was released from them; "
            "run again, from a checkpoint if there is one, with workers=0 to see the error in this process"
        )


class RecordFailed(HonestdpError):
    """A Dataset failed on a record of a search. Its words may be the record's: nothing of them may be shown."""


class Guarded(Dataset[Any]):
    """A Dataset whose failures are no run's own: the search stops, whichever side the record is on."""

    def __init__(self, dataset: Dataset[Any]) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> Any:
        try:
            return self._dataset[index]
        except (OSError, MemoryError):
            raise
        except Exception:
            pass
        raise RecordFailed("the Dataset failed on a record")


@contextmanager
def deaths_named(*, reading: bool = False) -> Iterator[None]:
    """Within, the death of a worker is raised as `WorkerDied`.

    Args:
        reading: Within, workers are read from and nothing else is done. Then an error that no worker reported, which torch
            would begin with "Caught", is a connection that broke.
    """
    try:
        yield
    except WorkerDied:
        raise
    except (OSError, EOFError, RuntimeError) as trouble:
        words = ("exited unexpectedly", "killed by signal", "is killed")
        died = "DataLoader worker" in str(trouble) and any(part in str(trouble) for part in words)
        if died or (reading and not str(trouble).startswith("Caught ")):
            raise WorkerDied(trouble) from trouble
        raise


def decoded_once(dataset: Dataset[Any], *, workers: int, seed: Seed) -> Pair:
    """Every record of a Dataset, each read once. The words of an error are not repeated, for they may be a record's.

    Args:
        dataset: The Dataset.
        workers: How many processes decode.
        seed: Of what the Dataset draws meanwhile.
    """
    if len(dataset) == 0:  # type: ignore[arg-type]
        return torch.empty(0), torch.empty(0)
    records = DatasetRecords(dataset, device=torch.device("cpu"), dtype=torch.float32, workers=workers)
    try:
        batches = torch.split(torch.arange(len(records)), 4 * _AHEAD)
        records.expect(list(batches), seed)
        parts = [records.decoded() for _ in batches]
        return inputs.joined([x for x, _ in parts]), inputs.joined([y for _, y in parts])
    except (WorkerDied, OSError, MemoryError):
        raise
    except Exception:
        pass
    finally:
        records.close()
    wanted = "one whose records are pairs (x, y) of one shape, and that fails on none of them"
    raise InvalidArgument("data", "a Dataset", wanted)


class DatasetRecords(Records):
    """A map-style Dataset of (x, y) pairs, decoded by worker processes a block of steps ahead."""

    def __init__(self, dataset: Dataset[Any], *, device: torch.device, dtype: torch.dtype, workers: int) -> None:
        self._dataset, self._device, self._dtype = dataset, device, dtype
        self._batches: list[list[int]] = []  # that the loader decodes next, each begun by its seed
        self._loader = DataLoader(
            _Seeded(dataset),
            batch_sampler=self._batches,
            num_workers=workers,
            persistent_workers=workers > 0,
            generator=torch.Generator(),  # it seeds the workers, decides nothing, and spares torch's
        )
        self._coming: Iterator[Any] | None = None

    def __len__(self) -> int:
        return len(self._dataset)  # type: ignore[arg-type]

    def expect(self, lots: list[Tensor], seed: Seed) -> None:
        numbers = enumerate(lots)
        self._batches[:] = [[seed.child(place).number(63), *lot.reshape(-1).tolist()] for place, lot in numbers]
        with self._ended_by_a_death():
            self._coming = iter(self._loader)

    def fetch(self, indices: Tensor) -> Fetched:
        x, y = self.decoded()
        return shaped(inputs.each(self._moved, x), inputs.each(self._moved, y), indices, self._dtype)

    def decoded(self) -> Pair:
        """The next of the batches that `expect` announced."""
        if self._coming is None:
            raise RuntimeError("a fetch from a Dataset must be announced with expect()")
        try:
            with self._ended_by_a_death():
                batch = next(self._coming)
        except RuntimeError as trouble:
            if any(words in str(trouble) for words in ("to be equal size", "not resizable")):
                wanted = "a Dataset whose records share one shape: pad or crop them where they are decoded"
                raise InvalidArgument("data", "a Dataset of records of several shapes", wanted) from trouble
            raise
        return together(*batch)

    def _moved(self, part: Tensor) -> Tensor:
        return part.to(self._device)

    def blank(self, model: nn.Module) -> Pair:
        x, y = described(self._dataset[0])
        return two_blanks(model, inputs.each(self._moved, x), inputs.each(self._moved, y), self._dtype)

    @contextmanager
    def _ended_by_a_death(self) -> Iterator[None]:
        try:
            with deaths_named(reading=self._loader.num_workers > 0):
                yield
        except WorkerDied:
            self.close()
            raise

    def close(self) -> None:
        """End all workers now, and not when they are collected. What their end raises is not news."""
        iterator, self._coming = self._coming, None
        self._loader._iterator = None
        with suppress(Exception):
            iterator._shutdown_workers()  # type: ignore[union-attr]


class _Seeded(Dataset[Any]):
    """A Dataset whose batches come with a seed for what is drawn while they are decoded.

    A batch is then the same in whichever process it is decoded and whatever was decoded before it, so that a training that is
    resumed, or resumed twice, sees the same records. Of a Dataset that has none, generators of its own are not reached.
    """

    def __init__(self, dataset: Dataset[Any]) -> None:
        self._dataset = dataset

    def __getitems__(self, batch: list[int]) -> list[Any]:
        seed, *numbers = batch
        with lent():
            seed_all(seed)
            at_once = getattr(self._dataset, "__getitems__", None)
            records = list(at_once(numbers)) if at_once else [self._dataset[number] for number in numbers]
            return [as_pair(record) for record in records]
