"""One-shot: load the models, answer one prompt on stdout, end with an exit code."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.cli.answer_writer import AnswerWriter
from outrider.cli.chat.transcript import system_messages
from outrider.cli.engine_setup import (
    generation_settings,
    grammar_settings,
    load_engine,
    tell_notices,
    template_kwargs,
    use_template_file,
)
from outrider.cli.errors import UsageError, message, printable, report, say
from outrider.cli.glyphs import glyphs_for
from outrider.cli.interrupts import Interrupts
from outrider.cli.result_json import error_code, result_json
from outrider.cli.stats_view import SYNTHETIC, TurnRecord, fit, seconds, summary_line, three_digits
from outrider.profiles.schema import Profile
from outrider.speculative.errors import EngineError
from outrider.speculative.events import Event, FinishEvent, GenerationResult, PromptEvent
from outrider.speculative.statistics import SpeculationStats, Timings

if TYPE_CHECKING:
    from outrider.speculative.engine import Engine
    from outrider.speculative.reasoning_tags import ReasoningTags
    from outrider.speculative.session import Session

_WIDE = 120  # columns of a stderr that is no terminal


@dataclass(frozen=True, slots=True)
class OneShot:
    """What is asked: the prompt, how to read it and what to print."""

    prompt: str
    raw: bool = False
    as_json: bool = False
    stats: bool = False
    show_thinking: bool = False
    verbose: bool = False


def run_once(profile: Profile, overrides: Mapping[str, object], request: OneShot) -> int:
    """Answer ``request`` and return the exit code."""
    run = _Run(profile, overrides, request)
    try:
        return run.answer()
    except (EngineError, UsageError, KeyboardInterrupt) as error:
        run.break_off(error)
        return report(error, verbose=request.verbose)


class _Run:
    """One answer: what it needs, and what is there of it when it breaks off."""

    def __init__(self, profile: Profile, overrides: Mapping[str, object], request: OneShot) -> None:
        self._profile = profile
        self._overrides = overrides
        self._request = request
        self._writer = AnswerWriter()
        self._model: str | None = None  # None until the models are loaded
        self._drafters: tuple[str, ...] = ()
        self._load_s = 0.0
        self._num_prompt_tokens = 0
        self._session: Session | None = None
        self._text: list[str] = []
        self._thinking = AnswerWriter(sys.stderr)
        self._thought: list[str] = []
        self._token_ids: list[int] = []

    def answer(self) -> int:
        self._check_logprobs()
        grammar = grammar_settings(self._profile.sampling)
        with load_engine(self._profile) as engine:
            self._model, self._drafters = engine.model_name, engine.drafter_names
            self._load_s = engine.load_s
            tell_notices(engine, self._overrides, verbose=self._request.verbose)
            if self._profile.speculation.is_synthetic:
                say(f"outrider: {SYNTHETIC}")
            prompt_ids = self._prompt_ids(engine)
            self._num_prompt_tokens = len(prompt_ids)
            self._session = engine.session()
            settings = generation_settings(
                self._profile, grammar=grammar, tags=self._reasoning_tags(engine, prompt_ids)
            )
            engine.resolve_rule(settings.sampling)
            events = self._session.generate(prompt_ids, settings)
            with (
                Interrupts(self._session.cancel) as interrupts,
                # closed before the engine is, whatever breaks this off
                contextlib.closing(events),
            ):
                result = self._take(events)
            self._finish(result)
            for name, reason in self._session.dropped.items():
                say(f"outrider: note: {name} dropped: {printable(reason)}; the answer went on")
        if result.error is not None:
            say(f"outrider: error: {printable(result.error[1])}")
        if result.finish_reason == "cancelled" and interrupts.exit_code is not None:
            return interrupts.exit_code
        return 1 if result.finish_reason == "error" else 0

    def break_off(self, error: EngineError | UsageError | KeyboardInterrupt) -> None:
        """End stdout properly: the JSON object with what is there, or a last newline."""
        is_interrupt = isinstance(error, KeyboardInterrupt)
        if self._model is None and not is_interrupt:
            return
        if not self._request.as_json:
            if self._text:
                self._writer.end()
            return
        session = self._session
        result = GenerationResult(
            text="".join(self._text),
            reasoning="".join(self._thought) if self._thought else None,
            token_ids=self._token_ids,
            finish_reason="cancelled" if is_interrupt else "error",
            prompt_tokens=self._num_prompt_tokens,
            cached_tokens=0,
            stats=session.stats if session else SpeculationStats(),
            timings=session.timings if session else Timings(),
            seed=self._profile.sampling.seed or 0,
            error=None if is_interrupt else (error_code(error), message(error)),
        )
        self._finish(result)

    def _check_logprobs(self) -> None:
        if "sampling.logprobs" in self._overrides and not self._request.as_json:
            raise UsageError("--logprobs: they are part of the JSON object; add --json")

    def _reasoning_tags(self, engine: Engine, prompt_ids: list[int]) -> ReasoningTags | None:
        if self._request.raw:
            return None
        return engine.reasoning_tags(prompt_ids, template_kwargs(self._profile.chat))

    def _prompt_ids(self, engine: Engine) -> list[int]:
        chat = self._profile.chat
        if not self._request.raw:
            use_template_file(engine, chat)
        if self._request.raw or not engine.has_chat_template:
            return self._raw_ids(engine)
        messages = [
            *system_messages(chat.system),
            {"role": "user", "content": self._request.prompt},
        ]
        return engine.render(messages, template_kwargs(chat))

    def _raw_ids(self, engine: Engine) -> list[int]:
        reason = "--raw" if self._request.raw else f"{engine.model_name} has no chat template"
        if "chat.system" in self._overrides:
            raise UsageError(f"{reason}: there is no place for a system message; leave it out")
        if self._request.verbose and not self._request.raw:
            say(f"outrider: note: {printable(reason)}: the prompt is read as with --raw")
        return engine.encode(self._request.prompt)

    def _take(self, events: Iterator[Event]) -> GenerationResult:
        """Show the answer as it comes; return its result."""
        for event in events:
            if isinstance(event, PromptEvent):
                continue
            if event.reasoning:
                self._think(event.reasoning)
            if event.text:
                self._end_thinking()
                self._text.append(event.text)
                if not self._request.as_json:
                    self._writer.write(event.text)
            if isinstance(event, FinishEvent):
                return event.result
            self._token_ids += event.token_ids
        raise AssertionError("a generation ends with a FinishEvent")

    def _think(self, text: str) -> None:
        """What the model thinks is no part of stdout."""
        self._thought.append(text)
        if self._request.show_thinking:
            self._thinking.write(text)

    def _end_thinking(self) -> None:
        if self._request.show_thinking and self._thought and not self._text:
            self._thinking.end()

    def _finish(self, result: GenerationResult) -> None:
        self._end_thinking()
        result.timings.load_s = self._load_s
        if self._request.as_json:
            self._print_json(result)
        else:
            self._writer.end()
        if result.reasoning and not result.text and result.finish_reason == "length":
            say(
                f"outrider: note: all {result.completion_tokens:,} tokens went into thinking;"
                " -n allows more, --reasoning-budget limits the thinking, --show-thinking shows it"
            )
        if self._request.stats:
            for line in stats_lines(result):
                say(line)

    def _print_json(self, result: GenerationResult) -> None:
        described = result_json(
            result,
            profile=self._profile.name,
            model=self._model,
            drafters=self._drafters,
            n_max=self._profile.speculation.n_max,
            synthetic=self._profile.speculation.is_synthetic,
        )
        self._writer.write(json.dumps(described))
        self._writer.end()


def stats_lines(result: GenerationResult) -> list[str]:
    """Speed and acceptance, then prompt and loading, in the words of the chat's summary."""
    timings, glyphs = result.timings, glyphs_for(sys.stderr.encoding)
    # "length" would advise on chat commands
    reason = "stop" if result.finish_reason == "length" else result.finish_reason
    first_token = timings.time_to_first_token_s if result.token_ids else None
    turn = TurnRecord(result.stats, timings, reason, first_token)
    width = shutil.get_terminal_size().columns if sys.stderr.isatty() else _WIDE
    prompt = [
        f"prompt {result.prompt_tokens:,} tokens",
        f"{three_digits(timings.prompt_tokens_per_s, glyphs)} tok/s",
        f"loaded in {seconds(timings.load_s, glyphs)}",
    ]
    return [
        summary_line(turn, predict=0, width=width, glyphs=glyphs),
        fit(prompt, f" {glyphs.separator} ", width - 1),
    ]
