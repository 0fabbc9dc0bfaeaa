"""Counts and times by the definitions of the design, worked by hand and by brute force."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.properties import PROPERTY

from outrider.speculative.statistics import (
    RULES,
    DrafterCounts,
    Rule,
    SpeculationStats,
    StepRecord,
    Timings,
)


def _draft(drafted: int, accepted: int, *, rule: Rule = "match", drafter: str = "a") -> StepRecord:
    return StepRecord(drafted, accepted, own=1, rule=rule, drafter=drafter)


PLAIN = StepRecord(own=1)
FIRST = StepRecord(own=1, is_step=False)


def _observed(records: Sequence[StepRecord]) -> SpeculationStats:
    stats = SpeculationStats()
    for record in records:
        stats.observe(replace(record))
    return stats


def test_every_count_worked_by_hand() -> None:
    """A first token from the prompt, drafts of 4, 4, 2 with 2, 4, 0 accepted, a plain step."""
    stats = _observed([FIRST, _draft(4, 2), _draft(4, 4), _draft(2, 0), PLAIN])
    assert (stats.steps, stats.drafts) == (4, 3)
    assert (stats.drafted, stats.accepted, stats.own) == (10, 6, 5)
    assert stats.emitted == 11
    assert stats.acceptance_rate == pytest.approx(6 / 10)
    assert stats.mean_accepted_length == pytest.approx(1 + 6 / 3)
    # first i all accepted of those with at least i: 2 of 3, 2 of 3, 1 of 2, 1 of 2
    assert stats.accepted_per_position == pytest.approx([2 / 3, 2 / 3, 1 / 2, 1 / 2])
    assert stats.drafts_per_position == [3, 3, 2, 2]
    assert stats.accepted_histogram == [1, 0, 1, 0, 1]
    # plain decoding and the first token are no drafts
    assert stats.verification == {"match": 3}


def test_without_drafts_there_are_no_rates() -> None:
    for stats in (SpeculationStats(), _observed([FIRST, PLAIN, PLAIN])):
        assert stats.acceptance_rate is None
        assert stats.mean_accepted_length is None
        assert stats.accepted_per_position == []
        assert stats.accepted_histogram == []
        assert stats.drafts_per_position == []
    assert DrafterCounts().acceptance_rate is None
    assert DrafterCounts().mean_accepted_length is None


def test_nothing_accepted_is_a_rate_of_zero() -> None:
    stats = _observed([_draft(3, 0)])
    assert stats.acceptance_rate == 0
    assert stats.mean_accepted_length == 1
    assert stats.accepted_per_position == [0, 0, 0]
    assert stats.accepted_histogram == [1]


def test_counts_by_drafter_and_by_rule() -> None:
    stats = _observed(
        [
            _draft(4, 2, rule="rejection", drafter="model"),
            _draft(8, 8, drafter="ngram"),
            _draft(2, 1, rule="rejection", drafter="model"),
        ]
    )
    stats.discard("ngram", 5)
    stats.discard("model", 2)
    assert stats.per_drafter == {
        "model": DrafterCounts(drafts=2, drafted=6, accepted=3, discarded=2),
        "ngram": DrafterCounts(drafts=1, drafted=8, accepted=8, discarded=5),
    }
    assert stats.per_drafter["model"].acceptance_rate == pytest.approx(0.5)
    assert stats.per_drafter["model"].mean_accepted_length == pytest.approx(2.5)
    assert stats.verification == {"rejection": 2, "match": 1}
    # thrown away before verification is neither drafted nor rejected
    assert stats.discarded == 7
    assert stats.drafted == 14


@pytest.mark.parametrize(
    ("num_tokens", "expected"),
    [
        (0, StepRecord(5, 3, 1)),
        (1, StepRecord(3, 3, 0)),
        (2, StepRecord(2, 2, 0)),
        (4, StepRecord(0, 0, 0)),
    ],
)
def test_a_cut_record_keeps_what_stands_before_the_cut(
    num_tokens: int, expected: StepRecord
) -> None:
    record = StepRecord(5, 3, 1)
    record.cut(num_tokens)
    assert record == expected


def test_a_cut_reaches_back_over_several_steps() -> None:
    """The stop string began in the middle of the second step."""
    stats = _observed([FIRST, _draft(4, 3), PLAIN, _draft(2, 2)])
    assert stats.emitted == 1 + 4 + 1 + 3
    stats.cut(6)
    # of the first draft two tokens are left; the steps behind it never were
    assert (stats.steps, stats.drafts, stats.drafted, stats.accepted) == (1, 1, 2, 2)
    assert (stats.own, stats.emitted) == (1, 3)
    assert stats.accepted_per_position == [1, 1]
    assert stats.accepted_histogram == [0, 0, 1]
    assert stats.per_drafter["a"] == DrafterCounts(drafts=1, drafted=2, accepted=2)
    assert stats.verification["match"] == 1
    stats.cut(3)
    assert (stats.steps, stats.drafts, stats.own, stats.emitted) == (0, 0, 0, 0)
    assert stats.acceptance_rate is None
    assert stats.accepted_histogram == []
    assert stats.accepted_per_position == []


@st.composite
def _records(draw: st.DrawFn) -> StepRecord:
    drafted = draw(st.integers(0, 5))
    if drafted == 0:
        return StepRecord(own=1, is_step=draw(st.booleans()))
    accepted = draw(st.integers(0, drafted))
    # an end token in place of the target's own leaves none
    own = draw(st.integers(0 if accepted else 1, 1))
    rule, drafter = draw(st.sampled_from(RULES)), draw(st.sampled_from(["a", "b"]))
    return StepRecord(drafted, accepted, own, rule, drafter)


@dataclass(frozen=True)
class _Kept:
    """A record and how many of its emitted tokens were not cut."""

    record: StepRecord
    emitted: int


def _after_cut(records: Sequence[StepRecord], num_tokens: int) -> list[_Kept]:
    kept = [_Kept(record, record.emitted) for record in records]
    while num_tokens:
        last = kept.pop()
        dropped = min(num_tokens, last.emitted)
        num_tokens -= dropped
        if dropped < last.emitted:
            kept.append(_Kept(last.record, last.emitted - dropped))
    return kept


def _check(stats: SpeculationStats, kept: Sequence[_Kept]) -> None:
    """Every number of ``stats`` counted anew from its definition."""
    drafts = []
    for k in kept:
        record, is_cut = k.record, k.emitted < k.record.emitted
        accepted = min(record.accepted, k.emitted)
        drafted = accepted if is_cut else record.drafted
        if drafted:
            drafts.append((drafted, accepted, record.rule, record.drafter))
    emitted = sum(k.emitted for k in kept)
    accepted = sum(accepted for _, accepted, _, _ in drafts)
    assert stats.emitted == stats.accepted + stats.own == emitted
    assert stats.accepted == accepted
    assert stats.steps == sum(k.record.is_step for k in kept)
    assert stats.drafts == len(drafts)
    assert stats.drafted == sum(drafted for drafted, *_ in drafts)
    longest = max((drafted for drafted, *_ in drafts), default=0)
    reached = [sum(drafted >= i for drafted, *_ in drafts) for i in range(1, longest + 1)]
    stood = [sum(accepted >= i for _, accepted, *_ in drafts) for i in range(1, longest + 1)]
    assert stats.drafts_per_position == reached
    assert stats.accepted_per_position == [a / n for a, n in zip(stood, reached, strict=True)]
    histogram = Counter(accepted for _, accepted, *_ in drafts)
    most = max(histogram, default=-1)
    assert stats.accepted_histogram == [histogram[j] for j in range(most + 1)]
    assert +stats.verification == Counter(rule for _, _, rule, _ in drafts)
    for name in ("a", "b"):
        mine = [(drafted, accepted) for drafted, accepted, _, drafter in drafts if drafter == name]
        counts = stats.per_drafter.get(name, DrafterCounts())
        assert counts.drafts == len(mine)
        assert counts.drafted == sum(drafted for drafted, _ in mine)
        assert counts.accepted == sum(accepted for _, accepted in mine)


@PROPERTY
@given(st.lists(_records(), max_size=12), st.integers(0, 40))
def test_a_cut_counts_as_if_the_rest_had_never_been(
    records: list[StepRecord], num_tokens: int
) -> None:
    stats = _observed(records)
    _check(stats, [_Kept(record, record.emitted) for record in records])
    num_tokens = min(num_tokens, stats.emitted)
    stats.cut(num_tokens)
    _check(stats, _after_cut(records, num_tokens))


@PROPERTY
@given(st.lists(st.lists(_records(), max_size=6), max_size=4), st.integers(0, 8))
def test_merged_counts_are_those_of_one_long_generation(
    generations: list[list[StepRecord]], num_tokens: int
) -> None:
    total, kept = SpeculationStats(), []
    for records in generations:
        stats = _observed(records)
        cut = min(num_tokens, stats.emitted)
        stats.cut(cut)
        total.merge(stats)
        kept += _after_cut(records, cut)
    _check(total, kept)


def test_merging_adds_times_and_what_was_discarded() -> None:
    total = SpeculationStats()
    for draft_s, verify_s in ((0.25, 1.0), (0.5, 2.0)):
        stats = _observed([_draft(2, 1)])
        stats.discard("a", 3)
        stats.draft_s, stats.verify_s, stats.paused_steps = draft_s, verify_s, 4
        stats.spend("a", draft_s)
        total.merge(stats)
    assert (total.draft_s, total.verify_s, total.paused_steps) == (0.75, 3.0, 8)
    assert total.discarded == 6
    assert total.per_drafter["a"] == DrafterCounts(2, 4, 2, 6, 0.75)


def test_steps_exceed_own_only_when_the_last_block_ended_early() -> None:
    ended = StepRecord(3, 2, own=0, rule="match", drafter="a")
    stats = _observed([_draft(3, 1), PLAIN, ended])
    assert stats.steps - stats.own == 1


# times


def test_tokens_per_second_leave_the_first_step_out() -> None:
    """3 tokens at 10.0 s, 2 at 10.5 s, 4 at 11.5 s: 6 tokens in 1.5 s."""
    timings = Timings()
    for now, num_tokens in ((10.0, 3), (10.5, 2), (11.5, 4)):
        timings.observe(now, num_tokens)
    assert timings.tokens == 9
    assert timings.generation_s == pytest.approx(1.5)
    assert timings.tokens_per_s == pytest.approx(6 / 1.5)


def test_one_step_has_no_speed() -> None:
    timings = Timings()
    assert timings.tokens_per_s is None
    assert timings.tokens_per_s_now is None
    timings.observe(5.0, 4)
    assert timings.generation_s == 0
    assert timings.tokens_per_s is None
    assert timings.tokens_per_s_now is None


def test_speed_now_is_that_of_the_last_two_seconds() -> None:
    timings = Timings()
    timings.observe(0.0, 50)
    timings.observe(0.5, 3)
    # so far one half second without the first step
    assert timings.tokens_per_s_now == pytest.approx(3 / 0.5)
    timings.observe(1.5, 1)
    assert timings.tokens_per_s_now == pytest.approx(4 / 1.5)
    timings.observe(3.0, 5)
    # 0.5 s is gone: 1 and 5 tokens in two seconds
    assert timings.tokens_per_s_now == pytest.approx(6 / 2)
    assert timings.tokens_per_s == pytest.approx(9 / 3)


def test_prompt_speed_is_reported_apart() -> None:
    timings = Timings(prompt_s=0.5, prompt_tokens=100)
    assert timings.prompt_tokens_per_s == pytest.approx(200)
    assert timings.tokens_per_s is None
    assert Timings(prompt_s=0.5).prompt_tokens_per_s is None
    assert Timings(prompt_tokens=3).prompt_tokens_per_s is None


@PROPERTY
@given(st.lists(st.tuples(st.floats(0.01, 1.0), st.integers(1, 6)), min_size=2, max_size=30))
def test_speeds_by_brute_force(steps: list[tuple[float, int]]) -> None:
    ends = list(itertools.accumulate(seconds for seconds, _ in steps))
    timings = Timings()
    for end, (_, num_tokens) in zip(ends, steps, strict=True):
        timings.observe(end, num_tokens)
    after_first = list(zip(ends, (n for _, n in steps), strict=True))[1:]
    span = ends[-1] - ends[0]
    assert timings.tokens_per_s == pytest.approx(sum(n for _, n in after_first) / span)
    recent = sum(n for end, n in after_first if end >= ends[-1] - 2)
    assert timings.tokens_per_s_now == pytest.approx(recent / min(2, span))
