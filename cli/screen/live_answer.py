"""One answer on the screen: its text as it comes, the panel, what is typed meanwhile."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from outrider.cli.glyphs import Glyphs
from outrider.cli.interrupts import heard_at_once
from outrider.cli.screen.meter import Measured, Meter
from outrider.cli.screen.panel import Row, panel_rows, reading_row, type_ahead_row
from outrider.cli.screen.render import Renderer, TextForm
from outrider.cli.screen.text_kind import TextTally
from outrider.cli.screen.thought import Thought
from outrider.cli.screen.tint import split_spans
from outrider.speculative.events import (
    Event,
    FinishEvent,
    GenerationResult,
    PromptEvent,
    Spans,
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
    tint_asked: bool

    def suspend(self) -> None: ...
    def listening(self) -> contextlib.AbstractContextManager[Typed]: ...


class LiveAnswer:
    """Writes the answer to one prompt; ``is_stopped`` once Ctrl-C ended it.

    ``form`` is how its text looks unless ``tints``, which can change on the way.
    """

    def __init__(
        self,
        session: Answering,
        meter: Meter,
        renderer: Renderer,
        glyphs: Glyphs,
        thought: Thought,
        *,
        form: TextForm = "markdown",
        tints: bool = False,
    ) -> None:
        self.is_stopped = False
        self.thought = thought
        self.tints = tints
        self.tally = TextTally()
        self._form = form
        self._form_in_force = self._wanted_form
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
            self._renderer.begin(self._panel, self._form_in_force)
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
            if keyboard.tint_asked:
                keyboard.tint_asked = False
                self.tints = self._renderer.can_tint and not self.tints
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
        self._write(event.text, event.accepted)
        if isinstance(event, StepEvent):
            self.tally.observe(event)

    def _write(self, text: str, accepted: Spans) -> None:
        """Write a piece of the answer; another form begins with a block."""
        if self._wanted_form != self._form_in_force:
            place = self.tally.reader.next_block(text)
            if place is not None:
                before, accepted = split_spans(accepted, place)
                self._renderer.write(text[:place], before)
                text, self._form_in_force = text[place:], self._wanted_form
                self._renderer.go_on(self._form_in_force)
        self._renderer.write(text, accepted)

    @property
    def _wanted_form(self) -> TextForm:
        return "tint" if self.tints else self._form

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
        if self._wanted_form != self._form_in_force:
            live.append([(f" tint {'on' if self.tints else 'off'} from the next block on", "dim")])
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
        done, total = read.done - read.cached, read.total - read.cached
        if elapsed >= _UNSEEN_S or total > _LONG_PROMPT:
            row = reading_row(done, total, elapsed, columns, self._glyphs, reused=read.cached)
            live.append(row)
        return live


@contextlib.contextmanager
def interrupts(act: Callable[[], None]) -> Iterator[None]:
    """While entered, Ctrl-C calls ``act``, however often it is pressed."""
    former = signal.signal(signal.SIGINT, lambda number, frame: act())
    try:
        with heard_at_once(act):
            yield
    finally:
        signal.signal(signal.SIGINT, former)
