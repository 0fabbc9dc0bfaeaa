"""What a draft takes: lines that are known."""

from __future__ import annotations

import pytest

from outrider.speculative.draft_time import DraftTime


def _observed(*drafts: tuple[int, float]) -> DraftTime:
    times = DraftTime()
    for num_tokens, seconds in drafts:
        times.observe(num_tokens, seconds)
    return times


def test_nothing_is_known_at_first() -> None:
    assert DraftTime().token_s is None
    assert DraftTime().seconds(2).tolist() == [0, 0, 0]


def test_drafts_of_one_length_give_a_price_a_token() -> None:
    assert _observed(*[(4, 0.8)] * 5).seconds(4) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8])


def test_a_fixed_part_is_found() -> None:
    """Half a second, and a tenth for each token."""
    times = _observed(*[(k, 0.5 + 0.1 * k) for k in (1, 3, 2, 5, 1, 4)] * 3)
    assert times.seconds(6)[1:] == pytest.approx([0.6, 0.7, 0.8, 0.9, 1.0, 1.1])
    assert times.token_s == pytest.approx(0.1)


def test_a_block_in_one_pass_is_nearly_all_fixed() -> None:
    times = _observed(*[(k, 1.0) for k in (1, 8, 4, 2)] * 5)
    assert times.seconds(8)[1:] == pytest.approx([1.0] * 8)


def test_no_token_has_a_negative_price() -> None:
    """Longer drafts that happened to be quicker."""
    times = _observed(*[(1, 2.0), (8, 1.0)] * 5)
    assert times.token_s == 0
    assert times.seconds(8)[8] == pytest.approx(1.5, rel=0.1)


def test_the_first_draft_counts_little() -> None:
    """It allocates."""
    times = _observed((1, 10.0), *[(1, 1.0)] * 10)
    assert times.seconds(1)[1] == pytest.approx(1.0, rel=0.12)


def test_a_wild_time_counts_as_twice_the_known_one() -> None:
    calm = _observed(*[(2, 1.0)] * 40)
    calm.observe(2, 1000.0)
    assert calm.seconds(2)[2] < 1.06


def test_a_lasting_change_is_followed() -> None:
    times = _observed(*[(2, 1.0)] * 40, *[(2, 3.0)] * 100)
    assert times.seconds(2)[2] == pytest.approx(3.0, rel=0.02)


def test_a_draft_after_a_pause_has_a_price_of_its_own() -> None:
    times = _observed((2, 1.0))
    times.observe_look(5.0)
    times.observe_look(7.0)
    assert times.look_s == 6.0
