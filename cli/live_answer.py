"""One answer on the screen: its text as it comes, the panel, what is typed meanwhile."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from outrider.cli.glyphs import Glyphs
from outrider.cli.meter import Measured, Meter
from outrider.cli.panel import Row, panel_rows, reading_row, type_ahead_row
from outrider.cli.render import Renderer
from outrider.cli.thought import Thought
from outrider.speculative.events import (
    Event,
    FinishEvent,
    GenerationResult,
    PromptEvent,
    StepEvent,
)
from outrider.speculative.settings import GenerationSettings

_UNSEEN_S = 0.3
_LONG_PROMPT = 512  # tokens; worth a word before the first of them are read


class Answering(Measured, Protocol):
    """The part of a session that answers."""

    def generate(
        self, prompt_ids: Sequence[int], settings: GenerationSettings
    ) -> Iterator[Event]: ...
    def cancel(self) -> None: ...


class Typed(Protocol):
    """What was typed while an answer is written."""

    @property
    def preview(self) -> str: ...
    @property
    def is_sent(self) -> bool: ...
    def unsend(self) -> None: ...


class Listening(Protocol):
    """A keyboard that keeps what is typed for the next prompt."""

    fold_asked: bool
    suspend_asked: bool

    def suspend(self) -> None: ...
    def listening(self) -> contextlib.AbstractContextManager[Typed]: ...


class LiveAnswer:
    """Writes the answer to one prompt; ``is_stopped`` once Ctrl-C ended it."""

    def __init__(
        self,
        session: Answering,
        meter: Meter,
        renderer: Renderer,
        glyphs: Glyphs,
        thought: Thought,
    ) -> None:
        self.is_stopped = False
        self.thought = thought
        self._session = session
        self._meter = meter
        self._renderer = renderer
        self._glyphs = glyphs
        self._is_thinking = False
        self._typed: Typed | None = None
        self._reading: PromptEvent | None = None
        self._started = time.monotonic()

    def write(
        self,
        prompt_ids: Sequence[int],
        settings: GenerationSettings,
        keyboard: Listening,
        summary: Callable[[GenerationResult], str | None],
    ) -> GenerationResult:
        """Show the answer; when it does not end by itself nothing typed is sent."""
        with interrupts(self._stop), keyboard.listening() as self._typed:
            last_line = None
            if len(prompt_ids) - self._session.context_used > _LONG_PROMPT:
                self._reading = PromptEvent(0, len(prompt_ids), 0)
            self._renderer.begin(self._panel)
            try:
                result = self._follow(prompt_ids, settings, keyboard)
                last_line = summary(result)
                if result.finish_reason in ("cancelled", "error"):
                    self._typed.unsend()
            except BaseException:
                self._typed.unsend()
                raise
            finally:
                self._renderer.end(last_line)
        return result

    def _follow(
        self, prompt_ids: Sequence[int], settings: GenerationSettings, keyboard: Listening
    ) -> GenerationResult:
        events = self._session.generate(prompt_ids, settings)
        result: GenerationResult | None = None
        for event in events:
            if isinstance(event, PromptEvent):
                self._reading = event if event.done < event.total else None
                self._renderer.refresh()
            else:
                self._show(event)
            if isinstance(event, FinishEvent):
                result = event.result
            if self.is_stopped:
                # asked before the session began, or once more: it does no harm
                self._session.cancel()
            if keyboard.fold_asked:
                keyboard.fold_asked = False
                self.thought.is_open = not self.thought.is_open
            if keyboard.suspend_asked:
                self._renderer.pause()
                keyboard.suspend()
        assert result is not None, "the last event is a FinishEvent"
        return result

    def _show(self, event: StepEvent | FinishEvent) -> None:
        self._reading = None
        if event.reasoning or event.text:
            self._meter.first_token()
        if event.reasoning:
            self._is_thinking = True
            count = len(event.token_ids) if isinstance(event, StepEvent) else 0
            self._print(self.thought.feed(event.reasoning, count))
        if self._is_thinking and (event.text or isinstance(event, FinishEvent)):
            self._is_thinking = False
            self._print(self.thought.close())
        self._renderer.write(event.text)

    def _print(self, lines: list[str]) -> None:
        if lines:
            self._renderer.show(lines, "dim")

    def _stop(self) -> None:
        self.is_stopped = True
        self._session.cancel()

    def _panel(self, columns: int, rows: int) -> list[Row]:
        live: list[Row] = []
        if self._is_thinking:
            live.append(self.thought.row(columns))
        if self._typed and self._typed.preview:
            live.append(
                type_ahead_row(
                    self._typed.preview,
                    is_sent=self._typed.is_sent,
                    columns=columns,
                    glyphs=self._glyphs,
                )
            )
        if self._reading is None:
            return live + panel_rows(self._meter.view(), columns, rows, self._glyphs)
        elapsed = time.monotonic() - self._started
        read = self._reading
        if elapsed >= _UNSEEN_S or read.done == 0:
            done, total = read.done - read.cached, read.total - read.cached
            live.append(reading_row(done, total, elapsed, columns, self._glyphs))
        return live


@contextlib.contextmanager
def interrupts(act: Callable[[], None]) -> Iterator[None]:
    """While entered, Ctrl-C calls ``act``, however often it is pressed."""
    former = signal.signal(signal.SIGINT, lambda number, frame: act())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
