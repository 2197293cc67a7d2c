"""Records behind a map-style Dataset, decoded by worker processes.

A worker that dies (killed, out of memory, a crash in a decoder) is noticed by torch in a signal handler, which raises
wherever this process happens to be, or by a connection that breaks. Both are told as one error, and the other workers are
ended, so that no signal comes later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from honestdp.boundary.layouts import as_pair, described, together
from honestdp.boundary.records import Fetched, Pair, Records, shaped, two_blanks
from honestdp.boundary.seed import Seed, lent, seed_all
from honestdp.checks import HonestdpError, InvalidArgument
from honestdp.gradients import inputs

_AHEAD = 64  # records that a worker decodes together when all are read once
_PATIENCE = 1.0  # seconds in which a worker whose connection broke is found dead
Answer = TypeVar("Answer")


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
def deaths_named() -> Iterator[None]:
    """Within, a worker's death is a `WorkerDied`, wherever torch's signal handler raises it."""
    try:
        yield
    except RuntimeError as trouble:
        words = ("exited unexpectedly", "killed by signal", "is killed")
        died = "DataLoader worker" in str(trouble) and any(part in str(trouble) for part in words)
        if isinstance(trouble, WorkerDied) or not died:
            raise
        raise WorkerDied(trouble) from trouble


def decoded_once(dataset: Dataset[Any], *, workers: int, seed: Seed) -> Pair:
    """Every record of a Dataset, each read once. seed: of what it draws meanwhile.

    What a record raises is not repeated: its words are the record's.
    """
    if len(dataset) == 0:  # type: ignore[arg-type]
        return torch.empty(0), torch.empty(0)
    try:
        batches = [part.tolist() for part in torch.split(torch.arange(len(dataset)), 4 * _AHEAD)]  # type: ignore[arg-type]
        decoded = iter(loader_of(dataset, seeded_batches(batches, seed), workers=workers))
        try:
            with deaths_named():
                parts = [together(x, y) for x, y in decoded]
        finally:
            _end_workers(decoded)
        return inputs.joined([x for x, _ in parts]), inputs.joined([y for _, y in parts])
    except (WorkerDied, OSError, MemoryError):
        raise
    except Exception:
        pass
    wanted = "one whose records are pairs (x, y) of one shape, and that fails on none of them"
    raise InvalidArgument("data", "a Dataset", wanted)


class DatasetRecords(Records):
    """A map-style Dataset of (x, y) pairs, decoded by worker processes a block of steps ahead."""

    def __init__(self, dataset: Dataset[Any], *, device: torch.device, dtype: torch.dtype, workers: int) -> None:
        self._dataset, self._device, self._dtype = dataset, device, dtype
        self._batches: list[list[int]] = []  # that the loader decodes next
        self._loader = loader_of(dataset, self._batches, workers=workers, persistent=True)
        self._coming: Iterator[Any] | None = None

    def __len__(self) -> int:
        return len(self._dataset)  # type: ignore[arg-type]

    def expect(self, lots: list[Tensor], seed: Seed) -> None:
        self._batches[:] = seeded_batches([lot.reshape(-1).tolist() for lot in lots], seed)
        self._coming = self._asked(lambda: iter(self._loader))

    def fetch(self, indices: Tensor) -> Fetched:
        x, y = together(*self._next())
        return shaped(inputs.each(self._moved, x), inputs.each(self._moved, y), indices, self._dtype)

    def _moved(self, part: Tensor) -> Tensor:
        return part.to(self._device)

    def _next(self) -> Any:
        coming = self._coming
        if coming is None:
            raise RuntimeError("a fetch from a Dataset must be announced with expect()")
        return self._asked(lambda: next(coming))

    def blank(self, model: nn.Module) -> Pair:
        x, y = described(self._dataset[0])
        return two_blanks(model, inputs.each(self._moved, x), inputs.each(self._moved, y), self._dtype)

    def _asked(self, act: Callable[[], Answer]) -> Answer:
        try:
            with deaths_named():
                return act()
        except WorkerDied:
            self.close()
            raise
        except (OSError, EOFError, RuntimeError) as trouble:
            # "Caught" is torch's word for an error of the Dataset in a worker that lives.
            if not str(trouble).startswith("Caught ") and self._found_dead():
                self.close()
                raise WorkerDied(trouble) from trouble
            if any(words in str(trouble) for words in ("to be equal size", "not resizable")):
                wanted = "a Dataset whose records share one shape: pad or crop them where they are decoded"
                raise InvalidArgument("data", "a Dataset of records of several shapes", wanted) from trouble
            raise

    def _found_dead(self) -> bool:
        """Whether a worker has ended, which may show a moment after its connection broke."""
        waited, workers = time.monotonic() + _PATIENCE, getattr(self._coming, "_workers", [])
        while workers:
            with suppress(RuntimeError):  # the signal handler's own word for it
                if not all(worker.is_alive() for worker in workers):
                    return True
                if time.monotonic() > waited:
                    return False
                time.sleep(0.02)
        return False

    def close(self) -> None:
        """End all workers. What their end raises is not news."""
        iterator, self._coming = self._coming, None
        self._loader._iterator = None
        _end_workers(iterator)


def _end_workers(iterator: Any) -> None:
    """Of a DataLoader, now and not when it is collected: one whose Dataset failed would leave its workers behind."""
    with suppress(Exception):
        iterator._shutdown_workers()


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


def seeded_batches(batches: list[list[int]], seed: Seed) -> list[list[int]]:
    """Batches of record numbers as `loader_of` takes them, each with its seed before it."""
    return [[seed.child(number).number(63), *batch] for number, batch in enumerate(batches)]


def loader_of(dataset: Any, batches: Any, *, workers: int, persistent: bool = False) -> DataLoader[Any]:
    """A DataLoader of `seeded_batches`. Its own generator, which seeds its workers, decides nothing and spares torch's."""
    keep, generator = persistent and workers > 0, torch.Generator()
    return DataLoader(
        _Seeded(dataset), batch_sampler=batches, num_workers=workers, persistent_workers=keep, generator=generator
    )
