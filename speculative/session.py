"""Session: one conversation on one slot of the engine."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing

from outrider.speculative.constraint import Constraint
from outrider.speculative.draft_length import DraftLength, FixedLength
from outrider.speculative.errors import InputError, PromptTooLongError
from outrider.speculative.events import Event
from outrider.speculative.generation import Generation, Slot
from outrider.speculative.law import token_law
from outrider.speculative.llama import StopFlag
from outrider.speculative.rounds import Rounds
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
        stop: StopFlag | None = None,
        slots: Sequence[Slot] = (),
    ) -> None:
        """The functions are asked anew for each answer: settings change.

        ``stop`` is what the models look at while they read; ``slots`` are all of the context,
        which may have cached what a prompt begins with.
        """
        self.slot = Slot(seq_id)
        self._scheduler = scheduler
        self._tokenizer = tokenizer
        self._draft_length = draft_length
        self._constrain = constrain
        self._stop = stop or StopFlag()
        self._slots = slots
        self._generation: Generation | None = None
        self._is_alone = False  # in a pool a decode reads for others too
        self.is_drafting = True
        """False: the answers to come are written without drafts."""

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
    def dropped(self) -> Mapping[str, str]:
        """Why drafters were dropped, by name."""
        return self._scheduler().drafter.dropped

    @property
    def plain_s(self) -> float | None:
        """Median seconds of a step of one row near this context length; None if too few were."""
        return self._scheduler().costs.plain_s(self.context_used)

    @property
    def context_used(self) -> int:
        """Tokens in the target's cache."""
        return self._scheduler().runner.cached_length(self.slot.seq_id)

    def cancel(self) -> None:
        """End the answer after the running step, or in the midst of reading.

        Safe in a signal handler and from any thread.
        """
        if self._generation is not None:
            self._generation.is_cancelled = True
        if self._is_alone:
            self._stop.set()

    def reset(self) -> None:
        """Forget the conversation."""
        self._scheduler().forget(self.slot)

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
            self.slot,
            prompt_ids,
            settings,
            self._tokenizer,
            n_ctx,
            self._draft_length(settings) if self.is_drafting else FixedLength(0),
            token_law(settings, self._tokenizer, self._constrain),
        )
        scheduler.begin(generation, [one for one in self._slots if one is not self.slot])
        self._generation = generation
        self._stop.clear()
        return generation

    def generate(self, prompt_ids: Sequence[int], settings: GenerationSettings) -> Generator[Event]:
        """Answer a prompt: PromptEvents, StepEvents and one FinishEvent.

        The tokens shared with the sequence before are not read again. Closing the iterator
        early is normal. A decode that fails ends the answer with finish reason ``error``.
        """
        return self._events(self.begin(prompt_ids, settings))

    def _events(self, generation: Generation) -> Generator[Event]:
        self._is_alone = True
        try:
            with closing(Rounds(self._scheduler)) as rounds:
                rounds.join(generation)
                while rounds.num_running:
                    for _, events in rounds.advance():
                        yield from events
        finally:
            self._is_alone = False
            self._stop.clear()  # the models are not this session's alone
