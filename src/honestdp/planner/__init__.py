"""The planner: selection, noise, lot and steps of a search from public numbers, before a single record is read."""
