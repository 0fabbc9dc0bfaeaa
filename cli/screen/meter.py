"""The figures of the answer that is being written, taken from the engine for the panel."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from outrider.cli.screen.panel import PanelView
from outrider.cli.stats_view import fraction, pause_words
from outrider.speculative.settings import SpeculationSettings
from outrider.speculative.statistics import Pause, SpeculationStats, Timings

_READ_S = 0.25
_SPEED_CELL_S = 0.5
_PAUSE_WORDS_S = 1.0
_MOST_SPEEDS = 32
_MOST_POSITIONS = 8
_DRAFTS_FOR_A_BAR = 8


class Measured(Protocol):
    """The part of a session that is shown."""

    @property
    def stats(self) -> SpeculationStats: ...
    @property
    def timings(self) -> Timings: ...
    @property
    def draft_length(self) -> int | None: ...
    @property
    def dropped(self) -> Mapping[str, str]: ...
    @property
    def plain_s(self) -> float | None: ...
    @property
    def context_used(self) -> int: ...


class Meter:
    """Figures that are read four times a second and stay the same in between.

    ``first_token_s`` is the time from Enter to the first shown token. ``longest`` is the most
    tokens that a draft can have, ``off_words`` say why nothing is drafted. ``calibrated_s`` tells
    what a plain step takes by the times of the start; the gain is estimated by it until enough
    plain steps of the chat are known.
    """

    def __init__(
        self,
        session: Measured,
        *,
        n_ctx: int,
        drafters: Sequence[str],
        speculation: SpeculationSettings,
        rule: str,
        longest: int = 0,
        off_words: str = "",
        calibrated_s: Callable[[], float | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.first_token_s: float | None = None
        self._session = session
        self._drafters = drafters
        self._speculation = speculation
        self._longest = longest
        self._off_words = off_words
        self._calibrated_s = calibrated_s
        self._dropped_before = len(session.dropped)
        # until this answer begins the session has the figures of the last one
        self._former = session.stats if session.stats.emitted else None
        self._clock = clock
        self._started = self._last_cell = clock()
        self._read_at = float("-inf")
        self._last_emitted = 0
        self._speeds: deque[float] = deque(maxlen=_MOST_SPEEDS)
        self._pause: Pause | None = None
        self._paused_until = float("-inf")
        self._view = PanelView(
            n_ctx=n_ctx,
            is_drafting=bool(drafters) and not off_words,
            drafters=", ".join(drafters),
            verification=rule if drafters else None,
            synthetic=self._synthetic_words() if rule == "synthetic" else None,
        )

    def first_token(self) -> None:
        """The first piece of the answer was shown now."""
        if self.first_token_s is None:
            self.first_token_s = self._clock() - self._started
            self._read_at = float("-inf")  # the prompt is read: there are figures now

    def view(self) -> PanelView:
        """The figures now, or those of up to a quarter of a second ago."""
        now = self._clock()
        if now - self._read_at >= _READ_S and self._session.stats is not self._former:
            self._read_at = now
            self._view = self._read(now)
        return self._view

    def _read(self, now: float) -> PanelView:
        stats, timings = self._session.stats, self._session.timings
        self._add_speeds(now, stats.emitted)
        pause = self._steady_pause(now, self._new_drop() or stats.paused)
        mean, measured_s = timings.tokens_per_s, self._session.plain_s
        plain_s = measured_s or self._calibrated_s()
        gain = mean * plain_s if mean and plain_s else None
        return replace(
            self._view,
            now=timings.tokens_per_s_now,
            mean=mean,
            gain=gain,
            is_gain_estimated=gain is not None and measured_s is None,
            speeds=tuple(self._speeds),
            first_token_s=self.first_token_s,
            acceptance_rate=stats.acceptance_rate,
            mean_accepted_length=stats.mean_accepted_length,
            drafts=stats.drafts,
            steps=stats.steps,
            drafted=stats.drafted,
            accepted=stats.accepted,
            positions=_positions(stats),
            state=pause_words(pause) if pause else self._drafting(),
            short_state=pause_words(pause, short=True) if pause else None,
            context_used=self._session.context_used,
        )

    def _add_speeds(self, now: float, emitted: int) -> None:
        """One cell of the sparkline each half second, from the first token on."""
        if self._last_emitted == 0:
            self._last_emitted, self._last_cell = emitted, now
        elapsed = now - self._last_cell
        if elapsed >= _SPEED_CELL_S:
            self._speeds.append((emitted - self._last_emitted) / elapsed)
            self._last_emitted, self._last_cell = emitted, now

    def _steady_pause(self, now: float, pause: Pause | None) -> Pause | None:
        """The words of a pause stay for a second."""
        if pause is None:
            return self._pause if now < self._paused_until else None
        if now >= self._paused_until:
            self._pause, self._paused_until = pause, now + _PAUSE_WORDS_S
        return self._pause

    def _new_drop(self) -> Pause | None:
        """Why the last of the drafters was dropped that were dropped in this answer."""
        dropped = self._session.dropped
        if len(dropped) <= self._dropped_before:
            return None
        *_, (name, reason) = dropped.items()
        return Pause(f"{name} dropped: {reason}")

    def _drafting(self) -> str:
        if self._off_words or not self._drafters:
            return self._off_words
        length, is_adaptive = self._session.draft_length, self._speculation.adaptive
        parts = ["adaptive" if is_adaptive else "fixed"]
        if length is not None:
            parts.insert(0, f"length {length}" + (f" of {self._longest}" if is_adaptive else ""))
        return f"{', then '.join(self._drafters)}   {', '.join(parts)}"

    def _synthetic_words(self) -> str:
        length, rates = self._speculation.synth_len, self._speculation.synth_rates or ()
        what = (
            f"mean length {fraction(length)}"
            if length is not None
            else f"acceptance {fraction(sum(rates) / len(rates) if rates else None)}"
        )
        return f"SYNTHETIC {what}: this is not the model's text, for measuring only"


def _positions(stats: SpeculationStats) -> tuple[float, ...]:
    known = [
        rate
        for rate, drafts in zip(stats.accepted_per_position, stats.drafts_per_position, strict=True)
        if drafts >= _DRAFTS_FOR_A_BAR
    ]
    return tuple(known[:_MOST_POSITIONS])
