"""StateRing: the target's hidden states of the last few hundred tokens of a sequence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]

RING_ROWS = 512


class StateRing:
    """Rows by position: the row of position p lies at p modulo the size.

    Holds one unbroken range of positions, up to the newest. A row that is decoded again at a
    position replaces the one that was there, so rejected tokens need no care.
    """

    def __init__(self, width: int, size: int = RING_ROWS) -> None:
        self._rows: F32 = np.zeros((size, width), np.float32)
        self.first = 0
        self.end = 0

    def write(self, start: int, taps: Sequence[F32]) -> None:
        """Put in the rows of the positions from ``start`` on.

        ``taps`` are arrays [n, w] that lie side by side in a row. Only the last rows that fit
        are copied.
        """
        count = len(taps[0])
        size = len(self._rows)
        skipped = max(0, count - size)
        if start > self.end or start < self.first:
            self.first = start  # a gap before, or none of the old rows is known to go on
        self.end = start + count
        self.first = max(self.first, self.end - size)
        # two runs at most: up to the last row of the array, and on from its first
        place = (start + skipped) % size
        split = min(skipped + size - place, count)
        self._copy(taps, skipped, split, place)
        if split < count:
            self._copy(taps, split, count, 0)

    def _copy(self, taps: Sequence[F32], first: int, end: int, place: int) -> None:
        rows, column = self._rows[place : place + end - first], 0
        for tap in taps:
            width = tap.shape[1]
            rows[:, column : column + width] = tap[first:end]
            column += width

    def read(self, start: int, end: int) -> F32:
        """A copy of the rows [end - start, width] of positions ``start`` .. ``end`` - 1."""
        assert self.first <= start <= end <= self.end
        return self._rows[np.arange(start, end) % len(self._rows)]
