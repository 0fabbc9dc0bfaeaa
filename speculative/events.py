"""What a generation tells its reader, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outrider.speculative.logprobs import TokenLogprob
from outrider.speculative.statistics import Decision, SpeculationStats, Timings

FinishReason = Literal["stop", "length", "context", "cancelled", "error"]
Spans = tuple[tuple[int, int], ...]
"""Parts of a text, each from its first character to the one after its last."""


@dataclass(frozen=True, slots=True)
class PromptEvent:
    """A part of the prompt was read: ``done`` of ``total`` tokens, ``cached`` of them reused."""

    done: int
    total: int
    cached: int


@dataclass(slots=True)  # not frozen, which would cost: one is made in every step
class StepEvent:
    """One step emitted ``token_ids``, the first ``num_accepted`` of them from a draft.

    ``text`` is what may be shown now: complete characters, no part of a stop string. It can
    be empty, and it can belong to tokens of earlier steps. ``reasoning`` is the same of what
    the model thinks before it answers. ``num_drafted`` draft tokens were verified.
    ``accepted`` are the parts of ``text`` that came from a draft, if they were asked for; a
    character that is split over tokens belongs to the one that completes it.
    """

    text: str
    token_ids: tuple[int, ...]
    num_accepted: int
    reasoning: str = ""
    num_drafted: int = 0
    accepted: Spans = ()


@dataclass(frozen=True, slots=True)
class FinishEvent:
    """The generation ended; the last event of every generation.

    ``text`` is what was held back and may be shown after all; ``result`` is the whole.
    """

    text: str
    result: GenerationResult
    reasoning: str = ""
    accepted: Spans = ()


Event = PromptEvent | StepEvent | FinishEvent


@dataclass(slots=True)
class GenerationResult:
    """One answer with its counts and times. ``error`` is (code, message) or None.

    ``reasoning`` is None where the model is not one that thinks aloud; ``logprobs`` has an
    entry for each token, or is None if they were not asked for. ``decisions`` are the last ones
    of the policy, none where lengths are fixed.
    """

    text: str
    token_ids: list[int]
    finish_reason: FinishReason
    prompt_tokens: int
    cached_tokens: int
    stats: SpeculationStats
    timings: Timings
    seed: int
    error: tuple[str, str] | None = None
    reasoning: str | None = None
    logprobs: list[TokenLogprob] | None = None
    decisions: tuple[Decision, ...] = ()

    @property
    def completion_tokens(self) -> int:
        return len(self.token_ids)
