"""Counts and times of one generation, with the definitions of docs/glossary.md and no others.

Numbers only: words, tables and bars are made in ``cli``.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal

Rule = Literal["greedy", "match", "rejection", "synthetic"]
RULES: tuple[Rule, ...] = ("greedy", "match", "rejection", "synthetic")

_NOW_WINDOW_S = 2.0


@dataclass(slots=True)
class StepRecord:
    """What one target decode emitted.

    ``drafted`` draft tokens were verified, the first ``accepted`` of them kept, and ``own``
    (0 or 1) tokens drawn by the target itself. ``rule`` and ``drafter`` are None without a
    draft. ``is_step`` is False for the first token when it came out of prompt processing.
    """

    drafted: int = 0
    accepted: int = 0
    own: int = 0
    rule: Rule | None = None
    drafter: str | None = None
    is_step: bool = True

    @property
    def emitted(self) -> int:
        return self.accepted + self.own

    def cut(self, num_tokens: int) -> None:
        """Drop the last ``num_tokens`` emitted tokens and the draft tokens after the cut."""
        kept = self.emitted - num_tokens
        assert 0 <= kept <= self.emitted
        if num_tokens == 0:
            return
        self.accepted = min(self.accepted, kept)
        self.own = kept - self.accepted
        self.drafted = min(self.drafted, kept)


@dataclass(slots=True)
class DrafterCounts:
    """The counts of one drafter of the chain; ``draft_s`` in seconds."""

    drafts: int = 0
    drafted: int = 0
    accepted: int = 0
    discarded: int = 0
    draft_s: float = 0.0

    @property
    def acceptance_rate(self) -> float | None:
        return self.accepted / self.drafted if self.drafted else None

    @property
    def mean_accepted_length(self) -> float | None:
        return 1 + self.accepted / self.drafts if self.drafts else None


@dataclass(slots=True)
class Pause:
    """Why no draft is made: ``needed`` and ``measured`` are acceptance rates where they apply."""

    reason: str
    needed: float | None = None
    measured: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided for one drafter: its length in force, and why that is 0."""

    drafter: str
    length: int
    pause: Pause | None = None


class SpeculationStats:
    """Counters of design section 3: ``emitted == accepted + own`` after every call."""

    def __init__(self) -> None:
        self.steps = 0
        self.drafts = 0
        self.drafted = 0
        self.accepted = 0
        self.own = 0
        self.discarded = 0
        self.emitted = 0
        self.paused_steps = 0
        self.draft_s = 0.0
        self.verify_s = 0.0
        self.verification: Counter[Rule] = Counter()
        self.per_drafter: dict[str, DrafterCounts] = {}
        self.paused: Pause | None = None
        self._lengths: Counter[int] = Counter()  # tokens of a draft -> drafts
        self._histogram: Counter[int] = Counter()  # accepted tokens of a draft -> drafts
        self._records: list[StepRecord] = []

    def observe(self, record: StepRecord) -> None:
        """Count one decode."""
        self._records.append(record)
        self._add(record, +1)

    def cut(self, num_tokens: int) -> None:
        """Take back the last ``num_tokens`` emitted tokens (a stop string reached back)."""
        while num_tokens > 0:
            record = self._records.pop()
            self._add(record, -1)
            dropped = min(num_tokens, record.emitted)
            num_tokens -= dropped
            record.cut(dropped)
            if record.emitted:
                self.observe(record)

    def discard(self, drafter: str, num_tokens: int) -> None:
        """Count draft tokens thrown away before verification."""
        self.discarded += num_tokens
        self.drafter(drafter).discarded += num_tokens

    def drafter(self, name: str) -> DrafterCounts:
        counts = self.per_drafter.get(name)
        if counts is None:
            counts = self.per_drafter[name] = DrafterCounts()
        return counts

    def merge(self, other: SpeculationStats) -> None:
        """Add the counts of another generation (a session's totals)."""
        for name in ("steps", "drafts", "drafted", "accepted", "own", "discarded", "emitted"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.paused_steps += other.paused_steps
        self.draft_s += other.draft_s
        self.verify_s += other.verify_s
        self._lengths.update(other._lengths)
        self._histogram.update(other._histogram)
        self.verification.update(other.verification)
        for name, counts in other.per_drafter.items():
            mine_counts = self.drafter(name)
            mine_counts.drafts += counts.drafts
            mine_counts.drafted += counts.drafted
            mine_counts.accepted += counts.accepted
            mine_counts.discarded += counts.discarded
            mine_counts.draft_s += counts.draft_s

    @property
    def acceptance_rate(self) -> float | None:
        """accepted / drafted; None without drafts, never 0 by absence."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def mean_accepted_length(self) -> float | None:
        """1 + accepted / drafts: tokens a step with a draft emits, the target's own included."""
        return 1 + self.accepted / self.drafts if self.drafts else None

    @property
    def accepted_per_position(self) -> list[float]:
        """Entry i-1: drafts whose first i tokens were all accepted / drafts with at least i."""
        kept, reached = _at_least(self._histogram), self.drafts_per_position
        return [kept.get(i, 0) / n for i, n in enumerate(reached, 1)]

    @property
    def drafts_per_position(self) -> list[int]:
        """Entry i-1: drafts that had at least i tokens."""
        return [n for i, n in sorted(_at_least(self._lengths).items()) if i > 0]

    @property
    def accepted_histogram(self) -> list[int]:
        """Entry j: drafts of which exactly j tokens were accepted."""
        if not self.drafts:
            return []
        return [self._histogram[j] for j in range(max(+self._histogram) + 1)]

    def _add(self, record: StepRecord, sign: int) -> None:
        self.steps += sign * record.is_step
        self.accepted += sign * record.accepted
        self.own += sign * record.own
        self.emitted += sign * record.emitted
        if record.drafted and record.rule and record.drafter:
            self.drafts += sign
            self.drafted += sign * record.drafted
            self.verification[record.rule] += sign
            counts = self.drafter(record.drafter)
            counts.drafts += sign
            counts.drafted += sign * record.drafted
            counts.accepted += sign * record.accepted
            self._lengths[record.drafted] += sign
            self._histogram[record.accepted] += sign
        assert self.emitted == self.accepted + self.own


def _at_least(counts: Counter[int]) -> dict[int, int]:
    """For each i up to the largest number counted, how many were at least i."""
    highest = max(+counts, default=-1)
    totals = accumulate(counts[i] for i in range(highest, -1, -1))
    return dict(zip(range(highest, -1, -1), totals, strict=True))


@dataclass(slots=True)
class Timings:
    """Seconds of one generation, by the host's monotonic clock.

    ``prompt_s`` is prompt processing, up to the first token's logits. ``generation_s`` runs
    from the end of the first step to the end of the last; ``tokens_per_s`` counts what was
    emitted after the first step over that time. llama.cpp's own counters are not used: they
    count a verify batch as prompt.
    """

    load_s: float = 0.0
    prompt_s: float = 0.0
    prompt_tokens: int = 0
    time_to_first_token_s: float = 0.0
    first_step_end: float = 0.0
    last_step_end: float = 0.0
    first_step_tokens: int = 0
    tokens: int = 0
    _recent: deque[tuple[float, int]] = field(default_factory=deque)

    def observe(self, now: float, num_tokens: int) -> None:
        """Count the tokens emitted by a step that ended at ``now``."""
        if self.tokens == 0:
            self.first_step_end = now
            self.first_step_tokens = num_tokens
        else:
            self._recent.append((now, num_tokens))
            while self._recent and self._recent[0][0] < now - _NOW_WINDOW_S:
                self._recent.popleft()
        self.tokens += num_tokens
        self.last_step_end = now

    @property
    def generation_s(self) -> float:
        return self.last_step_end - self.first_step_end

    @property
    def tokens_per_s(self) -> float | None:
        after_first = self.tokens - self.first_step_tokens
        if after_first <= 0 or self.generation_s <= 0:
            return None
        return after_first / self.generation_s

    @property
    def tokens_per_s_now(self) -> float | None:
        """Tokens of the last two seconds over those seconds, the first step left out."""
        if not self._recent:
            return None
        span = min(_NOW_WINDOW_S, self.last_step_end - self.first_step_end)
        return sum(n for _, n in self._recent) / span if span > 0 else None

    @property
    def prompt_tokens_per_s(self) -> float | None:
        if not self.prompt_tokens or self.prompt_s <= 0:
            return None
        return self.prompt_tokens / self.prompt_s
