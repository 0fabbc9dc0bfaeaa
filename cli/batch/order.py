"""InOrder: results that come as they are done leave in the order of the requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping

Result = Mapping[str, object]


class InOrder:
    """Holds back each result until all before it are there."""

    def __init__(self, write: Callable[[Result], None]) -> None:
        self._write = write
        self._next = 0
        self._held: dict[int, Result] = {}

    def put(self, place: int, result: Result) -> None:
        """Take the result of the request at ``place``, counted from 0."""
        self._held[place] = result
        while self._next in self._held:
            self._write(self._held.pop(self._next))
            self._next += 1
