"""What the chat prints: an answer while it is written, notes, errors, the output of commands."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from outrider.cli.errors import printable
from outrider.cli.glyphs import Glyphs
from outrider.cli.screen.frame import Frame, LiveRow
from outrider.cli.screen.markdown import MarkdownRows
from outrider.cli.screen.markdown_stream import MarkdownStream
from outrider.cli.screen.panel import Row, panel_form
from outrider.cli.screen.raw_stream import RawStream
from outrider.cli.screen.theme import Theme, theme_for
from outrider.cli.screen.tint import tint_legend, tinted_pieces
from outrider.speculative.events import Spans

Kind = Literal["plain", "strong", "dim", "warn", "error"]
TextForm = Literal["markdown", "raw", "tint"]
Panel = Callable[[int, int], list[Row]]

_PAINT_S = 1 / 12
_LOOK_S = 0.04
_PAINT_SHARE = 40  # with what reading the text takes the screen stays below 3 % of the time


class Renderer(Protocol):
    """Where a chat is shown; ``can_tint`` says whether it has a look for accepted text."""

    can_tint: bool

    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        ...

    def show(self, lines: Sequence[str], kind: Kind = "plain") -> None:
        """Print lines for good."""
        ...

    def begin(self, panel: Panel, form: TextForm = "markdown") -> None:
        """An answer begins; ``panel`` gives its live rows for (columns, rows)."""
        ...

    def write(self, text: str, accepted: Spans = ()) -> None:
        """A piece of the answer; ``accepted`` parts of it are tinted, where the form says so."""
        ...

    def go_on(self, form: TextForm) -> None:
        """Another form from here on, where a block of the answer begins."""
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

    can_tint = False

    def __init__(self, write: Callable[[str], None], size: Callable[[], tuple[int, int]]) -> None:
        self._write = write
        self.size = size
        self._at_line_start = True

    def show(self, lines: Sequence[str], kind: Kind = "plain") -> None:
        if not self._at_line_start:
            self.write("\n")
        self.write("".join(f"{line}\n" for line in lines))

    def begin(self, panel: Panel, form: TextForm = "markdown") -> None:
        pass

    def write(self, text: str, accepted: Spans = ()) -> None:
        if text:
            self._write(printable(text))
            self._at_line_start = text.endswith("\n")

    def go_on(self, form: TextForm) -> None:
        pass

    def refresh(self) -> None:
        pass

    def pause(self) -> None:
        pass

    def end(self, summary: str | None) -> None:
        if not self._at_line_start:
            self.write("\n")


class TerminalRenderer:
    """An answer with a live tail and panel; finished rows go to the scrollback once."""

    can_tint = True

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
        self._cursor_column = cursor_column
        self._theme = theme_for(console)
        console.push_theme(self._theme.for_rich())
        self._markdown = MarkdownRows(console, glyphs)
        self._frame: Frame | None = None
        self._form: TextForm = "markdown"
        self._stream: MarkdownStream | RawStream = self._new_stream()
        self._is_begun = False  # something of the answer was written
        self._panel: Panel = lambda columns, rows: []
        self._next_paint = self._next_look = 0.0

    def dress(self, theme: Theme, glyphs: Glyphs) -> None:
        """Look like this from the next output on."""
        self._console.pop_theme()
        self._console.push_theme(theme.for_rich())
        self._theme = theme
        self._markdown = MarkdownRows(self._console, glyphs)

    def show(self, lines: Sequence[str], kind: Kind = "plain") -> None:
        style = self._theme.styles.get(kind, "")
        rows = [self._encoded(Text(printable(line), style)) for line in lines]
        if self._frame:
            self._paint(rows)
        else:
            gap = [] if kind == "strong" else self._gap()  # the answer to a message begins with one
            self._write("".join(f"{row}\n" for row in [*rows, *gap]))

    def begin(self, panel: Panel, form: TextForm = "markdown") -> None:
        self._write("".join(f"{row}\n" for row in self._gap()))
        self._panel, self._form = panel, form
        self._stream, self._is_begun = self._new_stream(), False
        self._frame = Frame(self._write, self.size, self._cursor_column)
        self._paint([])

    def write(self, text: str, accepted: Spans = ()) -> None:
        self._is_begun = self._is_begun or bool(text)
        if isinstance(self._stream, RawStream) and self._form == "tint":
            tint = self._theme.styles["tint"]
            for piece, is_accepted in tinted_pieces(text, accepted):
                self._stream.feed(printable(piece), tint if is_accepted else "")
        else:
            self._stream.feed(printable(text))
        self.refresh()

    def go_on(self, form: TextForm) -> None:
        rows = self._stream.close(self.size()[0] - 1)
        if self._is_begun:
            rows.append(Text())
        self._form = form
        self._stream = self._new_stream()
        self._paint([self._encoded(row) for row in rows])

    def _new_stream(self) -> MarkdownStream | RawStream:
        if self._form == "markdown":
            return MarkdownStream(self._markdown)
        return RawStream(self._console, wraps=self._form == "tint")

    def refresh(self) -> None:
        assert self._frame
        now = time.monotonic()
        if now < self._next_look:
            return
        # more often than is painted, or a short rest between two sizes would go by unseen
        self._next_look = now + _LOOK_S
        if self._frame.is_stable and now >= self._next_paint:
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
                self._encoded(Text(printable(summary), self._theme.styles["dim"])),
            ]
        self._frame.settle([*rows, *self._gap()])
        self._frame = None

    def _paint(self, printed: list[str]) -> None:
        """One frame: what became final, the tail, the panel; at most half the screen is live."""
        assert self._frame
        started = time.thread_time()
        columns, rows = self.size()
        panel = [
            self._text(row) for row in [*self._legend(columns, rows), *self._panel(columns, rows)]
        ]
        room = max(1, rows // 2 - len(panel) - 1)
        finished = [self._encoded(row) for row in self._stream.take(columns - 1, room)]
        tail = [part for row in self._stream.tail(columns - 1) for part in self._fold(row)][-room:]
        if panel and (tail or finished) and self._gap():
            tail.append(Text())
        live = [self._live(row) for row in [*tail, *panel]]
        self._frame.paint([*printed, *finished], live)
        cost = time.thread_time() - started
        self._next_paint = time.monotonic() + max(_PAINT_S, _PAINT_SHARE * cost)

    def _legend(self, columns: int, rows: int) -> list[Row]:
        if self._form != "tint" or panel_form(columns, rows) == "none":
            return []
        return [tint_legend("coloured" if self._theme.has_colour else "underlined", columns)]

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
        styles = self._theme.styles
        return Text.assemble(*((printable(text), styles[role]) for text, role in row))

    def _live(self, row: Text) -> LiveRow:
        return LiveRow(self._encoded(row), cell_len(row.plain))

    def _encoded(self, row: Text) -> str:
        """A row with its escape sequences."""
        whole = self._console.get_style(row.style)  # rich leaves it out where nothing else is
        return "".join(
            self._theme.rendered(segment.text, segment.style or whole)
            for segment in row.render(self._console)
        )


def write_terminal(text: str) -> None:
    """Write to stdout at once; what its encoding lacks is replaced."""
    data = text.encode(sys.stdout.encoding or "utf-8", "replace")
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
