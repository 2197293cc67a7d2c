"""The only package that sees a record. Two doors: `mechanism` for gradients, `scores` for validation."""
