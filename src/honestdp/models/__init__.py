"""A trained model as a folder that travels: weights, schema, statement, model card and digests; noisy scores of one; and
`fix`, a copy of a model without the layers that private training refuses."""
