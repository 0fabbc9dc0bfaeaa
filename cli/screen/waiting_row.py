"""WaitingRow: one live row that says how far something is that is waited for."""

from __future__ import annotations

import time
from collections.abc import Callable

from outrider.cli.screen.frame import Frame, LiveRow, Size
from outrider.cli.screen.panel import Row, row_width
from outrider.cli.screen.theme import Theme

_UNSEEN_S = 0.3
_PAINT_S = 0.25


class WaitingRow:
    """Painted at most four times a second, and not at all where the wait is under 0.3 s."""

    def __init__(
        self, write: Callable[[str], None], size: Callable[[], Size], theme: Theme
    ) -> None:
        self._frame = Frame(write, size)
        self._size = size
        self._theme = theme
        self._started = time.monotonic()
        self._next_paint = self._started + _UNSEEN_S

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._started

    def show(self, row: Callable[[int], Row]) -> None:
        """Paint ``row`` of so many columns, if it is time."""
        now = time.monotonic()
        if now < self._next_paint:
            return
        self._next_paint = now + _PAINT_S
        pieces = row(self._size()[0])
        text = "".join(self._theme.escaped(*piece) for piece in pieces)
        self._frame.paint([], [LiveRow(text, row_width(pieces))])

    def close(self) -> None:
        """Take the row away."""
        self._frame.settle()
