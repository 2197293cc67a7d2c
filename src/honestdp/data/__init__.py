"""Where records come from."""

from honestdp.data.records import BlankRecords, Records, open_records

__all__ = ["BlankRecords", "Records", "open_records"]
