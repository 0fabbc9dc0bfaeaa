"""The length of a draft: the one with the most expected tokens a second, by brute force."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.properties import PROPERTY

from outrider.speculative.draft_length import (
    AcceptanceModel,
    AdaptiveLength,
    ChainLength,
    FixedLength,
)
from outrider.speculative.step_costs import StepCosts


def _costs(step_s: Sequence[float]) -> StepCosts:
    """Entry k: seconds of a step with k draft tokens."""
    costs = StepCosts()
    for k, seconds in enumerate(step_s):
        costs.observe_verify(k + 1, seconds)
    return costs


def _speeds(step_s: Sequence[float], chances: Sequence[float]) -> list[float]:
    """Expected tokens a second of each draft length."""
    speeds = []
    for k, seconds in enumerate(step_s):
        standing = [math.prod(chances[:i]) for i in range(1, k + 1)]
        speeds.append((1 + sum(standing)) / seconds)
    return speeds


@pytest.mark.parametrize(("limit", "length"), [(9, 4), (4, 4), (3, 3), (0, 0)])
def test_a_fixed_length_is_cut_by_the_limit_alone(limit: int, length: int) -> None:
    fixed = FixedLength(4)
    for _ in range(3):
        assert fixed.next_length(limit) == length
        fixed.observe(length, 0, 1)
    assert fixed.paused is None


# chances


def test_a_chance_is_assumed_before_anything_is_known() -> None:
    assert AcceptanceModel(3).chances() == pytest.approx([0.7] * 3)


def test_chances_worked_by_hand() -> None:
    """One of three stands: position 1 tested and stood, 2 tested and fell, 3 never tested."""
    model = AcceptanceModel(3)
    model.observe(3, 1)
    # over all positions: (1 + 2 * 0.7) / (2 + 2); two of these weigh in at each position
    overall = 2.4 / 4
    assert model.chances() == pytest.approx([(1 + 2 * overall) / 3, (0 + 2 * overall) / 3, overall])
    model.observe(2, 2)
    overall = (0.97 * 1 + 2 + 1.4) / (0.97 * 2 + 2 + 2)
    assert model.chances() == pytest.approx(
        [(1.97 + 2 * overall) / 3.97, (1 + 2 * overall) / 3.97, overall]
    )


@PROPERTY
@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6)), max_size=30))
def test_only_verified_positions_are_learnt_from(drafts: list[tuple[int, int]]) -> None:
    """The tokens behind a rejection were never looked at: a longer draft teaches no more."""
    short, long = AcceptanceModel(8), AcceptanceModel(8)
    for drafted, accepted in drafts:
        accepted = min(drafted, accepted)
        short.observe(drafted, accepted)
        long.observe(drafted if accepted == drafted else 8, accepted)
    assert short.chances().tolist() == long.chances().tolist()


def test_chances_follow_what_happens() -> None:
    model = AcceptanceModel(2)
    for _ in range(300):
        model.observe(2, 1)
    assert model.chances() == pytest.approx([1, 0], abs=0.08)
    for _ in range(300):
        model.observe(2, 0)
    assert model.chances()[0] == pytest.approx(0, abs=0.08)


def test_drafts_longer_than_the_model_of_them_are_no_mistake() -> None:
    model = AcceptanceModel(2)
    model.observe(6, 5)
    assert model.chances()[1] > 0.7


# the best length


@PROPERTY
@given(
    st.lists(st.floats(0.001, 0.6), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(1, 8), st.integers(0, 8)), max_size=20),
)
def test_the_length_is_the_fastest(extra_s: list[float], drafts: list[tuple[int, int]]) -> None:
    """Steps that cost ``extra_s`` more with each draft token; 0 where nothing pays."""
    n_max = len(extra_s)
    step_s = [1 + sum(extra_s[:k]) for k in range(n_max + 1)]
    length, model = AdaptiveLength(_costs(step_s), n_max), AcceptanceModel(n_max)
    for drafted, accepted in drafts:
        accepted = min(drafted, accepted)
        length.observe(drafted, accepted, accepted + 1)
        model.observe(drafted, accepted)
    length.observe(1, 0, 1)  # no probe is due
    model.observe(1, 0)
    speeds = _speeds(step_s, model.chances().tolist())
    chosen = length.next_length(n_max)
    assert speeds[chosen] == pytest.approx(max(speeds), rel=1e-12)
    assert (length.paused is None) == (chosen > 0)
    if length.paused is not None:
        # what is said of a pause: the length that comes nearest
        nearest = 1 + speeds[1:].index(max(speeds[1:]))
        assert length.paused.needed == pytest.approx((step_s[nearest] - 1) / nearest)
        expected = speeds[nearest] * step_s[nearest] - 1
        assert length.paused.measured == pytest.approx(expected / nearest)


def test_cheap_drafts_are_long_and_dear_ones_are_not_made() -> None:
    """At a chance of 0.7 a token that costs 0.1 pays up to the fourth, one that costs 0.8 never."""
    assert AdaptiveLength(_costs([1, 1.01, 1.02, 1.03]), 3).next_length(3) == 3
    # 2.533 / 1.3 = 1.948, 2.773 / 1.4 = 1.981, 2.941 / 1.5 = 1.961 tokens a second
    assert AdaptiveLength(_costs([1, 1.1, 1.2, 1.3, 1.4, 1.5]), 5).next_length(5) == 4

    dear = AdaptiveLength(_costs([1.0, 1.8, 2.6]), 2)
    dear.observe(1, 0, 1)
    assert dear.next_length(2) == 0
    assert dear.paused is not None
    # at length 1: step cost 1.8, so an acceptance of 0.8 is needed; one miss and the prior,
    # which counts as two drafts of 0.7, make (0 + 1.4) / (1 + 2) over all positions, and
    # (0 + 2 * 0.467) / (1 + 2) at the first
    assert dear.paused.needed == pytest.approx(0.8)
    assert dear.paused.measured == pytest.approx(2 * 1.4 / 3 / 3)


def test_an_answer_begins_with_a_look() -> None:
    """Short, even where it would not pay by what is assumed; until something was drafted."""
    length = AdaptiveLength(_costs([1.0, 1.8, 2.6, 3.4]), 3)
    for _ in range(3):
        assert length.next_length(3) == 2
        assert length.paused is None
        length.observe(0, 0, 1)  # the drafter had nothing to propose
    length.observe(2, 0, 1)
    assert length.next_length(3) == 0
    assert length.paused is not None


def test_drafting_counts_as_well_as_verifying() -> None:
    costs = _costs([1.0, 1.01, 1.02])
    costs.observe_draft(1, 0.9)
    length = AdaptiveLength(costs, 2)
    length.observe(2, 1, 2)
    assert length.next_length(2) == 0


@pytest.mark.parametrize("limit", [0, 1, 2, 8])
def test_no_limit_is_exceeded(limit: int) -> None:
    length = AdaptiveLength(_costs([1] * 9), 4)
    assert length.next_length(limit) == min(limit, 4)
    assert AdaptiveLength(StepCosts(), 4).next_length(limit) == min(limit, 4)


# the way back from 0


def _dear() -> AdaptiveLength:
    """A draft of one pays from an acceptance of 0.92 on; the first look has been."""
    length = AdaptiveLength(_costs([1.0, 1.92, 2.84, 3.76]), 3)
    length.observe(2, 1, 2)
    return length


def _plain_steps(length: AdaptiveLength, count: int) -> list[int]:
    lengths = []
    for _ in range(count):
        lengths.append(length.next_length(3))
        if not lengths[-1]:
            length.observe(0, 0, 1)
    return lengths


def test_a_pause_is_probed_every_32_tokens() -> None:
    length = _dear()
    assert _plain_steps(length, 32) == [0] * 32
    assert length.next_length(3) == 2
    # a probe is no end of the pause
    assert length.paused is not None
    length.observe(2, 1, 2)
    assert _plain_steps(length, 32) == [0] * 32
    assert length.next_length(3) == 2


def test_a_probe_keeps_to_the_limit() -> None:
    length = _dear()
    _plain_steps(length, 32)
    assert length.next_length(1) == 1
    assert length.next_length(0) == 0


def test_a_probe_that_stands_whole_is_followed_by_another() -> None:
    length = _dear()
    _plain_steps(length, 32)
    num_probes = 0
    while length.paused is not None:
        assert length.next_length(3) > 0
        length.observe(2, 2, 3)
        num_probes += 1
        assert num_probes < 20
        length.next_length(3)
    # the text has become predictable: drafts pay again
    assert num_probes > 1
    assert length.next_length(3) > 0


def test_where_not_even_perfect_drafts_pay_a_probe_is_not_followed_up() -> None:
    length = AdaptiveLength(_costs([1.0, 2.1, 3.2]), 2)
    length.observe(2, 1, 2)
    _plain_steps(length, 32)
    assert length.next_length(3) == 2
    length.observe(2, 2, 3)
    assert length.next_length(3) == 0


# chains


def test_drafts_that_only_seem_to_pay_end_soon() -> None:
    """Measured beside other work a plain step took as long as one of four rows; it does not."""
    costs = _costs([0.2, 0.2, 0.2, 0.2])
    length = ChainLength(costs, {"poor": 3})
    real_s = [0.008, 0.016, 0.020, 0.024]
    drafted = 0
    for _ in range(60):
        count = length.next_length(3)
        drafted += count > 0
        costs.observe_verify(count + 1, real_s[count])
        length.observe(count, 0, 1, "poor" if count else "")
    assert drafted <= 20
    assert length.paused is not None


def test_drafts_that_pay_are_interrupted_seldom() -> None:
    length = ChainLength(_costs([1.0, 1.01, 1.02, 1.03]), {"good": 3})
    plain = []
    for step in range(200):
        count = length.next_length(3)
        if not count:
            plain.append(step)
        length.observe(count, count, count + 1, "good" if count else "")
    # after 8 steps with drafts, then 16, then every 32
    assert plain == [8, 25, 58, 91, 124, 157, 190]


def test_each_drafter_of_a_chain_has_its_own_length() -> None:
    length = ChainLength(_costs([1.0, 1.8, 2.6, 3.4]), {"right": 3, "wrong": 3})
    for _ in range(12):
        length.next_length(3)
        length.observe(2, 2, 3, "right")
        length.next_length(3)
        length.observe(2, 0, 1, "wrong")
    length.observe(0, 0, 1)  # no plain step is due
    assert length.next_length(3) > 0
    assert length.by_drafter["right"] > 0
    assert length.by_drafter["wrong"] == 0
