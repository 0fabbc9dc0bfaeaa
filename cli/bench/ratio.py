"""Ratio: how many times faster one side is than the other, how sure that is, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.99
SMALLEST = 0.015
"""Two loads of one file may differ by so much for good: their memory lies elsewhere."""

Verdict = Literal["faster", "slower", "not distinguishable"]


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median of the ratios of pairs, and the interval that holds it with 99 %."""

    value: float
    low: float
    high: float
    num_pairs: int


def ratio_of(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """The median of ``theirs`` over ``ours``, value by value, with a bootstrap over the pairs.

    The two values of a pair were measured one after the other, so the moods of the machine
    cancel: on a busy one this interval is half as wide as that of a ratio of two medians.
    """
    assert len(ours) == len(theirs) > 0
    logs = np.log(np.asarray(theirs, np.float64)) - np.log(np.asarray(ours, np.float64))
    return ratio_of_logs(logs)


def ratio_of_logs(
    logs: NDArray[np.float64], *, num_comparisons: int = 1, resamples: int = 4000, seed: int = 1
) -> Ratio:
    """The same of the logarithms of the pairs' ratios [n].

    With several comparisons the level is that of all together.
    """
    picks = np.random.default_rng(seed).integers(len(logs), size=(resamples, len(logs)))
    tail = (1 - LEVEL) / 2 / num_comparisons
    low, high = np.quantile(np.median(logs[picks], axis=1), [tail, 1 - tail])
    value, low, high = np.exp([np.median(logs), low, high])
    return Ratio(float(value), float(low), float(high), len(logs))


@dataclass(frozen=True, slots=True)
class Noise:
    """What a side measured against itself may show: ratios from ``low`` to ``high``."""

    low: float
    high: float

    @classmethod
    def of(cls, itself: Ratio) -> Noise:
        """As far to both sides of 1 as ``itself`` reaches, but at least :data:`SMALLEST`."""
        high = max(itself.high, 1 / itself.low, 1 + SMALLEST)
        return cls(1 / high, high)

    def holds(self, ratio: Ratio) -> bool:
        return self.low <= ratio.value <= self.high

    def verdict(self, ratio: Ratio) -> Verdict:
        """A winner only if the ratio lies outside the noise and its interval clear of 1.

        To ask that both intervals lie apart would count the noise twice: a real tenth was then
        missed in one run of five on a busy machine.
        """
        if self.holds(ratio):
            return "not distinguishable"
        if ratio.low > 1 + SMALLEST:
            return "faster"
        return "slower" if ratio.high < 1 / (1 + SMALLEST) else "not distinguishable"
