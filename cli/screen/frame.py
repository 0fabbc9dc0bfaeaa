"""The live rows at the bottom of the terminal, and the rows above them that stay for good.

Each frame is one write: erase the live rows, print what is finished, draw the live rows again.
A finished row is printed once and never touched. While the terminal is being resized nothing
is painted: terminals move rows first and tell the program later.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.cells import get_character_cell_size

Size = tuple[int, int]  # columns, rows

_REST_S = 0.3
_MOST_DOUBTS = 5
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
# never a bare CSI J at the top left: tmux files the whole screen into its history there
ERASE_DOWN = "\x1b[K\x1b[C\x1b[J\x1b[D"


@dataclass(frozen=True, slots=True)
class LiveRow:
    """One row with its escape sequences, and its width in cells."""

    text: str
    width: int

    def rows(self, columns: int) -> int:
        """How many rows it takes when wrapped; a wide character is never split."""
        rows, used = 1, 0
        for character in _ESCAPES.sub("", self.text) if self.width > columns else "":
            width = get_character_cell_size(character)
            if used + width > columns:
                rows, used = rows + 1, 0
            used += width
        return rows


class Frame:
    """Writes frames; ``size`` is (columns, rows) now.

    ``cursor_column`` asks the terminal where the cursor stands, None if it does not say.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        size: Callable[[], Size],
        cursor_column: Callable[[], int | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._write = write
        self._size = size
        self._cursor_column = cursor_column
        self._clock = clock
        self._sleep = sleep
        self._live: list[LiveRow] = []
        self._finished: list[str] = []
        self._drawn_size = self._seen_size = size()
        self._stable_since = float("-inf")
        self._reflows: bool | None = None
        self._parked = 0
        self._doubts = 0

    @property
    def is_stable(self) -> bool:
        """Whether the size has been the same for long enough to paint."""
        now, size = self._clock(), self._size()
        if size != self._seen_size:
            self._seen_size, self._stable_since = size, now
        return now - self._stable_since >= _REST_S

    def paint(self, finished: Sequence[str], live: Sequence[LiveRow]) -> bool:
        """Print finished rows above new live rows; False if that has to wait for a resize.

        Finished rows are never lost: they are printed by the next frame that can.
        """
        self._finished += finished
        if not self.is_stable or not self._knows_rows():
            return False
        erase = self._erase()
        if self._size() != self._seen_size:
            return False
        body = "".join(f"{row}\r\n" for row in self._finished)
        body += "\r\n".join(row.text for row in live)
        if live:
            self._parked = max(live[-1].width - 1, 2) // 2 * 2
            body += f"\r\x1b[{self._parked}C"
        self._write(f"{_BEGIN}{_HIDE}{erase}{body}{'' if live else _SHOW}{_END}")
        self._finished.clear()
        self._live, self._drawn_size = list(live), self._seen_size
        return True

    def settle(self, finished: Sequence[str] = ()) -> None:
        """Print finished rows for good and leave no live row, however long a resize takes."""
        while not self.paint(finished, []):
            finished = ()
            self._sleep(_REST_S / 6)

    def _knows_rows(self) -> bool:
        """Whether it is clear how many rows the live rows take now.

        Learnt at the first narrowing: the cursor was left in the last even column c that is
        written. After a reflow to n columns it stands at c mod n, where a clamped cursor never
        does, unless n is c + 1 or a divisor of it, a third or less. Then nothing is learnt: to
        take the rows for cut may leave a copy of them, the other error would eat what stays.
        """
        columns = self._seen_size[0]
        reflowed = self._parked % columns
        if not self._live or self._reflows is not None or reflowed in (self._parked, columns - 1):
            return True
        column = self._cursor_column()
        if column == reflowed:
            self._reflows = True
        elif column in (None, columns - 1) or self._doubts >= _MOST_DOUBTS:
            self._reflows = False
        else:
            self._doubts += 1
        return self._reflows is not None

    def _erase(self) -> str:
        """From the parked cursor to the first live row, and everything below it."""
        if not self._live:
            return ""
        rows, columns = len(self._live) - 1, self._seen_size[0]
        if columns < self._drawn_size[0] and self._reflows:
            rows = sum(row.rows(columns) for row in self._live[:-1])
            rows += self._parked // columns
        return "\r" + (f"\x1b[{rows}A" if rows else "") + ERASE_DOWN
