"""What a step costs, from measured times: worked by hand."""

from __future__ import annotations

import random

import numpy as np
import pytest

from outrider.speculative.step_costs import CPU_CURVE, StatedCosts, StepCosts

LINE = {1: 1.0, 1001: 1001.0}  # each row as dear as the first


def _costs(verify: dict[int, float], assumed: dict[int, float] | None = None) -> StepCosts:
    costs = StepCosts(LINE if assumed is None else assumed)
    costs.calibrate(verify)
    return costs


def test_nothing_is_known_before_a_measurement() -> None:
    costs = StepCosts()
    costs.observe_draft(3, 0.1)
    assert not costs.is_measured
    costs.observe_verify(1, 0.1)
    assert costs.is_measured


def test_what_was_not_measured_is_the_assumed_curve_to_scale() -> None:
    costs = _costs({1: 0.02}, CPU_CURVE)
    assert costs.verify_s(3)[[0, 1, 3]] == pytest.approx([0.02, 0.034, 0.05])


def test_between_two_row_counts_the_scale_is_a_mixture() -> None:
    """2 rows at 0.6 of the line, 6 at 0.5: 4 rows at 0.55, 3 at 0.575; beyond 6 rows 0.5."""
    costs = _costs({1: 1.0, 2: 1.2, 6: 3.0})
    assert costs.verify_s(7) == pytest.approx([1, 1.2, 1.725, 2.2, 2.625, 3, 3.5, 4])


def test_fewer_rows_never_cost_more() -> None:
    """Two rows were timed beside a neighbour."""
    costs = _costs({1: 1.0, 2: 3.0, 4: 2.0})
    assert costs.verify_s(3) == pytest.approx([1, 2, 2, 2])


def test_many_rows_read_the_cache_together() -> None:
    costs = StepCosts({1: 1.0, 100: 1.0}, cell_cost=0.01)
    costs.calibrate({1: 1.0})
    seconds = costs.verify_s(63, num_cells=10)
    assert seconds[[0, 62, 63]] == pytest.approx([1.1, 1 + 6.3, 1 + 0.55 * 6.4])


def test_drafting_is_added() -> None:
    costs = _costs({1: 1.0, 4: 1.3}, {1: 1.0, 101: 11.0})
    costs.observe_draft(2, 0.2, "a")
    assert costs.step_s(3, "a") == pytest.approx([1, 1.2, 1.4, 1.6])
    assert costs.step_s(3, "b") == pytest.approx([1, 1.1, 1.2, 1.3])
    assert costs.token_s("a") == pytest.approx(0.1)
    assert costs.token_s("b") is None


def test_rows_of_others_are_in_the_same_batch() -> None:
    costs = _costs({1: 1.0, 2: 1.2, 3: 1.3, 4: 1.7, 5: 2.5})
    assert costs.verify_s(2, other_rows=2) == pytest.approx([1.3, 1.7, 2.5])


# learning


def test_a_slow_moment_is_the_machine_s_and_not_the_curve_s() -> None:
    """Everything three times slower, but only drafts are made: they do not look dearer."""
    costs = _costs({1: 1.0, 4: 2.5})
    for _ in range(100):
        costs.observe_verify(4, 7.5)
    assert costs.pace == pytest.approx(3, rel=0.35)
    assert costs.verify_s(3)[3] == pytest.approx(2.5, rel=0.35)
    for _ in range(100):
        costs.observe_verify(1, 3.0)
        costs.observe_verify(4, 7.5)
    relative = costs.verify_s(3) / costs.verify_s(3)[0]
    assert relative[3] == pytest.approx(2.5, rel=0.05)


def test_a_wrong_curve_is_mended() -> None:
    """A calibration beside other work said that four rows cost as much as one."""
    costs = _costs({1: 1.0, 4: 1.0})
    for _ in range(200):
        costs.observe_verify(1, 1.0)
        costs.observe_verify(4, 2.5)
    relative = costs.verify_s(3) / costs.verify_s(3)[0]
    assert relative[3] == pytest.approx(2.5, rel=0.1)


def test_a_row_count_never_timed_before_is_learnt_at_once() -> None:
    """A knee of the curve: five rows are no dearer than four."""
    costs = _costs({1: 1.0, 4: 2.0, 8: 4.0})
    assert costs.verify_s(4)[4] == pytest.approx(2.5)
    for _ in range(10):
        costs.observe_verify(1, 1.0)
        costs.observe_verify(5, 2.0)
        costs.observe_verify(4, 2.0)
    relative = costs.verify_s(4) / costs.verify_s(4)[0]
    assert relative[4] == pytest.approx(2.0, rel=0.1)


def test_one_wild_time_counts_as_twice_the_expected_one() -> None:
    costs = _costs({1: 1.0})
    costs.observe_verify(1, 1000.0)
    assert costs.pace == pytest.approx(2**0.2)
    assert costs.verify_s(0) == pytest.approx([2 ** (1 / 21)])


def test_drafts_and_decodes_are_slowed_by_the_same_neighbour() -> None:
    costs = _costs({1: 1.0})
    for _ in range(60):
        costs.observe_verify(1, 2.0)
    for _ in range(60):
        costs.observe_draft(1, 1.0)
    relative = costs.step_s(1) / costs.verify_s(1)[0]
    assert relative[1] == pytest.approx(2 + 0.5, rel=0.05)


def test_the_cost_of_the_cache_is_learnt() -> None:
    """A truth of 1 + 1.5 n seconds and a cell cost twice that assumed, with noise."""
    noise, costs = random.Random(3), StepCosts(LINE, cell_cost=0.0005)
    costs.calibrate({1: 2.5, 4: 7.0})
    for step in range(3000):
        rows, cells = noise.choice((1, 1, 4)), step % 2000
        seconds = 1 + 1.5 * rows + 0.001 * 2.5 * rows * cells
        costs.observe_verify(rows, seconds * noise.uniform(0.95, 1.2), cells)
    far = costs.verify_s(3, num_cells=2000)
    # at 2,000 cells: 2.5 + 5 and 7 + 20
    assert far[3] / far[0] == pytest.approx(27 / 7.5, rel=0.1)
    near = costs.verify_s(3, num_cells=0)
    assert near[3] / near[0] == pytest.approx(7 / 2.5, rel=0.1)


def test_the_host_takes_its_time_whatever_the_length() -> None:
    costs = _costs({1: 1.0})
    costs.observe_host(0.5)
    assert costs.verify_s(1) == pytest.approx([1.5, 2.5])


def test_the_first_step_of_other_rows_takes_longer() -> None:
    costs = _costs({1: 1.0, 2: 1.5})
    for _ in range(200):
        costs.observe_switch(1, 1.2)
    assert costs.switch_s == pytest.approx(0.2)
    assert costs.verify_s(1) == pytest.approx([1.0, 1.5])  # no step takes it by itself
    assert costs.plain_s(0) == pytest.approx(1.0, abs=0.01)  # nor is it part of a plain one
    costs.observe_switch(1, 50.0)
    assert costs.switch_s == pytest.approx(0.2 + 0.1 * (0.5 - 0.2))  # half a step at most


# stated and kept


def test_stated_costs_hear_no_clock() -> None:
    costs = StatedCosts({1: 1.0, 11: 3.0}, {"a": 0.25})
    before = costs.step_s(5, "a", num_cells=100).tolist()
    assert before == pytest.approx([1 + 0.2 * k + 0.25 * k for k in range(6)])
    costs.observe_verify(1, 9.0)
    costs.observe_draft(1, 9.0, "a")
    costs.observe_look(9.0, "a")
    costs.observe_host(9.0)
    costs.observe_switch(1, 9.0)
    assert costs.step_s(5, "a", num_cells=100).tolist() == before
    assert costs.switch_s == 0.0
    assert costs.look_s(2, "a") == 0.5


def test_what_is_kept_comes_back() -> None:
    costs = _costs({1: 1.0, 2: 1.5, 8: 4.0})
    costs.observe_verify(2, 1.6, 10)
    costs.observe_host(0.2)
    for tokens, seconds in ((1, 0.3), (2, 0.5), (4, 0.9), (3, 0.7)):
        costs.observe_draft(tokens, seconds, "a")
    costs.observe_look(2.0, "a")
    costs.observe_switch(1, 1.5)
    again = StepCosts(LINE)
    again.restore(costs.as_json())
    assert again.step_s(9, "a") == pytest.approx(costs.step_s(9, "a"))
    assert again.look_s(2, "a") == pytest.approx(2.0 / costs.pace)
    assert again.switch_s == costs.switch_s > 0


def test_a_single_time_of_drafting_is_not_kept() -> None:
    """It may be the guess that stands in where nothing could be timed."""
    costs = _costs({1: 1.0})
    costs.observe_draft(1, 0.1, "a")
    costs.observe_look(2.0, "a")
    again = StepCosts(LINE)
    again.restore(costs.as_json())
    assert again.token_s("a") is None
    assert again.look_s(2, "a") == 2.0


@pytest.mark.parametrize(
    "saved",
    [
        {},
        {"verify_s": 3, "cell_cost": 0, "host_s": 0, "drafters": {}},
        {"verify_s": {"2": 1.0}, "cell_cost": 0, "host_s": 0, "drafters": {}},
        {"verify_s": {"1": -1.0}, "cell_cost": 0, "host_s": 0, "drafters": {}},
        {"verify_s": {"1": "x"}, "cell_cost": 0, "host_s": 0, "drafters": {}},
        {"verify_s": {"1": 1.0}, "cell_cost": 7, "host_s": 0, "drafters": {}},
        {"verify_s": {"1": 1.0}, "cell_cost": 0, "host_s": 0, "drafters": {"a": [1]}},
        {"verify_s": {"1": 1.0}, "cell_cost": 0, "host_s": 0, "drafters": {"a": [-1, 0, 0]}},
    ],
)
def test_what_is_no_cost_is_refused(saved: dict[str, object]) -> None:
    costs = _costs({1: 3.0})
    with pytest.raises((ValueError, TypeError, KeyError, AttributeError)):
        costs.restore(saved)
    assert costs.verify_s(0) == pytest.approx([3.0])


def test_a_long_table_is_as_right_as_a_short_one() -> None:
    costs = _costs({1: 1.0, 4: 2.0, 16: 6.0})
    long = costs.verify_s(63).copy()
    assert np.array_equal(costs.verify_s(3), long[:4])
    fresh = _costs({1: 1.0, 4: 2.0, 16: 6.0})
    assert np.array_equal(fresh.verify_s(3), long[:4])
    assert np.array_equal(fresh.verify_s(63), long)


def test_a_plain_step_is_the_median_of_eight_or_more_near_this_length() -> None:
    costs = _costs({1: 1.0, 2: 1.5})
    for number in range(7):
        costs.observe_verify(1, 1.0 + number, 5000)
        costs.observe_verify(2, 9.0, 5000)  # no plain step
        costs.observe_verify(1, 100.0, 100)  # not near
    assert costs.plain_s(5000) is None
    costs.observe_verify(1, 1.0, 6200)  # within a quarter
    assert costs.plain_s(5000) == pytest.approx(3.5)
    costs.observe_host(0.25)
    assert costs.plain_s(5000) == pytest.approx(3.5 + 0.25)
    assert costs.plain_s(612) is None
    costs.observe_verify(1, 100.0, 100)
    assert costs.plain_s(612) == pytest.approx(100.0, rel=0.01)  # within 512 cells


def test_old_plain_steps_are_forgotten() -> None:
    costs = _costs({1: 1.0})
    for seconds in [9.0] * 40 + [1.0] * 64:
        costs.observe_verify(1, seconds)
    assert costs.plain_s(0) == pytest.approx(1.0)


def test_plain_steps_outlive_another_way_of_drafting() -> None:
    before, costs = _costs({1: 1.0}), _costs({1: 1.0})
    for _ in range(8):
        before.observe_verify(1, 2.0, 30)
    costs.take_plain_steps(before)
    assert costs.plain_s(30) == pytest.approx(2.0)
