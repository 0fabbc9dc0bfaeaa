"""A chat without weights: a session that answers what it is told, a screen that is a list."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from outrider.cli.chat.chat import Chat
from outrider.cli.chat.running_models import RunningModels
from outrider.cli.glyphs import UNICODE
from outrider.cli.screen.panel import Row
from outrider.profiles.fields import check
from outrider.profiles.load import load_profile
from outrider.speculative.errors import InputError, PromptTooLongError
from outrider.speculative.events import (
    Event,
    FinishEvent,
    FinishReason,
    GenerationResult,
    PromptEvent,
    Spans,
    StepEvent,
)
from outrider.speculative.outlook import Outlook
from outrider.speculative.settings import (
    DrafterSettings,
    GenerationSettings,
    SamplingSettings,
    SpeculationSettings,
)
from outrider.speculative.statistics import Decision, SpeculationStats, StepRecord, Timings


@dataclass
class Answer:
    """One scripted answer: a piece a step, ``thoughts`` first; ``error`` is raised before."""

    pieces: Sequence[str] = ()
    finish_reason: FinishReason = "stop"
    error: Exception | None = None
    fault: tuple[str, str] | None = None
    thoughts: Sequence[str] = ()


@dataclass
class ScriptedSession:
    """Answers in order; remembers the prompts and settings it was given."""

    answers: list[Answer] = field(default_factory=list)
    prompts: list[list[int]] = field(default_factory=list)
    settings: list[GenerationSettings] = field(default_factory=list)
    on_step: Callable[[], None] = lambda: None
    stats: SpeculationStats = field(default_factory=SpeculationStats)
    timings: Timings = field(default_factory=Timings)
    draft_length: int | None = 3
    decisions: tuple[Decision, ...] = ()
    dropped: dict[str, str] = field(default_factory=dict)
    plain_s: float | None = None
    is_drafting: bool = True
    context_used: int = 0
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def reset(self) -> None:
        self.context_used = 0

    def generate(self, prompt_ids: Sequence[int], settings: GenerationSettings) -> Iterator[Event]:
        answer = self.answers.pop(0)
        self.prompts.append(list(prompt_ids))
        self.settings.append(settings)
        if answer.error:
            raise answer.error
        return self._events(answer, len(prompt_ids), settings)

    def _events(
        self, answer: Answer, num_prompt: int, settings: GenerationSettings
    ) -> Iterator[Event]:
        self.is_cancelled = False
        self.stats, self.timings = SpeculationStats(), Timings()
        yield PromptEvent(num_prompt, num_prompt, 0)
        shown = ""
        reason = answer.finish_reason
        for thought in answer.thoughts:
            self.stats.observe(StepRecord(own=1))
            yield StepEvent("", (0,), 0, reasoning=thought)
        for number, piece in enumerate(answer.pieces):
            self.stats.observe(StepRecord(drafted=3, accepted=1, own=1, rule="match", drafter="d"))
            self.timings.observe(0.1 * number, 2)
            shown += piece
            # the first half of a piece is the accepted token
            spans = ((0, len(piece) // 2),)
            yield StepEvent(piece, (number, number), 1, num_drafted=3, accepted=spans)
            self.on_step()
            if self.is_cancelled:
                reason = "cancelled"
                break
        self.context_used = num_prompt + self.stats.emitted
        result = GenerationResult(
            shown,
            [0] * len(answer.thoughts),
            reason,
            num_prompt,
            0,
            self.stats,
            self.timings,
            7 if settings.seed is None else settings.seed,
            answer.fault,
            reasoning="".join(answer.thoughts) or None,
        )
        yield FinishEvent("", result)


class ScriptedEngine:
    """One token a character of the rendered conversation."""

    load_s = 0.5
    model_name = "Scripted"
    notices: tuple[str, ...] = ()
    has_chat_template = True

    def __init__(self, answers: Sequence[Answer], n_ctx: int = 4096) -> None:
        self.n_ctx = n_ctx
        self.drafter_names: tuple[str, ...] = ("d",)
        self.speculation = SpeculationSettings()
        self.measured: tuple[Outlook, ...] = ()
        self.scripted = ScriptedSession(list(answers))
        self.rendered: list[list[dict[str, str]]] = []

    def session(self) -> ScriptedSession:
        return self.scripted

    def render(
        self, messages: list[dict[str, str]], kwargs: Mapping[str, object] | None = None
    ) -> list[int]:
        self.rendered.append(messages)
        return [ord(character) for message in messages for character in message["content"]]

    def reasoning_tags(
        self, prompt_ids: Sequence[int], kwargs: Mapping[str, object] | None = None
    ) -> None:
        return None

    def resolve_rule(self, sampling: SamplingSettings) -> str:
        if self.speculation.verify == "greedy" and sampling.temp > 0:
            raise InputError(f"--spec-verify greedy: only at temperature 0, it is {sampling.temp}")
        return "match"

    def outlooks(self, num_cells: int) -> tuple[Outlook, ...]:
        longest = self.speculation.n_max or 3
        return self.measured or tuple(Outlook(name, longest) for name in self.drafter_names)

    def configure(
        self,
        speculation: SpeculationSettings,
        drafters: Sequence[DrafterSettings] | None = None,
        progress: object = None,
    ) -> None:
        self.speculation = speculation
        if drafters is not None:
            self.drafter_names = tuple(drafter.kind for drafter in drafters)

    def close(self) -> None:
        pass


class Nothing:
    """Nobody types."""

    suspend_asked = False
    fold_asked = False
    tint_asked = False
    preview = ""
    is_sent = False

    def unsend(self) -> None:
        pass

    def suspend(self) -> None:
        pass

    def released(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def listening(self) -> Iterator[Nothing]:
        yield self


class ListScreen:
    """Everything that was printed, by kind; ``forms`` are those of the answers."""

    can_tint = True

    def __init__(self, columns: int = 80) -> None:
        self.columns = columns
        self.lines: list[tuple[str, str]] = []
        self.answer = ""
        self.forms: list[str] = []
        self.accepted = ""  # what was to be tinted

    def size(self) -> tuple[int, int]:
        return self.columns, 24

    def show(self, lines: Sequence[str], kind: str = "plain") -> None:
        self.lines += [(kind, line) for line in lines]

    def begin(self, panel: Callable[[int, int], list[Row]], form: str = "markdown") -> None:
        self.forms.append(form)
        panel(*self.size())

    def write(self, text: str, accepted: Spans = ()) -> None:
        self.answer += text
        if self.forms[-1] == "tint":
            self.accepted += "".join(text[start:end] for start, end in accepted)

    def go_on(self, form: str) -> None:
        self.forms.append(form)

    def refresh(self) -> None:
        pass

    def pause(self) -> None:
        pass

    def end(self, summary: str | None) -> None:
        self.lines.append(("answer", self.answer))
        self.answer = ""
        if summary:
            self.lines.append(("summary", summary))

    def of(self, kind: str) -> list[str]:
        return [text for given, text in self.lines if given == kind]


@dataclass
class Scripted:
    """A chat and the parts that a test looks at."""

    chat: Chat
    engine: ScriptedEngine
    screen: ListScreen

    @property
    def session(self) -> ScriptedSession:
        return self.engine.scripted


def scripted_chat(
    *answers: Answer | str,
    model: Path,
    n_ctx: int = 4096,
    overrides: Mapping[str, object] | None = None,
    columns: int = 80,
) -> Scripted:
    """A chat whose session gives ``answers``; ``model`` only has to exist."""
    values = {
        "target.model": check("target.model", str(model)),
        "drafter.kinds": check("drafter.kinds", "ngram-simple"),
        **(overrides or {}),
    }
    whole = [a if isinstance(a, Answer) else Answer(a.split("|")) for a in answers]
    engine = ScriptedEngine(whole, n_ctx)

    @contextlib.contextmanager
    def loading() -> Iterator[Callable[[str, float], None]]:
        yield lambda stage, share: None

    models = RunningModels(load_profile("base", values), cast(Any, engine), loading, values)
    screen = ListScreen(columns)
    chat = Chat(models, renderer=cast(Any, screen), keyboard=Nothing(), glyphs=UNICODE)
    return Scripted(chat, engine, screen)


def too_long(needed: int, available: int) -> PromptTooLongError:
    return PromptTooLongError(needed, available)
