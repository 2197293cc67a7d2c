"""Where records come from."""

from honestdp.data.decoded import WorkerDied
from honestdp.data.opening import open_records
from honestdp.data.records import BlankRecords, Records

__all__ = ["BlankRecords", "Records", "WorkerDied", "open_records"]
