"""The only package that reads records: `mechanism` releases gradients, `scores` releases validation scores. Two doors:
`mechanism` for gradients, `scores` for validation."""
