"""BatchProgress: how far a batch is, and what it brings."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from outrider.cli.glyphs import Glyphs
from outrider.cli.stats_view import fit, fraction, percent, short_fraction, three_digits
from outrider.speculative.events import GenerationResult

_READ_S = 0.25
_CELLS = 20
_WIDE = 60
_MOST_FAILURES = 3


@dataclass(slots=True)
class BatchProgress:
    """Counts of the answers that ended, and of those that are being written.

    The speed is that of all slots: tokens after the first of each answer over the time from
    the first token of any to the last of all.
    """

    total: int
    num_slots: int
    done: int = 0
    failures: list[str] = field(default_factory=list)
    skipped: int = 0
    drafted: int = 0
    accepted: int = 0
    clock: Callable[[], float] = time.perf_counter
    _tokens: int = 0
    _first_token: float | None = None
    _last_token: float = 0.0
    _began: float | None = None
    _next_row: float = 0.0

    def emitted(self, num_tokens: int, *, is_first: bool) -> None:
        """Some answer has ``num_tokens`` more; ``is_first`` if these are its first."""
        now = self.clock()
        if self._first_token is None:
            self._first_token = now
        self._tokens += 0 if is_first else num_tokens
        self._last_token = now

    def ended(self, result: GenerationResult) -> None:
        """An answer is whole."""
        self.done += 1
        self.drafted += result.stats.drafted
        self.accepted += result.stats.accepted

    def failed(self, why: str) -> None:
        """A request has no answer."""
        self.failures.append(why)

    @property
    def tokens_per_s(self) -> float | None:
        span = self._last_token - (self._first_token or self._last_token)
        return self._tokens / span if self._tokens and span > 0 else None

    @property
    def acceptance_rate(self) -> float | None:
        return self.accepted / self.drafted if self.drafted else None

    @property
    def num_over(self) -> int:
        """Requests that need no more work."""
        return self.done + len(self.failures)

    def is_due(self) -> bool:
        """True four times a second."""
        now = self.clock()
        if self._began is None:
            self._began = now
        if now < self._next_row:
            return False
        self._next_row = now + _READ_S
        return True

    def row(self, columns: int, glyphs: Glyphs) -> str:
        """The live row."""
        slots = f"{self.num_slots} slot{'s' if self.num_slots != 1 else ''}"
        figures = [
            f"{three_digits(self.tokens_per_s, glyphs)} tok/s",
            f"acc {short_fraction(self.acceptance_rate, glyphs)}",
        ]
        left = self._left()
        if columns < _WIDE:
            return fit([f"{self.num_over}/{self.total}", *figures], " ", columns - 2)
        full, empty = glyphs.gauge(self.num_over / self.total, _CELLS)
        bar = f"{full}{empty}  {percent(self.num_over, self.total):>4}"
        parts = [f"{self.num_over} of {self.total}", bar, slots, *figures]
        return fit([*parts, f"{left} left"] if left else parts, "  ", columns - 2)

    def summary(self, glyphs: Glyphs) -> str:
        """The last line."""
        counts = [f"{self.done} done"]
        if self.failures:
            shown: Iterable[str] = self.failures[:_MOST_FAILURES]
            more = [glyphs.ellipsis] * (len(self.failures) > _MOST_FAILURES)
            counts.append(f"{len(self.failures)} failed ({'; '.join([*shown, *more])})")
        if self.skipped:
            counts.append(f"{self.skipped} were there already")
        parts = [", ".join(counts)]
        if self._tokens:
            parts.append(f"{three_digits(self.tokens_per_s, glyphs)} tok/s")
        if self.drafted:
            parts.append(f"acceptance {fraction(self.acceptance_rate, glyphs)}")
        return f" {glyphs.separator} ".join(parts)

    def _left(self) -> str:
        """Minutes and seconds until all are done, at the pace so far."""
        if not self.num_over or self._began is None:
            return ""
        seconds = (self.clock() - self._began) / self.num_over * (self.total - self.num_over)
        return f"{seconds // 60:.0f}:{seconds % 60:02.0f}"
