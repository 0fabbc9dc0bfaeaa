"""Chances by position and by confidence: worked by hand."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.properties import PROPERTY

from outrider.speculative.acceptance import AcceptanceModel


def test_a_chance_is_assumed_before_anything_is_known() -> None:
    assert AcceptanceModel(3).chances() == pytest.approx([0.7] * 3)
    assert not AcceptanceModel(3).is_tested


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
    sure = np.linspace(0.1, 0.9, 8)
    for drafted, accepted in drafts:
        accepted = min(drafted, accepted)
        short.observe(drafted, accepted, sure)
        long.observe(drafted if accepted == drafted else 8, accepted, sure)
    assert short.chances().tolist() == long.chances().tolist()
    assert short.chances_of(sure).tolist() == long.chances_of(sure).tolist()


def test_a_draft_that_stood_whole_says_at_least() -> None:
    """Nothing is held against what would have come after it."""
    model = AcceptanceModel(8)
    for _ in range(50):
        model.observe(2, 2)
    assert model.chances().min() > 0.95


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


def test_another_text_halves_what_is_known() -> None:
    """By position; what the word of a drafter is worth stays."""
    model = AcceptanceModel(1)
    model.observe(1, 0, np.array([0.6]))
    before = model.chances_of(np.array([0.6, 0.9])).tolist()
    model.begin_answer()
    assert model.chances_of(np.array([0.6, 0.9])).tolist() == before
    overall = (0 + 1.4) / (0.5 + 2)
    assert model.chances() == pytest.approx([2 * overall / 2.5])


def test_beside_others_as_many_answers_halve_it_as_there_are_slots() -> None:
    alone, beside = AcceptanceModel(1), AcceptanceModel(1)
    for model in (alone, beside):
        model.observe(1, 0)
        model.num_in_vain = 40
    alone.begin_answer()
    for _ in range(4):
        beside.begin_answer(4)
    assert beside.chances() == pytest.approx(alone.chances())
    assert (alone.num_in_vain, beside.num_in_vain) == (0, 12)  # 30, 22, 16, 12


# confidence


def test_a_drafter_is_believed_at_first() -> None:
    assert AcceptanceModel(1).chances_of(np.array([0.1, 0.6, 0.99])) == pytest.approx(
        [0.1, 0.6, 0.99]
    )


def test_confidence_worked_by_hand() -> None:
    """0.6 and 0.7 lie in one bin (doubt from 1/4 to 1/2), 0.9 in another."""
    model = AcceptanceModel(4)
    model.test(0, True, 0.6)
    model.test(1, False, 0.7)
    # of 0.6 and of the token that stood 0.97 are left when the second comes
    trust = (2 + 0.97) / (2 + 0.97 * 0.6 + 0.7)
    expected = [(0.97 + 2 * trust * 0.6) / (1.97 + 2), trust * 0.9]
    assert model.chances_of(np.array([0.6, 0.9])) == pytest.approx(expected)


def test_one_failure_of_the_surest_is_shared_with_those_that_were_less_sure() -> None:
    """Three of 0.9 (doubt to 1/8) stood, one of 0.99 (to 1/128) fell; 0.6 fell, no news."""
    model = AcceptanceModel(4)
    tests = ((False, 0.6), (True, 0.9), (True, 0.9), (True, 0.9), (False, 0.99))
    for stands, confidence in tests:
        model.test(0, stands, confidence)
    stood, tested = 1 + 0.97 + 0.97**2, 2 + 0.97 + 0.97**2
    kept, claimed = 2.0, 2.0
    for stands, said in tests:
        kept, claimed = 2 + 0.97 * (kept - 2) + stands, 2 + 0.97 * (claimed - 2) + said
    prior = 2 * min(1.0, kept / claimed)
    asked = np.array([0.6, 0.9, 0.95, 0.99])
    pooled = (stood + prior * asked[1:]) / (tested + 2)
    assert model.chances_of(asked) == pytest.approx([prior * 0.6 / 3, *pooled])


@pytest.mark.parametrize(("claim", "truth"), [(0.95, 0.3), (0.55, 0.9), (0.8, 0.8)])
def test_what_is_claimed_is_corrected(claim: float, truth: float) -> None:
    coins, model = random.Random(1), AcceptanceModel(4)
    for _ in range(2000):
        model.observe(1, int(coins.random() < truth), np.array([claim]))
    assert model.chances_of(np.array([claim]))[0] == pytest.approx(truth, abs=0.15)


def test_a_boaster_is_not_believed_where_it_was_not_tested_either() -> None:
    model = AcceptanceModel(4)
    for _ in range(30):
        model.observe(1, 0, np.array([0.6]))
    assert model.chances_of(np.array([0.99]))[0] < 0.4


@pytest.mark.parametrize("confidence", [0.0, 1.0, 1 - 1e-12])
def test_the_ends_of_the_scale_are_no_mistake(confidence: float) -> None:
    model = AcceptanceModel(1)
    model.test(0, True, confidence)
    assert 0 < model.chances_of(np.array([confidence]))[0] <= 1
