"""Ratios of paired speeds and the verdict, on made-up samples."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from outrider.cli.bench.ratio import SMALLEST, Noise, Ratio, Verdict, ratio_of

F64 = NDArray[np.float64]


def pairs(rng: np.random.Generator, count: int, factor: float) -> tuple[list[F64], F64]:
    """Speeds of A, A again and B: B is ``factor`` times as fast on a moody machine.

    The mood is common to the three; each answer has noise of its own, some of it much more, as
    was seen on a machine with other work.
    """
    mood = np.exp(0.3 * rng.standard_normal(count))
    own = np.where(rng.random((3, count)) < 0.2, 0.2, 0.05) * rng.standard_normal((3, count))
    speeds = 100 * mood * np.exp(own)
    return [speeds[0], speeds[1]], factor * speeds[2]


def verdict(rng: np.random.Generator, factor: float) -> Verdict:
    (a, again), b = pairs(rng, 96, factor)
    return Noise.of(ratio_of(list(a), list(again))).verdict(ratio_of(list(a), list(b)))


def test_moods_of_the_machine_cancel() -> None:
    ours = [100.0, 20.0, 310.0, 55.0, 90.0]
    made = ratio_of(ours, [1.3 * one for one in ours])
    assert [made.value, made.low, made.high] == pytest.approx([1.3] * 3)
    assert made.num_pairs == 5


def test_the_interval_is_that_of_a_median() -> None:
    """The binomial law gives it too: between the 36th and the 61st of 96 sorted ratios."""
    rng = np.random.default_rng(5)
    ratios = np.sort(np.exp(rng.standard_normal(96)))
    made = ratio_of([1.0] * 96, list(rng.permutation(ratios)))
    assert made.value == pytest.approx(np.sqrt(ratios[47] * ratios[48]))
    assert ratios[33] <= made.low <= ratios[38]
    assert ratios[57] <= made.high <= ratios[62]


def test_the_other_way_round_is_the_inverse() -> None:
    rng = np.random.default_rng(6)
    (a, _), b = pairs(rng, 40, 1.2)
    there, back = ratio_of(list(a), list(b)), ratio_of(list(b), list(a))
    assert [back.value, back.low, back.high] == pytest.approx(
        [1 / there.value, 1 / there.high, 1 / there.low]
    )


def test_the_same_samples_give_the_same_interval() -> None:
    (a, again), _ = pairs(np.random.default_rng(7), 40, 1.0)
    assert ratio_of(list(a), list(again)) == ratio_of(list(a), list(again))


def test_no_winner_between_equals() -> None:
    rng = np.random.default_rng(8)
    verdicts = [verdict(rng, 1.0) for _ in range(40)]
    assert verdicts.count("not distinguishable") >= 38


def test_a_tenth_slower_is_named() -> None:
    rng = np.random.default_rng(9)
    verdicts = [verdict(rng, 1 / 1.1) for _ in range(40)]
    assert verdicts.count("slower") >= 36


@pytest.mark.parametrize(
    ("itself", "low", "high"),
    [
        ((0.99, 0.96, 1.02), 0.96, 1 / 0.96),
        ((1.01, 0.99, 1.05), 1 / 1.05, 1.05),
        ((1.0, 0.999, 1.001), 1 / (1 + SMALLEST), 1 + SMALLEST),
        ((1.04, 1.02, 1.06), 1 / 1.06, 1.06),
    ],
)
def test_noise_reaches_as_far_to_both_sides(
    itself: tuple[float, float, float], low: float, high: float
) -> None:
    noise = Noise.of(Ratio(*itself, 96))
    assert (noise.low, noise.high) == pytest.approx((low, high))


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        ((1.06, 1.02, 1.10), "faster"),
        ((1.06, 1.01, 1.10), "not distinguishable"),  # clear of 1, but by less than two loads
        ((1.04, 1.02, 1.10), "not distinguishable"),  # inside the noise
        ((0.94, 0.90, 0.97), "slower"),
        ((0.94, 0.90, 1.00), "not distinguishable"),
        ((0.96, 0.95, 0.97), "not distinguishable"),
    ],
)
def test_a_winner_is_outside_the_noise_and_clear_of_one(
    ratio: tuple[float, float, float], expected: Verdict
) -> None:
    assert Noise(0.95, 1.05).verdict(Ratio(*ratio, 96)) == expected
