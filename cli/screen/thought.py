"""Thought: what the model thinks before it answers, folded to one row or open."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.cells import cell_len

from outrider.cli.errors import printable
from outrider.cli.glyphs import Glyphs
from outrider.cli.screen.panel import Row
from outrider.cli.stats_view import fit, plural, seconds

_MOST_WORDS = 200  # characters of the end that are looked at for the live row


class Thought:
    """The thought of one answer. ``is_open`` shows it as it comes; it can change on the way."""

    def __init__(
        self, glyphs: Glyphs, *, is_open: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.is_open = is_open
        self.text = ""
        self.num_tokens = 0
        self._glyphs = glyphs
        self._clock = clock
        self._started: float | None = None
        self._num_shown = 0
        self._was_shown = False

    def feed(self, text: str, num_tokens: int) -> list[str]:
        """Add text; return the lines that are to be printed now, none while it is folded."""
        if self._started is None:
            self._started = self._clock()
        self.text += text
        self.num_tokens += num_tokens
        if not self.is_open:
            self._num_shown = len(self.text)
            return []
        end = self.text.rfind("\n") + 1
        return self._take(max(end, self._num_shown))

    def close(self) -> list[str]:
        """The last lines: the rest of an open thought and how long it took."""
        rest = self._take(len(self.text)) if self.is_open else []
        took = seconds(self._clock() - (self._started or self._clock()), self._glyphs)
        words = f"thought for {took}, {plural(self.num_tokens, 'token')}"
        if self._was_shown:
            return [*rest, self._ruled(words)]
        return [f"{words} {self._glyphs.separator} /think show"]

    def row(self, columns: int) -> Row:
        """One live row with the last words."""
        elapsed = seconds(self._clock() - (self._started or self._clock()), self._glyphs)
        head = f" thinking  {elapsed}  {plural(self.num_tokens, 'token')}  "
        tail = "  ctrl-t folds" if self.is_open else "  ctrl-t opens"
        room = columns - 1 - len(head) - len(tail)
        if room < 8:
            return [(fit([head.rstrip()], "", columns - 1), "dim")]
        words = printable(" ".join(self.text[-_MOST_WORDS:].split()))
        if cell_len(words) > room:
            while cell_len(words) > room - len(self._glyphs.ellipsis):
                words = words[1:]
            words = self._glyphs.ellipsis + words
        return [(head + words + tail, "dim")]

    def _ruled(self, words: str) -> str:
        rule = 2 * self._glyphs.rule
        return f"{rule} {words} {rule}"

    def _take(self, end: int) -> list[str]:
        lines = self.text[self._num_shown : end].strip("\n").split("\n")
        self._num_shown = end
        if lines == [""]:
            return []
        opening = [] if self._was_shown else [self._ruled("thinking")]
        self._was_shown = True
        return [*opening, *lines]
