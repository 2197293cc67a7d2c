"""Where records come from."""

from honestdp.data.records import BlankRecords, Records, WorkerDied, open_records

__all__ = ["BlankRecords", "Records", "WorkerDied", "open_records"]
