"""Two digests by which a search or a training knows code again: of its text (`text`), and of everything it holds (`values`).

The text digest reads what a person wrote and no number that may come from records: `search.json` holds it for everybody to
read. The value digest also reads defaults, closures and attributes, and arrays and tensors once they are paid for: it is secret.
"""

from collections.abc import Mapping


def differing(then: Mapping[str, object], now: Mapping[str, object]) -> set[str]:
    """The names under which two mappings hold something else; a name that one of them lacks is among them.

    >>> sorted(differing({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4}))
    ['b', 'c']
    """
    return {name for name in {*then, *now} if then.get(name) != now.get(name)}
