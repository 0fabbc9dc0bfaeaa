"""The chat: read a line, run a command or answer a message, repeat."""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Protocol

from outrider.cli.chat.attachments import Attachments
from outrider.cli.chat.context_window import fit_context
from outrider.cli.chat.editor import edit_text
from outrider.cli.chat.running_models import RunningModels, open_engine
from outrider.cli.chat.saved_conversation import SavedConversation
from outrider.cli.chat.session_list import message_rows, open_conversation
from outrider.cli.chat.slash import COMMANDS
from outrider.cli.chat.terminal import ChatTerminal
from outrider.cli.chat.transcript import Transcript
from outrider.cli.chat.turn_details import turn_details
from outrider.cli.engine_setup import (
    generation_settings,
    grammar_settings,
    tell_notices,
    template_kwargs,
)
from outrider.cli.errors import UsageError, message
from outrider.cli.glyphs import Glyphs
from outrider.cli.screen.live_answer import Listening, LiveAnswer
from outrider.cli.screen.meter import Meter
from outrider.cli.screen.panel import Row
from outrider.cli.screen.render import Renderer, TextForm
from outrider.cli.screen.status_lines import banner, toolbar
from outrider.cli.screen.text_kind import TextCounts, TextKind
from outrider.cli.screen.thought import Thought
from outrider.cli.stats_view import SYNTHETIC, TurnRecord, percent, plural, summary_line
from outrider.profiles.errors import ProfileError
from outrider.profiles.schema import Profile
from outrider.speculative.errors import EngineError
from outrider.speculative.events import GenerationResult

_KNOWN_ERRORS = (EngineError, OSError, ProfileError, UsageError)


def chat(
    profile: Profile,
    overrides: dict[str, object],
    *,
    first_prompt: str | None,
    verbose: bool,
    session: str | None = None,
    is_continued: bool = False,
) -> int:
    """Chat in this terminal until the user leaves; return the exit code.

    ``session`` is a saved chat to go on with or to begin; ``is_continued``: the newest one.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "the chat needs a terminal on stdin and stdout;"
            " outrider run answers a prompt from a pipe or to a file"
        )
    conversation, fault = open_conversation(profile.chat.system, session, newest=is_continued)
    if "chat.system" in overrides:
        conversation.transcript.system = profile.chat.system
    former = signal.signal(signal.SIGTERM, _terminate)
    try:
        with ChatTerminal(profile.chat) as terminal:
            with terminal.loading() as progress:
                engine = open_engine(profile, progress)
            tell_notices(engine, overrides, verbose=verbose)
            models = RunningModels(profile, engine, terminal.loading, overrides)
            try:
                chat = Chat(
                    models,
                    renderer=terminal.renderer,
                    keyboard=terminal.keyboard,
                    glyphs=terminal.glyphs,
                    verbose=verbose,
                    conversation=conversation,
                )
                _converse(chat, terminal, first_prompt, fault)
            finally:
                conversation.leave()
                models.close()
    finally:
        signal.signal(signal.SIGTERM, former)
    return 0


def _converse(
    chat: Chat, terminal: ChatTerminal, first_prompt: str | None, fault: str | None
) -> None:
    models, renderer = chat.models, chat.renderer
    faults: list[str] = []  # of the history: said when the prompt has given the screen back

    def bar(typed: str, width: int) -> Row:
        attached = chat.attachments.num_tokens
        return toolbar(models, typed, width, chat.glyphs, num_attached=attached)

    prompt = terminal.prompt(chat, bar, faults.append)
    renderer.show(banner(models, renderer.size()[0], chat.glyphs), "dim")
    if models.rule == "synthetic":
        renderer.show([SYNTHETIC], "warn")
    if fault:
        chat.note(fault)
    if chat.transcript.turns:
        chat.show_end()
    chat.waiting, send = first_prompt or "", bool(first_prompt)
    while not chat.is_over:
        waiting, chat.waiting = chat.waiting, ""
        if chat.was_stopped:
            prompt.stopped()
        try:
            line = prompt.read(waiting, send=send)
        except EOFError:
            return
        send = chat.was_stopped = False
        while faults:
            chat.note(faults.pop())
        chat.submit(line.text, is_pasted=line.is_pasted)
        chat.glyphs = terminal.dress(models.profile.chat)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


class ChatKeyboard(Listening, Protocol):
    """A keyboard that can be lent to another program."""

    def released(self) -> AbstractContextManager[None]: ...


class Chat:
    """One chat: the models, the conversation, the screen.

    ``waiting`` is text that goes back into the input, ``attachments`` go with the next message.
    ``shows_thinking`` opens the thoughts of the answers that come, ``tints`` shows which of their
    words were drafted.
    """

    def __init__(
        self,
        models: RunningModels,
        *,
        renderer: Renderer,
        keyboard: ChatKeyboard,
        glyphs: Glyphs,
        verbose: bool = False,
        conversation: SavedConversation | None = None,
    ) -> None:
        self.models = models
        self.renderer = renderer
        self.glyphs = glyphs
        self.records: list[TurnRecord] = []
        self.conversation = conversation or SavedConversation(models.profile.chat.system)
        self.numbered_sessions: list[Path] = []  # as the last table of /sessions numbered them
        self.attachments = Attachments()
        self.waiting = ""
        self.shows_thinking = False
        self.tints = False
        self.is_over = False
        self.was_stopped = False
        self._keyboard = keyboard
        self._is_verbose = verbose

    @property
    def transcript(self) -> Transcript:
        return self.conversation.transcript

    def submit(self, text: str, *, is_pasted: bool = False) -> None:
        """Run a command or answer a message; what goes wrong is one line."""
        try:
            if is_pasted or not text.startswith("/"):
                self.ask(text)
            elif text.startswith("//"):
                self.ask(text[1:])
            else:
                COMMANDS.run(self, text.strip())
        except _KNOWN_ERRORS as error:
            self._tell(error)
        except KeyboardInterrupt:
            self.note("cancelled")

    def ask(self, text: str) -> None:
        """Answer a message; if that fails before a word came, it is back in the input."""
        self.transcript.ask(self.attachments.message(text))
        if self._answer():
            self.attachments.clear()
        else:
            self.transcript.withdraw()
            self.waiting = text

    def ask_again(self, values: Mapping[str, object], once: str) -> None:
        """Answer the last message in a new branch, with the settings ``values`` for this once.

        ``once``, those that were typed, is kept with the answer. If no word comes, the former
        branch stays in use.
        """
        former, profile = self.transcript.branch, self.models.profile
        last = former.turns[-1]
        self.models.apply(self.models.with_values(values))
        try:
            self.transcript.part(len(former.turns) - 1)
            self.transcript.ask(last.message)
            is_answered = self._answer(once)
        finally:
            self.models.use_settings_of(profile)
        if not is_answered:
            self.transcript.withdraw()
            self.transcript.switch(former)
        elif self.transcript.turns[-1].answer == last.answer:
            self.note("the same text as before")

    def edit(self, turn: int) -> None:
        """Let the user change the message of ``turn`` and ask it in a new branch from there."""
        former = self.transcript.turns[turn].message
        with self._keyboard.released():
            text = edit_text(former)
        if text == former or not text.strip():
            self.note("the message is unchanged" if text == former else "no text, nothing is asked")
            return
        self.renderer.show(message_rows(text, self.glyphs), "strong")
        self.transcript.part(turn)
        self.ask(text)

    @property
    def text_form(self) -> TextForm:
        """How answers look without a tint."""
        return "markdown" if self.models.profile.chat.markdown else "raw"

    def tint(self, wanted: bool | None = None) -> str:
        """Tint the answers to come or stop it, by default the other of the two; say which."""
        if not self.renderer.can_tint:
            raise UsageError("/tint: this terminal has no look for accepted text")
        self.tints = not self.tints if wanted is None else wanted
        return f"tint {'on' if self.tints else 'off'} from the next answer on"

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """While entered, Ctrl-C cancels a command and what is typed waits for the prompt."""
        with self._keyboard.listening():
            yield

    def note(self, text: str) -> None:
        self.renderer.show([f"note: {text}"], "warn")

    def save(self) -> None:
        """Write the conversation; if that fails it is said once and the chat goes on."""
        failure = self.conversation.save()
        if failure:
            self.note(failure)

    def load(self, path: Path) -> None:
        """Go on with a saved conversation."""
        self.conversation.load(path)
        self._forget()
        self.show_end()

    def show_end(self) -> None:
        """Say which saved conversation goes on, and show its last message and answer."""
        turns = self.transcript.turns
        self.note(f"{self.conversation.path.stem} goes on after {plural(len(turns), 'turn')}")
        if not turns:
            return
        former, present = turns[-1].details.get("model"), self.models.engine.model_name
        if isinstance(former, str) and former != present:
            self.note(f"its last answer was by {former}; {present} goes on")
        self.show_last_turn()

    def show_last_turn(self) -> None:
        """Print the last message and its answer, if there are any."""
        for turn in self.transcript.turns[-1:]:
            self.renderer.show(message_rows(turn.message, self.glyphs), "strong")
            if turn.answer:
                self.renderer.begin(lambda columns, rows: [], self.text_form)
                self.renderer.write(turn.answer)
                self.renderer.end(None)

    def begin_new(self) -> None:
        """A new conversation with the same system message."""
        self.conversation.begin_new()
        self._forget()

    def switch_profile(self, name: str) -> None:
        """Go on with other models; the system message follows unless it was changed."""
        former = self.models.profile.chat.system
        self.models.switch(name)
        if self.transcript.system == former:
            self.transcript.system = self.models.profile.chat.system
        columns, _ = self.renderer.size()
        self.renderer.show(banner(self.models, columns, self.glyphs)[:2], "dim")

    def _forget(self) -> None:
        self.records.clear()
        self.models.session.reset()

    def _tell(self, error: Exception) -> None:
        if self._is_verbose:
            traceback.print_exc()
        self.renderer.show([f"error: {message(error)}"], "error")

    def _answer(self, once: str = "") -> bool:
        """Answer the last message; False if no text came.

        What ``/spec once`` said holds no longer, however that ended.
        """
        command = self.models.once
        try:
            return self._answer_turn(once)
        finally:
            try:
                self.models.end_once()
            except _KNOWN_ERRORS as error:
                self._tell(error)
                self.note(f"what {command} said stays")
            except KeyboardInterrupt:
                self.note(f"cancelled, what {command} said stays")

    def _answer_turn(self, once: str = "") -> bool:
        """Answer the last message; False if no text came. ``once`` is kept with the answer."""
        try:
            result = self._write_answer()
        except _KNOWN_ERRORS as error:
            self._tell(error)
            return False
        except KeyboardInterrupt:
            self.note("cancelled")
            return False
        if result.error is not None:
            kept = "kept, /retry asks again" if result.text else "the message is in the input"
            self.renderer.show([f"error: {result.error[1]}; {kept}"], "error")
        if not result.text and result.finish_reason in ("cancelled", "error"):
            return False
        if result.reasoning and not result.text and result.finish_reason == "length":
            self.note(
                f"all {plural(result.completion_tokens, 'token')} went into thinking;"
                " /set predict=N allows more, /set reasoning_budget=N limits the thinking"
            )
        models = self.models
        details = turn_details(models.profile, models.engine.model_name, result)
        self.transcript.answer(result.text, details | ({"once": once} if once else {}))
        self.save()
        return True

    def _write_answer(self) -> GenerationResult:
        models, profile = self.models, self.models.profile
        prompt_ids = self._prompt_ids()
        settings = generation_settings(
            profile,
            grammar=grammar_settings(profile.sampling),
            tags=models.engine.reasoning_tags(prompt_ids, template_kwargs(profile.chat)),
        )
        thought = Thought(self.glyphs, is_open=self.shows_thinking)
        meter = Meter(
            models.session,
            n_ctx=models.engine.n_ctx,
            drafters=models.engine.drafter_names,
            speculation=models.engine.speculation,
            rule=models.rule,
            longest=models.longest,
            off_words=models.off_words(),
            calibrated_s=models.calibrated_s,
        )
        answer = LiveAnswer(
            models.session,
            meter,
            self.renderer,
            self.glyphs,
            thought,
            form=self.text_form,
            tints=self.tints,
        )

        def summary(result: GenerationResult) -> str:
            text = answer.tally.counts(result.stats.emitted)
            return self._record(result, meter.first_token_s, text)

        former = set(models.session.dropped)
        try:
            marked = replace(settings, marks_accepted=self.renderer.can_tint)
            return answer.write(prompt_ids, marked, self._keyboard, summary)
        finally:
            for name in models.session.dropped.keys() - former:
                self.note(f"{name} dropped: {models.session.dropped[name]}; the answer went on")
            self.was_stopped, self.tints = answer.is_stopped, answer.tints

    def _record(
        self,
        result: GenerationResult,
        first_token_s: float | None,
        text: Mapping[TextKind, TextCounts],
    ) -> str:
        """Keep what the answer cost; returns the line that says it."""
        if not result.text and result.finish_reason == "cancelled":
            while_ = " while thinking" if result.reasoning else ""
            return f"stopped{while_}, the message is in the input"
        record = TurnRecord(result.stats, result.timings, result.finish_reason, first_token_s, text)
        self.records.append(record)
        predict = self.models.profile.sampling.predict
        return summary_line(
            record,
            predict=predict,
            width=self.renderer.size()[0],
            glyphs=self.glyphs,
            context=percent(self.models.session.context_used, self.models.engine.n_ctx),
        )

    def _prompt_ids(self) -> list[int]:
        """The tokens of the conversation, its oldest turns dropped if they do not fit."""
        profile, engine = self.models.profile, self.models.engine
        former = self.transcript.first_in_context
        kwargs = template_kwargs(profile.chat)
        prompt_ids = fit_context(
            self.transcript,
            lambda messages: engine.render(messages, kwargs),
            n_ctx=engine.n_ctx,
            predict=profile.sampling.predict,
            policy=profile.chat.context_policy,
            with_reasoning=profile.chat.reasoning_preserve,
        )
        dropped = self.transcript.first_in_context - former
        if dropped:
            self.note(f"the oldest {plural(dropped, 'turn')} left the context to make room")
        return prompt_ids
