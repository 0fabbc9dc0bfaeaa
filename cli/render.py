"""What the chat prints: an answer while it is written, notes, errors, the output of commands."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console
from rich.text import Text

from outrider.cli.errors import printable
from outrider.cli.frame import Frame, LiveRow
from outrider.cli.glyphs import Glyphs
from outrider.cli.markdown import MarkdownRows
from outrider.cli.markdown_stream import MarkdownStream
from outrider.cli.panel import Row, panel_form

Kind = Literal["plain", "strong", "dim", "warn", "error"]
Panel = Callable[[int, int], list[Row]]

_COLOURS = {"strong": "bold", "dim": "dim", "accepted": "cyan", "warn": "yellow", "error": "red"}
_NO_COLOURS = {"strong": "bold", "warn": "bold", "error": "bold"}
_SYSTEMS = {
    "standard": ColorSystem.STANDARD,
    "256": ColorSystem.EIGHT_BIT,
    "truecolor": ColorSystem.TRUECOLOR,
}
_PAINT_S = 1 / 12
_PAINT_SHARE = 33  # a paint may take one part in 33 of the time: 3 %


class Renderer(Protocol):
    """Where a chat is shown."""

    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        ...

    def show(self, lines: Sequence[str], kind: Kind = "plain") -> None:
        """Print lines for good."""
        ...

    def begin(self, panel: Panel) -> None:
        """An answer begins; ``panel`` gives its live rows for (columns, rows)."""
        ...

    def write(self, text: str) -> None:
        """A piece of the answer."""
        ...

    def refresh(self) -> None:
        """Paint, if it is time."""
        ...

    def pause(self) -> None:
        """Take the live rows away until the next refresh."""
        ...

    def end(self, summary: str | None) -> None:
        """The answer has ended."""
        ...


class PlainRenderer:
    """Text as it comes, for terminals that cannot move the cursor."""

    def __init__(self, write: Callable[[str], None], size: Callable[[], tuple[int, int]]) -> None:
        self._write = write
        self.size = size
        self._at_line_start = True

    def show(self, lines: Sequence[str], kind: Kind = "plain") -> None:
        if not self._at_line_start:
            self.write("\n")
        self.write("".join(f"{line}\n" for line in lines))

    def begin(self, panel: Panel) -> None:
        pass

    def write(self, text: str) -> None:
        if text:
            self._write(printable(text))
            self._at_line_start = text.endswith("\n")

    def refresh(self) -> None:
        pass

    def pause(self) -> None:
        pass

    def end(self, summary: str | None) -> None:
        if not self._at_line_start:
            self.write("\n")


class TerminalRenderer:
    """Markdown with a live tail and panel; finished rows go to the scrollback once."""

    def __init__(
        self,
        console: Console,
        write: Callable[[str], None],
        size: Callable[[], tuple[int, int]],
        glyphs: Glyphs,
        cursor_column: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.size = size
        self._console = console
        self._write = write
        self._markdown = MarkdownRows(console, glyphs)
        self._glyphs = glyphs
        self._cursor_column = cursor_column
        system = _SYSTEMS.get(console.color_system or "")
        self._has_colour = system is not None and not console.no_color
        self._system = system or ColorSystem.STANDARD
        self._styles = _COLOURS if self._has_colour else _NO_COLOURS
        self._frame: Frame | None = None
        self._stream = MarkdownStream(self._markdown)
        self._panel: Panel = lambda columns, rows: []
        self._next_paint = 0.0

    def show(self, lines: Sequence[str], kind: Kind = "plain") -> None:
        style = self._styles.get(kind, "")
        rows = [self._encoded(Text(printable(line), style)) for line in lines]
        if self._frame:
            self._paint(rows)
        else:
            self._write("".join(f"{row}\n" for row in [*rows, *self._gap()]))

    def begin(self, panel: Panel) -> None:
        self._write("".join(f"{row}\n" for row in self._gap()))
        self._panel = panel
        self._stream = MarkdownStream(self._markdown)
        self._frame = Frame(self._write, self.size, self._cursor_column)
        self._paint([])

    def write(self, text: str) -> None:
        self._stream.feed(printable(text))
        self.refresh()

    def refresh(self) -> None:
        if time.monotonic() >= self._next_paint:
            self._paint([])

    def pause(self) -> None:
        if self._frame:
            self._frame.settle()

    def end(self, summary: str | None) -> None:
        assert self._frame
        columns, _ = self.size()
        rows = [self._encoded(row) for row in self._stream.close(columns - 1)]
        if summary:
            rows += [
                *self._gap(),
                self._encoded(Text(printable(summary), self._styles.get("dim", ""))),
            ]
        self._frame.settle([*rows, *self._gap()])
        self._frame = None

    def _paint(self, printed: list[str]) -> None:
        """One frame: what became final, the tail, the panel; at most half the screen is live."""
        assert self._frame
        started = time.thread_time()
        columns, rows = self.size()
        panel = [self._text(row) for row in self._panel(columns, rows)]
        room = max(1, rows // 2 - len(panel) - 1)
        finished = [self._encoded(row) for row in self._stream.take(columns - 1, room)]
        tail = [part for row in self._stream.tail(columns - 1) for part in self._fold(row)][-room:]
        if panel and (tail or finished) and self._gap():
            tail.append(Text())
        live = [self._live(row) for row in [*tail, *panel]]
        self._frame.paint([*printed, *finished], live)
        cost = time.thread_time() - started
        self._next_paint = time.monotonic() + max(_PAINT_S, _PAINT_SHARE * cost)

    def _gap(self) -> list[str]:
        """A blank row where the screen is large enough for it."""
        return [""] if panel_form(*self.size()) in ("full", "mid") else []

    def _fold(self, row: Text) -> list[Text]:
        """A row in pieces that fit: live rows are counted, so none may wrap."""
        width = max(1, self.size()[0] - 1)
        if cell_len(row.plain) <= width:
            return [row]
        return list(row.wrap(self._console, width, overflow="fold"))

    def _text(self, row: Row) -> Text:
        return Text.assemble(*((printable(text), self._styles.get(role, "")) for text, role in row))

    def _live(self, row: Text) -> LiveRow:
        return LiveRow(self._encoded(row), cell_len(row.plain))

    def _encoded(self, row: Text) -> str:
        """A row with its escape sequences."""
        parts = []
        for segment in row.render(self._console):
            style = segment.style
            if style is None:
                parts.append(segment.text)
                continue
            style = style if self._has_colour else style.without_color
            parts.append(style.render(segment.text, color_system=self._system))
        return "".join(parts)


def write_terminal(text: str) -> None:
    """Write to stdout at once; what its encoding lacks is replaced."""
    data = text.encode(sys.stdout.encoding or "utf-8", "replace")
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
