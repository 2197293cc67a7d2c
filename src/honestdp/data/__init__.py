"""Datasets that honestdp knows by name, and where their files come from."""
