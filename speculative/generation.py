"""Slot and Generation: one sequence of the context, and one answer that is being written."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.draft_length import DraftLength
from outrider.speculative.events import FinishEvent, FinishReason, GenerationResult, Spans
from outrider.speculative.law import BlockLaw, TokenLaw
from outrider.speculative.logprobs import TokenLogprob, logprob_of_law, logprob_of_row
from outrider.speculative.proposal import Proposal, Verdict
from outrider.speculative.reasoning import ReasoningSplitter
from outrider.speculative.settings import GenerationSettings
from outrider.speculative.statistics import Rule, SpeculationStats, StepRecord, Timings
from outrider.speculative.text_stream import AcceptedText, TextStream
from outrider.speculative.token_sequence import TokenSequence
from outrider.speculative.tokenizer import Tokenizer, printed_pieces
from outrider.speculative.uniforms import Coins, Uniforms, fresh_seed

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]


@dataclass(slots=True, eq=False)
class Slot:
    """One sequence id of the context and the tokens that its caches follow.

    ``num_read`` of the tokens were decoded: what a cache has beyond them is no part of the text.
    """

    seq_id: int
    tokens: TokenSequence = field(default_factory=TokenSequence)
    num_read: int = 0


class Generation:
    """The state of one answer. It decodes nothing: the scheduler tells it what came out."""

    def __init__(
        self,
        slot: Slot,
        prompt_ids: Sequence[int],
        settings: GenerationSettings,
        tokenizer: Tokenizer,
        n_ctx: int,
        draft_length: DraftLength,
        law: TokenLaw,
    ) -> None:
        self.slot = slot
        self.settings = settings
        self.prompt: I32 = np.asarray(prompt_ids, np.int32)
        self.law = law
        self.uniforms = Uniforms(fresh_seed() if settings.seed is None else settings.seed)
        self._coins = Coins(self.uniforms, 0)
        self.draft_length = draft_length
        self.stats = SpeculationStats()
        self.timings = Timings()
        self.token_ids: list[int] = []
        self.logprobs: list[TokenLogprob] = []
        self.reading: I32 = self.prompt
        """What has to be in the cache before a step: the prompt, or the text of one that goes
        on after its part of the cache was given up."""
        self.num_cached_prompt = 0
        self.is_cancelled = False
        self.last_draft_length: int | None = None
        self.finish_reason: FinishReason | None = None
        self.error: tuple[str, str] | None = None
        self.started = time.perf_counter()
        self.is_end = _never if settings.sampling.ignore_eos else tokenizer.is_end
        self._n_ctx = n_ctx
        self._stream = TextStream(settings.stop)
        self._accepted = AcceptedText() if settings.marks_accepted else None
        self._splitter = ReasoningSplitter(settings.reasoning) if settings.reasoning else None
        self._piece = printed_pieces(tokenizer, settings.reasoning)
        self._answer: list[str] = []
        self._thought: list[str] = []

    @property
    def is_reading(self) -> bool:
        """True while a part of what is to be read is not decoded yet."""
        return self.slot.num_read < len(self.reading)

    @property
    def goes_on(self) -> bool:
        """True if what is read is no prompt: nothing is drawn after it."""
        return self.reading is not self.prompt

    @property
    def max_draft(self) -> int:
        """Draft tokens that can all be kept: a block emits one token more."""
        room = self._n_ctx - self.slot.tokens.length - 1
        if self.settings.predict >= 0:
            room = min(room, self.settings.predict - len(self.token_ids) - 1)
        return max(room, 0)

    @property
    def coins(self) -> Coins:
        """The uniforms of the tokens that come next."""
        self._coins.first_index = len(self.token_ids)
        return self._coins

    def commit(
        self,
        proposal: Proposal,
        verdict: Verdict,
        rule: Rule | None,
        law: BlockLaw,
        *,
        is_step: bool,
    ) -> tuple[list[int], StepRecord]:
        """Emit what a decode gave, up to an end token, a stop string or a limit.

        Returns:
            the emitted tokens, and what is counted of them.
        """
        draft = proposal.token_ids
        tokens = list(draft[: verdict.num_accepted])
        if verdict.next_token is not None:
            tokens.append(verdict.next_token)
        emitted = self._emit(tokens, law, verdict.num_accepted)
        num_emitted = len(emitted)
        if emitted:
            accepted = min(verdict.num_accepted, num_emitted)
            is_whole = num_emitted == len(tokens)
            drafted = len(draft) if is_whole else self._num_verified(draft, verdict, num_emitted)
            own, drafter = num_emitted - accepted, proposal.drafter or None
            record = StepRecord(drafted, accepted, own, rule if draft else None, drafter, is_step)
            self.stats.observe(record)
            self.stats.paused_steps += self.stats.paused is not None and not draft
            self.timings.observe(time.perf_counter(), num_emitted)
        else:
            record = StepRecord()
        self.draft_length.observe(proposal, verdict.num_accepted, emitted)
        # a stop string that reaches back into this step cuts the record too
        return self._cut_at_stop(emitted) if self._stream.is_stopped else emitted, record

    def take_text(self) -> tuple[str, str]:
        """Reasoning and answer that may be shown now, once."""
        return self._split(self._stream.release())

    def accepted_spans(self, text: str) -> Spans:
        """The accepted parts of ``text``, the answer that was given out last."""
        if self._accepted is None or not text:
            return ()
        # reasoning comes before the answer, so the answer is the end of what was given out
        end = self._stream.num_shown
        return self._accepted.take(end - len(text), end)

    def finish(self, reason: FinishReason, error: tuple[str, str] | None = None) -> None:
        if self.finish_reason is None:
            self.finish_reason, self.error = reason, error

    def finish_event(self) -> FinishEvent:
        assert self.finish_reason is not None
        reasoning, rest = self._split(self._stream.finish())
        if self._splitter is not None:
            last_reasoning, last_rest = self._splitter.finish()
            reasoning, rest = reasoning + last_reasoning, rest + last_rest
            self._thought.append(last_reasoning)
            self._answer.append(last_rest)
        result = GenerationResult(
            text="".join(self._answer),
            token_ids=self.token_ids,
            finish_reason=self.finish_reason,
            prompt_tokens=len(self.prompt),
            cached_tokens=self.num_cached_prompt,
            stats=self.stats,
            timings=self.timings,
            seed=self.uniforms.seed,
            error=self.error,
            reasoning="".join(self._thought) if self._splitter else None,
            logprobs=None if self.settings.logprobs is None else self.logprobs,
            decisions=self.draft_length.decisions,
        )
        return FinishEvent(rest, result, reasoning, self.accepted_spans(rest))

    def _emit(self, tokens: Sequence[int], law: BlockLaw, num_accepted: int) -> list[int]:
        emitted: list[int] = []
        for position, token in enumerate(tokens):
            if self.is_end(token):
                self.finish("stop")
                break
            if not self.law.is_plain:
                self.law.advance(token, law.laws[position])
            emitted.append(token)
            self.token_ids.append(token)
            self.slot.tokens.append(token)
            if self.settings.logprobs is not None:
                self.logprobs.append(self._logprob(token, law, position))
            if self._stream.push(self._piece(token)) or (
                not self.law.is_plain and self.law.is_complete
            ):
                self.finish("stop")
            elif 0 <= self.settings.predict <= len(self.token_ids):
                self.finish("length")
            elif self.slot.tokens.length >= self._n_ctx:
                self.finish("context")
            if self._accepted is not None:
                self._accepted.add(self._stream.num_complete, position < num_accepted)
            if self.finish_reason is not None:
                break
        return emitted

    def _logprob(self, token: int, law: BlockLaw, position: int) -> TokenLogprob:
        piece, count = self._piece(token), self.settings.logprobs or 0
        if self.settings.post_sampling_probs:
            return logprob_of_law(law.laws[position], token, piece, count)
        return logprob_of_row(law.rows[position], token, piece, count)

    def _split(self, text: str) -> tuple[str, str]:
        """Which of the text is reasoning and which is answer."""
        if self._splitter is None:
            self._answer.append(text)
            return "", text
        reasoning, answer = self._splitter.push(text)
        self._thought.append(reasoning)
        self._answer.append(answer)
        return reasoning, answer

    def _num_verified(self, draft: Sequence[int], verdict: Verdict, num_emitted: int) -> int:
        """Draft tokens that count where the text ended inside the block: those up to there.

        A draft token that an end token of the target replaced was verified and counts.
        """
        is_replaced = num_emitted == verdict.num_accepted < len(draft)
        return num_emitted + (is_replaced and not self._stream.is_stopped)

    def _cut_at_stop(self, emitted: list[int]) -> list[int]:
        """Take back the tokens that hold nothing of the text before a stop string."""
        surplus = len(self.token_ids) - self._stream.num_tokens_kept()
        if surplus:
            del self.token_ids[-surplus:]
            del self.logprobs[len(self.token_ids) :]
            self.slot.tokens.truncate(len(self.slot.tokens) - surplus)
            self.stats.cut(surplus)
            self.timings.tokens -= surplus
        return emitted[: max(len(emitted) - surplus, 0)]


def _never(token_id: int) -> bool:
    return False
