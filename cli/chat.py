"""The chat: read a line, run a command or answer a message, repeat."""

from __future__ import annotations

import signal
import sys
import traceback
from datetime import datetime
from types import FrameType

from outrider.cli.chat_commands import COMMANDS
from outrider.cli.chat_terminal import ChatTerminal
from outrider.cli.context_window import fit_context
from outrider.cli.engine_setup import (
    generation_settings,
    grammar_settings,
    tell_notices,
    template_kwargs,
)
from outrider.cli.errors import UsageError, message
from outrider.cli.glyphs import Glyphs
from outrider.cli.live_answer import Listening, LiveAnswer
from outrider.cli.meter import Meter
from outrider.cli.render import Renderer
from outrider.cli.running_models import RunningModels, open_engine
from outrider.cli.saved_conversation import SavedConversation
from outrider.cli.stats_view import SYNTHETIC, TurnRecord, plural, summary_line
from outrider.cli.status_lines import banner, toolbar
from outrider.cli.thought import Thought
from outrider.cli.transcript import Transcript, Turn
from outrider.profiles.errors import ProfileError
from outrider.profiles.schema import Profile
from outrider.speculative.errors import EngineError
from outrider.speculative.events import GenerationResult

_KNOWN_ERRORS = (EngineError, OSError, ProfileError, UsageError)


def chat(
    profile: Profile, overrides: dict[str, object], *, first_prompt: str | None, verbose: bool
) -> int:
    """Chat in this terminal until the user leaves; return the exit code."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "the chat needs a terminal on stdin and stdout;"
            " outrider run answers a prompt from a pipe or to a file"
        )
    former = signal.signal(signal.SIGTERM, _terminate)
    try:
        with ChatTerminal() as terminal:
            with terminal.loading() as progress:
                engine = open_engine(profile, progress)
            tell_notices(engine, overrides, verbose=verbose)
            models = RunningModels(profile, engine, terminal.loading, overrides)
            try:
                _converse(models, terminal, first_prompt, verbose)
            finally:
                models.close()
    finally:
        signal.signal(signal.SIGTERM, former)
    return 0


def _converse(
    models: RunningModels, terminal: ChatTerminal, first_prompt: str | None, verbose: bool
) -> None:
    renderer, glyphs = terminal.renderer, terminal.glyphs
    chat = Chat(
        models, renderer=renderer, keyboard=terminal.keyboard, glyphs=glyphs, verbose=verbose
    )
    faults: list[str] = []  # of the history: said when the prompt has given the screen back
    prompt = terminal.prompt(
        chat, lambda typed, width: toolbar(models, typed, width, glyphs), faults.append
    )
    renderer.show(banner(models, renderer.size()[0]), "dim")
    if models.rule == "synthetic":
        renderer.show([SYNTHETIC], "warn")
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


def _terminate(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


class Chat:
    """One chat: the models, the conversation, the screen.

    ``waiting`` is text that goes back into the input; ``shows_thinking`` opens the thoughts of
    the answers that come.
    """

    def __init__(
        self,
        models: RunningModels,
        *,
        renderer: Renderer,
        keyboard: Listening,
        glyphs: Glyphs,
        verbose: bool = False,
    ) -> None:
        self.models = models
        self.renderer = renderer
        self.glyphs = glyphs
        self.records: list[TurnRecord] = []
        self.conversation = SavedConversation(models.profile.chat.system)
        self.waiting = ""
        self.shows_thinking = False
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
        self.transcript.ask(text)
        if not self._answer():
            self.transcript.undo()
            self.waiting = text

    def regenerate(self) -> None:
        """Answer the last message again; the former answer stays if no word comes."""
        if not self.transcript.turns:
            raise UsageError("/regen: there is no message yet")
        former = self.transcript.turns[-1]
        self.transcript.turns[-1] = Turn(former.message)
        if not self._answer():
            self.transcript.turns[-1] = former

    def note(self, text: str) -> None:
        self.renderer.show([f"note: {text}"], "warn")

    def save(self) -> None:
        """Write the conversation; if that fails it is said once and the chat goes on."""
        failure = self.conversation.save()
        if failure:
            self.note(failure)

    def load(self, name: str) -> None:
        """Go on with a saved conversation."""
        self.conversation.load(name)
        self._forget()

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
        self.renderer.show(banner(self.models, self.renderer.size()[0])[:2], "dim")

    def _forget(self) -> None:
        self.records.clear()
        self.models.session.reset()

    def _tell(self, error: Exception) -> None:
        if self._is_verbose:
            traceback.print_exc()
        self.renderer.show([f"error: {message(error)}"], "error")

    def _answer(self) -> bool:
        """Answer the last message; False if no text came."""
        try:
            result = self._write_answer()
        except _KNOWN_ERRORS as error:
            self._tell(error)
            return False
        except KeyboardInterrupt:
            self.note("cancelled")
            return False
        if result.error is not None:
            kept = "kept, /regen asks again" if result.text else "the message is in the input"
            self.renderer.show([f"error: {result.error[1]}; {kept}"], "error")
        if not result.text and result.finish_reason in ("cancelled", "error"):
            return False
        if result.reasoning and not result.text and result.finish_reason == "length":
            self.note(
                f"all {plural(result.completion_tokens, 'token')} went into thinking;"
                " /set predict=N allows more, /set reasoning_budget=N limits the thinking"
            )
        self.transcript.answer(result.text, self._details(result))
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
            off_words=models.off_words(),
        )
        answer = LiveAnswer(models.session, meter, self.renderer, self.glyphs, thought)

        def summary(result: GenerationResult) -> str:
            return self._record(result, meter.first_token_s)

        try:
            return answer.write(prompt_ids, settings, self._keyboard, summary)
        finally:
            self.was_stopped = answer.is_stopped

    def _record(self, result: GenerationResult, first_token_s: float | None) -> str:
        """Keep what the answer cost; returns the line that says it."""
        if not result.text and result.finish_reason == "cancelled":
            while_ = " while thinking" if result.reasoning else ""
            return f"stopped{while_}, the message is in the input"
        record = TurnRecord(result.stats, result.timings, result.finish_reason, first_token_s)
        self.records.append(record)
        predict = self.models.profile.sampling.predict
        return summary_line(
            record, predict=predict, width=self.renderer.size()[0], glyphs=self.glyphs
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

    def _details(self, result: GenerationResult) -> dict[str, object]:
        """What the saved file says about an answer."""
        return {
            "when": datetime.now().astimezone().isoformat(timespec="seconds"),
            "profile": self.models.profile.name,
            "model": self.models.engine.model_name,
            **({"reasoning": result.reasoning} if result.reasoning else {}),
            "finish_reason": result.finish_reason,
            "seed": result.seed,
            "tokens": result.stats.emitted,
            "tokens_per_s": result.timings.tokens_per_s,
            "drafted": result.stats.drafted,
            "accepted": result.stats.accepted,
        }
