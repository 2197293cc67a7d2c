"""Training: a model or a population of candidates, from initial weights to final ones."""
