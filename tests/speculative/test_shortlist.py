"""What a chain has left of a row: narrowing and changing it, worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from outrider.speculative.errors import EngineError
from outrider.speculative.shortlist import LogitBias, Ranked, Unranked

ROW = np.log(np.array([1, 4, 1, 2]) / 8).astype(np.float32)


def _pairs(candidates: Ranked | Unranked) -> dict[int, float]:
    law = candidates.law()
    return dict(zip(law.token_ids.tolist(), law.probs.round(6).tolist(), strict=True))


def test_candidates_are_narrowed_by_number_and_by_logit() -> None:
    whole = Unranked.of(ROW)
    assert _pairs(whole) == {0: 0.125, 1: 0.5, 2: 0.125, 3: 0.25}
    ranked = whole.head(3)
    assert ranked.token_ids.tolist() == [1, 3, 0]
    floor = math.log(0.2)
    third = round(1 / 3, 6), round(2 / 3, 6)
    assert _pairs(whole.at_least(floor)) == {1: third[1], 3: third[0]}
    assert _pairs(ranked.at_least(floor)) == {1: third[1], 3: third[0]}
    assert _pairs(ranked.tail(1)) == {3: third[1], 0: third[0]}
    assert _pairs(ranked.at(np.array([0, 2]))) == {1: 0.8, 0: 0.2}
    assert _pairs(whole.at(np.array([0, 1]))) == {1: 0.8, 0: 0.2}
    assert _pairs(whole.heated(0.5).head(2)) == {1: 0.8, 3: 0.2}
    assert [ranked.size, ranked.tail(1).size, ranked.head(2).size] == [3, 2, 2]


def test_masked_tokens_keep_their_place_in_the_size_alone() -> None:
    row = np.full(100, -np.inf, np.float32)
    row[[5, 9]] = 1.0, 2.0
    head = Unranked.of(row).head(40)
    assert (head.token_ids.tolist(), head.size) == ([9, 5], 40)


def test_logits_change_after_the_temperature_and_more_than_once() -> None:
    candidates = Unranked.of(ROW).heated(0.5)
    for tokens, logits in ([1, 3], [0.5, 1.5]), ([0, 3], [2.5, -1.5]):
        found, places = candidates.find(np.array([*tokens, 77]))
        assert np.arange(3)[found].tolist() == [0, 1]
        candidates = candidates.with_logits(places, np.array(logits))
    expected = [2.5, 0.5, 2 * math.log(1 / 8), -1.5]
    np.testing.assert_allclose(candidates.logits_at(np.arange(4)), expected, rtol=1e-6)
    np.testing.assert_allclose(candidates.values() / 0.5, expected, rtol=1e-6)
    assert candidates.head(4).token_ids.tolist() == [0, 1, 3, 2]
    # the same in a list
    ranked = Unranked.of(ROW).head(3)
    listed = ranked.by_id()
    found, places = listed.find(np.array([1, 2, 3]))
    assert (np.arange(3)[found].tolist(), places.tolist()) == ([0, 2], [1, 2])
    changed = listed.with_logits(places, np.array([-9.0, 9.0]))
    assert changed.head(3).token_ids.tolist() == [3, 0, 1]
    assert ranked.token_ids.tolist() == [1, 3, 0]


def test_bias_beyond_the_row_is_left_out() -> None:
    bias = LogitBias({2: 1.0, 99: 5.0})
    assert len(bias) == 2
    assert bias.candidates(ROW).head(1).token_ids.tolist() == [1]
    assert LogitBias({0: 9.0}).candidates(ROW).head(1).token_ids.tolist() == [0]


@pytest.mark.parametrize("bad", [np.nan, -np.inf, np.inf])
def test_a_row_that_nothing_can_be_drawn_from_is_refused(bad: float) -> None:
    row = np.full(200, bad, np.float32)
    for candidates in (Unranked.of(row), LogitBias({3: -1.0}).candidates(row)):
        with pytest.raises(EngineError, match="no usable logits"):
            candidates.head(7)
        with pytest.raises(EngineError, match="no usable logits"):
            candidates.law()
