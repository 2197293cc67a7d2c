"""A trained model as a folder that travels: weights, schema, statement, model card and digests; and what is done with one."""
