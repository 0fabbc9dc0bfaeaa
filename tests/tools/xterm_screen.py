"""An emulated screen resized as by xterm: rows are cut or padded, never wrapped anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyte

# pyte knows no faint text: it is kept as blinking, which nothing here uses
pyte.graphics.TEXT[2] = "+blink"


class XtermScreen(pyte.HistoryScreen):
    """pyte's own resize loses the rows that leave at the top; here they go to the scrollback.

    ``answer`` takes what the terminal says to the program: where its cursor is, when asked.
    """

    def __init__(
        self, columns: int, rows: int, history: int, answer: Callable[[str], None]
    ) -> None:
        super().__init__(columns, rows, history=history, ratio=0.5)
        self._answer = answer

    def resize(self, lines: int | None = None, columns: int | None = None) -> None:
        lines, columns = lines or self.lines, columns or self.columns
        leaving = max(0, self.cursor.y + 1 - lines)
        self.history.top.extend(self.buffer[row] for row in range(leaving))
        kept = {row - leaving: self.buffer[row] for row in range(leaving, self.lines)}
        self.buffer.clear()
        self.buffer.update({row: line for row, line in kept.items() if row < lines})
        for line in self.buffer.values():
            for column in range(columns, self.columns):
                line.pop(column, None)
        self.lines, self.columns = lines, columns
        self.cursor.y -= leaving
        self.cursor.x = min(self.cursor.x, columns - 1)
        self.set_margins()

    def write_process_input(self, data: str) -> None:
        self._answer(data)

    def report_device_status(self, mode: int, **kwargs: Any) -> None:
        if not kwargs:  # a private request is none of those that pyte answers
            super().report_device_status(mode)
