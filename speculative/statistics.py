"""Counts and times of one generation, with the definitions of docs/glossary.md and no others.

Numbers only: words, tables and bars are made in ``cli``.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import accumulate, takewhile
from typing import Literal

Rule = Literal["greedy", "match", "rejection", "synthetic"]
RULES: tuple[Rule, ...] = ("greedy", "match", "rejection", "synthetic")

_NOW_WINDOW_S = 2.0
_MOST_RECENT = 4096  # steps that are kept for it: more than there ever are in that time


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
    """Counters of design section 3. One table says what the steps were: all that is asked about
    them is counted from it, so that no two counts can contradict each other."""

    def __init__(self) -> None:
        self.paused_steps = 0
        self.draft_s = 0.0
        self.verify_s = 0.0
        self.paused: Pause | None = None
        self._table: Counter[_Step] = Counter()
        self._discarded: Counter[str] = Counter()
        self._draft_s: dict[str, float] = {}  # by drafter
        self._records: list[StepRecord] = []
        self._num_counted = 0  # of the records: those that are in the table

    def observe(self, record: StepRecord) -> None:
        """Count one decode, when somebody asks."""
        self._records.append(record)

    def cut(self, num_tokens: int) -> None:
        """Take back the last ``num_tokens`` emitted tokens (a stop string reached back)."""
        steps = self._steps
        while num_tokens > 0:
            record = self._records.pop()
            steps[_step(record)] -= 1
            dropped = min(num_tokens, record.emitted)
            num_tokens -= dropped
            record.cut(dropped)
            self._num_counted = len(self._records)
            if record.emitted:
                self.observe(record)

    def discard(self, drafter: str, num_tokens: int) -> None:
        """Count draft tokens thrown away before verification."""
        self._discarded[drafter] += num_tokens

    def spend(self, drafter: str, seconds: float) -> None:
        """Count time that a drafter took for tokens."""
        self._draft_s[drafter] = self._draft_s.get(drafter, 0.0) + seconds

    def merge(self, other: SpeculationStats) -> None:
        """Add the counts of another generation (a session's totals)."""
        self.paused_steps += other.paused_steps
        self.draft_s += other.draft_s
        self.verify_s += other.verify_s
        self._table.update(other._steps)
        self._discarded.update(other._discarded)
        for drafter, seconds in other._draft_s.items():
            self.spend(drafter, seconds)

    @property
    def steps(self) -> int:
        return sum(count for (*_, is_step), count in self._steps.items() if is_step)

    @property
    def own(self) -> int:
        return sum(own * count for (_, _, _, _, own, _), count in self._steps.items())

    @property
    def drafts(self) -> int:
        return self._drafts.total()

    @property
    def drafted(self) -> int:
        return sum(drafted * count for (_, _, drafted, _), count in self._drafts.items())

    @property
    def accepted(self) -> int:
        return sum(accepted * count for (_, _, _, accepted), count in self._drafts.items())

    @property
    def emitted(self) -> int:
        return self.accepted + self.own

    @property
    def discarded(self) -> int:
        return self._discarded.total()

    @property
    def verification(self) -> Counter[Rule]:
        """Drafts by the rule that verified them."""
        counts: Counter[Rule] = Counter()
        for (_, rule, _, _), count in self._drafts.items():
            counts[rule] += count
        return counts

    @property
    def per_drafter(self) -> dict[str, DrafterCounts]:
        """The counts by drafter, of all that made or threw away a token."""
        drafts = self._drafts
        made = {drafter for drafter, *_ in drafts}
        names = dict.fromkeys((*self._draft_s, *self._discarded, *sorted(made)))
        counts = {
            name: DrafterCounts(
                discarded=self._discarded[name], draft_s=self._draft_s.get(name, 0.0)
            )
            for name in names
        }
        for (drafter, _, drafted, accepted), count in drafts.items():
            one = counts[drafter]
            one.drafts += count
            one.drafted += drafted * count
            one.accepted += accepted * count
        return counts

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
        lengths: Counter[int] = Counter()
        for (_, _, drafted, _), count in self._drafts.items():
            lengths[drafted] += count
        return [n for i, n in sorted(_at_least(lengths).items()) if i > 0]

    @property
    def accepted_histogram(self) -> list[int]:
        """Entry j: drafts of which exactly j tokens were accepted."""
        histogram = self._histogram
        return [histogram[j] for j in range(max(histogram, default=-1) + 1)]

    @property
    def _histogram(self) -> Counter[int]:
        """Accepted tokens of a draft -> drafts."""
        counts: Counter[int] = Counter()
        for (_, _, _, accepted), count in self._drafts.items():
            counts[accepted] += count
        return counts

    @property
    def _steps(self) -> Counter[_Step]:
        """The table, with the steps since it was asked for."""
        new = self._records[self._num_counted :]
        self._num_counted += len(new)
        self._table.update(map(_step, new))
        return self._table

    @property
    def _drafts(self) -> Counter[tuple[str, Rule, int, int]]:
        """Drafter, rule, its tokens, those accepted -> drafts."""
        drafts: Counter[tuple[str, Rule, int, int]] = Counter()
        for (drafter, rule, drafted, accepted, _, _), count in self._steps.items():
            if drafted and rule and drafter:
                drafts[drafter, rule, drafted, accepted] += count
        return +drafts


_Step = tuple[str | None, Rule | None, int, int, int, bool]


def _step(record: StepRecord) -> _Step:
    """What is counted of a record: drafter, rule, drafted, accepted, own, is it a step."""
    return (
        record.drafter,
        record.rule,
        record.drafted,
        record.accepted,
        record.own,
        record.is_step,
    )


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
    _recent: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_MOST_RECENT))

    def observe(self, now: float, num_tokens: int) -> None:
        """Count the tokens emitted by a step that ended at ``now``."""
        if self.tokens == 0:
            self.first_step_end = now
            self.first_step_tokens = num_tokens
        else:
            self._recent.append((now, num_tokens))
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
        start = self.last_step_end - _NOW_WINDOW_S
        lately = takewhile(lambda step: step[0] >= start, reversed(self._recent))
        return sum(count for _, count in lately) / span if span > 0 else None

    @property
    def prompt_tokens_per_s(self) -> float | None:
        if not self.prompt_tokens or self.prompt_s <= 0:
            return None
        return self.prompt_tokens / self.prompt_s
