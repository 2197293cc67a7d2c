"""The only package that reads records: `mechanism` releases gradients, `scores` releases validation scores."""
