"""Two digests by which a search or a training knows code again: of its text (`text`), and of everything it holds (`values`).

The text digest reads what a person wrote and no number that may come from records: `search.json` holds it for everybody to
read. The value digest also reads defaults, closures and attributes, and arrays and tensors once they are paid for: it is secret.
"""
