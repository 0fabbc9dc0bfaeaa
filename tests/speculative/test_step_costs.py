"""What a step costs, from measured times: worked by hand."""

from __future__ import annotations

import pytest

from outrider.speculative.step_costs import StepCosts


def _costs(verify: dict[int, float], drafts: list[tuple[int, float]] | None = None) -> StepCosts:
    costs = StepCosts()
    for num_rows, seconds in verify.items():
        costs.observe_verify(num_rows, seconds)
    for num_tokens, seconds in drafts or []:
        costs.observe_draft(num_tokens, seconds)
    return costs


def test_nothing_is_known_before_a_measurement() -> None:
    costs = StepCosts()
    costs.observe_draft(3, 0.1)
    assert not costs.is_measured
    costs.observe_verify(1, 0.1)
    assert costs.is_measured


def test_between_measured_row_counts_lies_a_line() -> None:
    """1, 2, 4, 8 rows at 1, 1.2, 2, 4 s: 3 rows 1.6, 5 rows 2.5, 6 rows 3."""
    costs = _costs({8: 4.0, 1: 1.0, 4: 2.0, 2: 1.2})
    assert costs.step_s(7) == pytest.approx([1.0, 1.2, 1.6, 2.0, 2.5, 3.0, 3.5, 4.0])


def test_beyond_the_last_the_slope_goes_on() -> None:
    costs = _costs({1: 1.0, 2: 1.5, 4: 2.0})
    assert costs.step_s(5) == pytest.approx([1.0, 1.5, 1.75, 2.0, 2.25, 2.5])


def test_one_measurement_holds_for_all() -> None:
    assert _costs({1: 0.5}).step_s(3) == pytest.approx([0.5] * 4)


def test_more_rows_never_cost_less() -> None:
    """A lucky measurement of a large batch must not make it look free."""
    costs = _costs({1: 1.0, 2: 3.0, 4: 2.0})
    assert costs.step_s(3) == pytest.approx([1.0, 3.0, 3.0, 3.0])
    assert costs.step_s(6)[6] == pytest.approx(3.0)


def test_drafting_costs_the_median_of_a_token_s_time() -> None:
    costs = _costs({1: 1.0}, [(2, 0.2), (1, 0.5), (4, 1.2)])
    # 0.1, 0.5 and 0.3 s a token
    assert costs.step_s(3) == pytest.approx([1.0, 1.3, 1.6, 1.9])


def test_an_empty_draft_says_nothing_of_a_token_s_time() -> None:
    assert _costs({1: 1.0}, [(0, 9.0), (1, 0.5)]).step_s(1) == pytest.approx([1.0, 1.5])


def test_old_drafts_are_forgotten() -> None:
    costs = _costs({1: 1.0}, [(1, 0.9)] * 40 + [(1, 0.1)] * 20)
    assert costs.step_s(1) == pytest.approx([1.0, 1.1])


def test_new_measurements_move_the_known_time_by_a_fifth() -> None:
    costs = _costs({1: 1.0})
    costs.observe_verify(1, 2.0)
    assert costs.step_s(0) == pytest.approx([1.2])
    costs.observe_verify(1, 0.7)
    assert costs.step_s(0) == pytest.approx([1.1])


def test_an_outlier_counts_three_times_the_known_time_at_most() -> None:
    costs = _costs({1: 1.0})
    costs.observe_verify(1, 100.0)
    assert costs.step_s(0) == pytest.approx([1.4])


def test_a_lasting_change_is_followed() -> None:
    costs = _costs({1: 1.0})
    for _ in range(60):
        costs.observe_verify(1, 5.0)
    assert costs.step_s(0) == pytest.approx([5.0], rel=0.01)


def test_a_far_shorter_time_replaces_one_from_a_busy_moment() -> None:
    costs = StepCosts()
    costs.observe_verify(1, 0.2)
    costs.observe_verify(1, 0.01)
    assert costs.step_s(0)[0] == pytest.approx(0.01)
    costs.observe_verify(1, 0.011)
    assert costs.step_s(0)[0] == pytest.approx(0.01 + 0.2 * 0.001)
