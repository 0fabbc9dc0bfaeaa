"""Fetching a model file with a bar on a terminal, or one line where there is none."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from outrider.cli.errors import printable, say
from outrider.cli.glyphs import Glyphs, glyphs_for
from outrider.cli.screen.panel import Row, cut, progress_row, spread
from outrider.cli.stats_view import percent, three_digits
from outrider.profiles.model_source import ModelSource

if TYPE_CHECKING:
    from outrider.cli.screen.waiting_row import WaitingRow
    from outrider.profiles.progress import FetchProgress

_WORDS = {"download": "fetching", "check": "checking", "join": "joining"}
_MEGABYTE = 1e6


def fetch_file(source: ModelSource) -> Path:
    """The file of ``source``; how far it has come is told on stderr.

    Nothing is told about a file that is here already.
    """
    from outrider.profiles.sources import fetch

    has_cursor = os.environ.get("TERM", "").lower() not in ("dumb", "unknown")
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    with _Bar(source) if is_terminal and has_cursor else _Line() as tell:
        return fetch(source, progress=tell)


class _Line:
    """One line when a download begins, or when another process does it."""

    def __init__(self) -> None:
        self._is_told = False

    def __enter__(self) -> _Line:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def __call__(self, at: FetchProgress) -> None:
        if at.phase == "wait":
            say(printable(f"waiting: another process fetches {at.name}"))
        elif at.phase == "download" and not self._is_told:
            self._is_told = True
            say(printable(f"fetching {at.name}, once, from {at.origin}"))


class _Bar(_Line):
    """That line, a live row below it, and a last line in the row's place."""

    def __init__(self, source: ModelSource) -> None:
        super().__init__()
        self._is_hashed = source.sha256 is not None
        self._row: WaitingRow | None = None
        self._started = time.monotonic()
        self._num_bytes: dict[int, int] = {}
        self._began: dict[tuple[str, int], tuple[float, int]] = {}  # when, and with how much

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._row is not None:
            self._row.close()
        if error is None and self._is_told:
            megabytes = sum(self._num_bytes.values()) / _MEGABYTE
            hashed = ", sha256 checked" if self._is_hashed else ""
            say(f"fetched {megabytes:,.1f} MB in {time.monotonic() - self._started:,.0f} s{hashed}")

    def __call__(self, at: FetchProgress) -> None:
        super().__call__(at)
        if at.phase == "wait":
            return
        if at.phase == "download":
            self._num_bytes[at.part] = at.done
        now = time.monotonic()
        began, done_before = self._began.setdefault((at.phase, at.part), (now, at.done))
        speed = (at.done - done_before) / (now - began) if now > began else 0.0
        if self._row is None:
            self._row = _waiting_row()
        glyphs = glyphs_for(getattr(sys.stderr, "encoding", None))
        self._row.show(lambda columns: fetch_row(at, speed, columns, glyphs))


def _waiting_row() -> WaitingRow:
    from rich.console import Console

    from outrider.cli.screen.theme import theme_for
    from outrider.cli.screen.waiting_row import WaitingRow

    # nobody has asked about the background: the palette's colours can be read on most
    console = Console(stderr=True, color_system="standard")

    def write(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()

    return WaitingRow(write, lambda: console.size, theme_for(console))


def fetch_row(at: FetchProgress, speed: float, columns: int, glyphs: Glyphs) -> Row:
    """How far a file has come, at ``speed`` bytes a second; words that do not fit are left out."""
    width = columns - 1
    what = [] if at.phase == "download" else [_WORDS[at.phase]]
    part = [f"part {at.part} of {at.parts}"] if at.parts > 1 else []
    figures = [f"{three_digits(speed / _MEGABYTE, glyphs)} MB/s"] if speed > 0 else []
    if not at.total:
        head = f" {'  '.join([*what, *part, f'{at.done / _MEGABYTE:,.1f} MB', *figures])}"
        return cut(spread([(head, "dim")], "ctrl-c stops", width), width)
    amount = f"{at.done / _MEGABYTE:,.1f} of {at.total / _MEGABYTE:,.1f} MB"
    figures.insert(0, f"{percent(at.done, at.total):>4}")
    if speed > 0:
        figures.append(f"{(at.total - at.done) / speed:,.0f} s left")
    head = f" {'  '.join([*what, *part, amount])}  "
    row = progress_row(head, at.done / at.total, figures, width, glyphs)
    return cut(spread(row, "ctrl-c stops", width), width)
