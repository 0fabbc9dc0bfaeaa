"""Session: one conversation on one slot of the engine."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from outrider.speculative.constraint import Constraint
from outrider.speculative.draft_length import DraftLength
from outrider.speculative.errors import EngineError, InputError, PromptTooLongError
from outrider.speculative.events import Event
from outrider.speculative.generation import Generation, Slot
from outrider.speculative.law import token_law
from outrider.speculative.scheduler import Scheduler
from outrider.speculative.settings import GenerationSettings, GrammarSettings
from outrider.speculative.statistics import Decision, SpeculationStats, Timings
from outrider.speculative.tokenizer import Tokenizer


class Session:
    """Generates answers one after another and keeps the cache between them."""

    def __init__(
        self,
        seq_id: int,
        scheduler: Callable[[], Scheduler],
        tokenizer: Tokenizer,
        draft_length: Callable[[GenerationSettings], DraftLength],
        constrain: Callable[[GrammarSettings], Constraint] | None = None,
    ) -> None:
        """All of these are asked anew for each answer: settings change."""
        self._slot = Slot(seq_id)
        self._scheduler = scheduler
        self._tokenizer = tokenizer
        self._draft_length = draft_length
        self._constrain = constrain
        self._generation: Generation | None = None
        self._is_cancelled = False

    @property
    def stats(self) -> SpeculationStats:
        """Counts of the answer that is being written, or of the last one."""
        return self._generation.stats if self._generation else SpeculationStats()

    @property
    def timings(self) -> Timings:
        return self._generation.timings if self._generation else Timings()

    @property
    def draft_length(self) -> int | None:
        """The draft length of the last step; None before the first."""
        return self._generation.last_draft_length if self._generation else None

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """What the policy has decided for each drafter; empty where lengths are fixed."""
        return self._generation.draft_length.decisions if self._generation else ()

    @property
    def context_used(self) -> int:
        """Tokens in the target's cache."""
        return self._scheduler().runner.cached_length(self._slot.seq_id)

    def cancel(self) -> None:
        """End the answer after the running decode; safe in a signal handler."""
        self._is_cancelled = True

    def reset(self) -> None:
        """Forget the conversation."""
        scheduler = self._scheduler()
        self._slot.tokens.truncate(0)
        self._slot.num_read = 0
        scheduler.runner.truncate(self._slot.seq_id, 0)
        scheduler.drafter.forget(self._slot.seq_id)

    def begin(self, prompt_ids: Sequence[int], settings: GenerationSettings) -> Generation:
        """Check a prompt and set up an answer to it, without decoding anything.

        Raises:
            InputError: the prompt is empty, or the grammar is broken.
            PromptTooLongError: it does not fit the context.
        """
        scheduler = self._scheduler()
        n_ctx = scheduler.runner.n_ctx
        if not prompt_ids:
            raise InputError("the prompt is empty; give a text")
        if len(prompt_ids) >= n_ctx:
            raise PromptTooLongError(len(prompt_ids) + 1, n_ctx)
        generation = Generation(
            self._slot,
            prompt_ids,
            settings,
            self._tokenizer,
            n_ctx,
            self._draft_length(settings),
            token_law(settings, self._tokenizer, self._constrain),
        )
        scheduler.begin(generation)
        self._generation, self._is_cancelled = generation, False
        return generation

    def generate(self, prompt_ids: Sequence[int], settings: GenerationSettings) -> Generator[Event]:
        """Answer a prompt: PromptEvents, StepEvents and one FinishEvent.

        The tokens shared with the sequence before are not read again. Closing the iterator
        early is normal. A decode that fails ends the answer with finish reason ``error``.
        """
        return self._events(self.begin(prompt_ids, settings))

    def _events(self, generation: Generation) -> Generator[Event]:
        scheduler = self._scheduler()
        try:
            if generation.settings.predict == 0:
                generation.finish("length")
            while generation.finish_reason is None:
                if self._is_cancelled:
                    generation.finish("cancelled")
                    break
                try:
                    [events] = scheduler.round([generation])
                except EngineError as error:
                    generation.finish("error", ("decode_failed", str(error)))
                    break
                yield from events
        finally:
            scheduler.end(generation)
        yield generation.finish_event()
