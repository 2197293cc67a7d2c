"""A search that is refused before it is charged reads no record: the same trap as in the tests of searches."""

from tests.search.conftest import unread

__all__ = ["unread"]
