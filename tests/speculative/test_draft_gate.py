"""Where a draft stops: the next token's expected gain against its cost, by brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.properties import PROPERTY

from outrider.speculative.acceptance import AcceptanceModel
from outrider.speculative.draft_gate import DraftGate


def _gate(verify_s: list[float], token_s: float, floor: float, n_max: int = 8) -> DraftGate:
    return DraftGate(len(verify_s) - 1, AcceptanceModel(n_max), np.array(verify_s), token_s, floor)


STEPS = st.lists(st.floats(0.01, 1.0), min_size=1, max_size=8).map(
    lambda extra: [1.0, *(1 + s for s in itertools.accumulate(extra))]
)


@PROPERTY
@given(
    STEPS,
    st.floats(0.5, 2.0),
    st.lists(st.floats(0.0, 1.0), min_size=8, max_size=8),
    st.integers(0, 3),
)
def test_of_a_finished_draft_the_fastest_part_is_verified(
    verify_s: list[float], floor: float, sure: list[float], others: int
) -> None:
    gate = _gate(verify_s, 0.0, floor)
    gate.other_tokens = others
    # nothing is learnt yet: a drafter is believed
    standing = list(itertools.accumulate(sure[: len(verify_s) - 1], lambda a, b: a * b))
    speeds = [(1 + others + sum(standing[:k])) / verify_s[k] for k in range(1, len(standing) + 1)]
    worth = gate.num_worth(8, np.array(sure))
    if worth:
        assert speeds[worth - 1] == pytest.approx(max(speeds))
        assert max(speeds) > floor
    else:
        assert max(speeds) <= floor * (1 + 1e-9)
        best = 1 + speeds.index(max(speeds))
        assert gate.measured == pytest.approx(sum(standing[:best]) / best)
        # at that rate of acceptance the draft would be as fast as the floor
        assert gate.needed is not None
        assert (1 + others + best * gate.needed) / verify_s[best] == pytest.approx(floor)


def test_a_look_is_worth_no_row() -> None:
    gate = _gate([1.0, 1.01, 1.02], 0.0, 1.0)
    gate.is_look = True
    assert gate.num_worth(2) == 0
    assert gate.length is None
    assert gate.admits(0.0)
    assert gate.goes_on


@PROPERTY
@given(
    STEPS,
    st.floats(0.0, 0.5),
    st.floats(0.5, 2.0),
    st.lists(st.floats(0.0, 1.0), min_size=8, max_size=8),
)
def test_a_draft_goes_on_while_that_pays(
    verify_s: list[float], token_s: float, floor: float, sure: list[float]
) -> None:
    """Against all ways to go on: later tokens stand with the chance of 0.7 each."""
    gate, most = _gate(verify_s, token_s, floor), len(verify_s) - 1
    standing = 1.0

    def best_gain(chance: float, taken: int, drafted: int) -> float:
        """The most that going on brings, in tokens; the next of which are ``drafted``."""
        gains = []
        for count in range(1, most - taken + 1):
            stand = [standing * chance * 0.7**i for i in range(count)]
            seconds = verify_s[taken + count] - verify_s[taken] + token_s * (count - drafted)
            gains.append(sum(stand) - floor * seconds)
        return max(gains)

    for taken in range(most):
        gain = best_gain(sure[taken], taken, drafted=1)
        if abs(gain) < 1e-9:
            return
        assert gate.admits(sure[taken]) == (gain > 0)
        if gain <= 0:
            return
        standing *= sure[taken]
        if taken + 1 == most:
            assert not gate.goes_on
            return
        further = best_gain(0.7, taken + 1, drafted=0)
        if abs(further) < 1e-9:
            return
        assert gate.goes_on == (further > 0)
        if further <= 0:
            return


def test_a_step_of_the_curve_is_looked_across() -> None:
    """The second row alone does not pay, but the third and fourth are nearly free."""
    gate = _gate([1.0, 1.9, 1.91, 1.92], 0.0, 1.0)
    assert gate.num_worth(3, np.full(3, 0.8)) == 3
    assert gate.admits(0.8)
    assert not _gate([1.0, 1.9], 0.0, 1.0).admits(0.8)


def test_without_a_word_of_the_drafter_its_streak_counts() -> None:
    """Rows at 0.6: the first two tokens of nobody are 1/2 and 3/4 sure, after eight right ones
    17/18 and 19/20."""
    gate = _gate([1.0, 1.6, 2.2], 0.0, 1.0)
    assert gate.num_worth(2) == 0
    assert gate.measured == pytest.approx(1 / 2)
    gate.streak = 8
    assert gate.num_worth(2) == 2
