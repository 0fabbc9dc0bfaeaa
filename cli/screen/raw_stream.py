"""Text that is still being written, shown as it is: no Markdown."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

_KEPT_ROWS = 2
_TAB_SIZE = 4


class RawStream:
    """Takes text as it comes and gives each finished line once.

    With ``wraps`` lines are cut to the width, and a line longer than the tail gives up its rows
    but the last two. Without, the terminal wraps them, and what is copied is what was written.
    Blank lines come with the line after them: at the ends of the text there are none.
    """

    def __init__(self, console: Console, *, wraps: bool) -> None:
        self._console = console
        self._wraps = wraps
        self._lines: list[Text] = []
        self._line = Text()  # the one that is being written
        self._is_begun = False
        self._num_blank = 0

    def feed(self, text: str, style: str = "") -> None:
        for number, part in enumerate(text.split("\n")):
            if number:
                self._lines.append(self._line)
                self._line = Text()
            self._line.append(part, style)

    def take(self, width: int, max_rows: int) -> list[Text]:
        """The rows that became final since the last call, for a tail of ``max_rows``."""
        rows: list[Text] = []
        for line in self._lines:
            self._emit(rows, self._rows(line, width))
        self._lines.clear()
        if self._wraps and max_rows:
            self._take_long_line(rows, width, max(max_rows, _KEPT_ROWS))
        return rows

    def tail(self, width: int) -> list[Text]:
        """The rows that may still change."""
        rows = self._rows(self._line, width)
        return [*self._gap(), *rows] if any(row.plain for row in rows) else []

    def close(self, width: int) -> list[Text]:
        """The text has ended: all that is left."""
        self.feed("\n")
        return self.take(width, max_rows=0)

    def _rows(self, line: Text, width: int) -> list[Text]:
        line.expand_tabs(_TAB_SIZE)
        rows = list(line.wrap(self._console, max(1, width))) if self._wraps else [line.copy()]
        for row in rows:
            row.rstrip()
        return rows

    def _gap(self) -> list[Text]:
        return [Text()] * self._num_blank if self._is_begun else []

    def _emit(self, rows: list[Text], line: list[Text]) -> None:
        if any(row.plain for row in line):
            rows += [*self._gap(), *line]
            self._is_begun, self._num_blank = True, 0
        else:
            self._num_blank += 1

    def _take_long_line(self, rows: list[Text], width: int, max_rows: int) -> None:
        shown = self._rows(self._line, width)
        if len(shown) <= max_rows:
            return
        plain, place = self._line.plain, 0
        for row in shown[:-_KEPT_ROWS]:
            place = plain.index(row.plain, place) + len(row.plain)
        place = len(plain) - len(plain[place:].lstrip())
        self._emit(rows, shown[:-_KEPT_ROWS])
        self._line = self._line.divide([place])[1]
