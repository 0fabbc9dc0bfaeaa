"""Synthetic acceptance: llama.cpp's refusals and worked values, and what the coins give."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.properties import PROPERTY

from outrider.speculative.distribution import Distribution
from outrider.speculative.errors import InputError
from outrider.speculative.proposal import Proposal, Verdict
from outrider.speculative.synthetic import acceptance_chances
from outrider.speculative.uniforms import Coins, Uniforms
from outrider.speculative.verifier import verify

DRAFT = Proposal((1, 2, 3))
OWN = Distribution(np.array([7, 8]), np.array([0.5, 0.5]))


@pytest.mark.parametrize(
    ("rates", "length", "message"),
    [
        ([0.5, 0.5, 0.5], 2.0, "give one of --spec-synth-rates and --spec-synth-len"),
        (None, None, "give one of --spec-synth-rates and --spec-synth-len"),
        ([0.5, 0.5], None, "2 values, needs one for each of 3 draft tokens"),
        ([0.5] * 4, None, "4 values, needs one for each of 3 draft tokens"),
        ([0.5, math.nan, 0.1], None, "0.5,nan,0.1: each must be from 0 to 1"),
        ([math.inf, 0.5, 0.1], None, "each must be from 0 to 1"),
        ([1.01, 0.5, 0.1], None, "1.01,0.5,0.1: each must be from 0 to 1"),
        ([0.5, 0.1, -0.1], None, "each must be from 0 to 1"),
        ([0.5, 0.6, 0.1], None, "0.5,0.6,0.1: must not increase"),
        (None, 0.99, "--spec-synth-len 0.99: allowed 1 to 4 with n_max 3"),
        (None, 4.01, "--spec-synth-len 4.01: allowed 1 to 4 with n_max 3"),
        (None, -1.0, "allowed 1 to 4"),
        (None, math.nan, "--spec-synth-len nan: allowed 1 to 4"),
        (None, math.inf, "allowed 1 to 4"),
    ],
)
def test_refusals(rates: Sequence[float] | None, length: float | None, message: str) -> None:
    with pytest.raises(InputError) as refusal:
        acceptance_chances(3, rates, length)
    assert message in str(refusal.value)


def test_length_worked_by_hand() -> None:
    """K = 3, L = 2.5: p + p^2 + p^3 = 1.5 at p = 0.69141."""
    chances = acceptance_chances(3, None, 2.5)
    assert chances == pytest.approx([0.69141] * 3, abs=5e-6)
    rates = np.cumprod(chances)
    assert rates.round(4).tolist() == [0.6914, 0.4781, 0.3305]


def test_the_shortest_and_the_longest_length_are_exact() -> None:
    assert acceptance_chances(3, None, 1) == (0.0, 0.0, 0.0)
    assert acceptance_chances(3, None, 4) == (1.0, 1.0, 1.0)
    assert acceptance_chances(1, None, 1.25) == pytest.approx([0.25], abs=1e-9)


@PROPERTY
@given(st.integers(1, 12), st.floats(0, 1))
def test_length_is_one_plus_the_sum_of_the_rates(n_max: int, share: float) -> None:
    length = 1 + share * n_max
    chances = acceptance_chances(n_max, None, length)
    assert len(set(chances)) == 1
    assert 1 + np.cumprod(chances).sum() == pytest.approx(length, abs=1e-6)


def test_rates_are_of_whole_beginnings() -> None:
    """Entry i is the chance that 0..i all stand: the coin of i is the ratio to the one before."""
    chances = acceptance_chances(3, [0.9, 0.45, 0.3], None)
    assert chances == pytest.approx([0.9, 0.5, 2 / 3], abs=1e-15)
    assert acceptance_chances(3, [0.5, 0.0, 0.0], None) == (0.5, 0.0, 0.0)
    assert acceptance_chances(2, [1, 1], None) == (1.0, 1.0)


def _verdicts(chances: Sequence[float], count: int, seed: int) -> list[Verdict]:
    uniforms = Uniforms(seed)
    return [
        verify(
            DRAFT,
            lambda _position: OWN,
            Coins(uniforms, 4 * step),
            "synthetic",
            lambda _token: False,
            chances,
        )
        for step in range(count)
    ]


@pytest.mark.parametrize("rates", [[0.9, 0.45, 0.3], [0.6914, 0.4781, 0.3305], [0.2, 0.2, 0.0]])
def test_measured_mean_length_is_the_stated_one(rates: list[float]) -> None:
    """Within three sigma; E[N^2] = sum of (2i - 1) times the chance of at least i."""
    count = 20_000
    verdicts = _verdicts(acceptance_chances(3, rates, None), count, seed=1)
    lengths = [verdict.num_accepted + 1 for verdict in verdicts]
    mean = sum(rates)
    variance = sum((2 * i - 1) * rate for i, rate in enumerate(rates, start=1)) - mean**2
    error = np.mean(lengths) - (1 + mean)
    assert abs(error) < 3 * math.sqrt(variance / count)
    for i, rate in enumerate(rates, start=1):
        stood = np.mean([verdict.num_accepted >= i for verdict in verdicts])
        assert abs(stood - rate) <= 4 * math.sqrt(rate * (1 - rate) / count)


def test_the_target_draws_the_token_that_is_not_drafted() -> None:
    """By its own stream: what the coins say tells nothing about it."""
    verdicts = _verdicts((0.5, 0.5, 0.5), 8000, seed=2)
    for kind in ("recovered", "bonus"):
        own = [verdict.next_token for verdict in verdicts if verdict.next_kind == kind]
        assert set(own) == {7, 8}
        assert abs(own.count(7) / len(own) - 0.5) < 4 * 0.5 / math.sqrt(len(own))


def test_certain_coins() -> None:
    [verdict] = _verdicts((1.0, 1.0, 1.0), 1, seed=3)
    assert (verdict.num_accepted, verdict.next_kind) == (3, "bonus")
    [verdict] = _verdicts((1.0, 0.0, 1.0), 1, seed=3)
    assert (verdict.num_accepted, verdict.next_kind) == (1, "recovered")
    # a draft longer than the coins
    [verdict] = _verdicts((1.0, 1.0), 1, seed=3)
    assert (verdict.num_accepted, verdict.next_kind) == (2, "recovered")


def test_a_drafted_end_token_never_stands() -> None:
    verdict = verify(
        DRAFT,
        lambda _position: OWN,
        Coins(Uniforms(0), 0),
        "synthetic",
        lambda token: token == 2,
        (1.0, 1.0, 1.0),
    )
    assert verdict.num_accepted == 1
    assert verdict.next_token in {7, 8}
