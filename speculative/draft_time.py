"""DraftTime: what a drafter takes for a draft, as a line over its tokens."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]

_DECAY = 0.95  # of old drafts, per draft
_OUTLIER = 2.0
_FIRST_WEIGHT = 0.1  # the first draft allocates


class DraftTime:
    """Seconds of a draft of k tokens: a fixed part and one for each token.

    A line by decayed least squares: drafters that make a block in one pass have nearly all of
    it in the fixed part. While all drafts had one length, the whole time is taken to grow with
    it.
    """

    def __init__(self) -> None:
        self.look_s = 0.0
        """Seconds of a draft after a pause, reading up included."""
        self._weight = self._tokens = self._squares = self._seconds = self._products = 0.0

    def observe(self, num_tokens: int, seconds: float) -> None:
        weight = 1.0
        if self._weight == 0:
            weight = _FIRST_WEIGHT
        elif self._weight >= 1:
            seconds = min(seconds, _OUTLIER * self._line(num_tokens))
        self._weight = _DECAY * self._weight + weight
        self._tokens = _DECAY * self._tokens + weight * num_tokens
        self._squares = _DECAY * self._squares + weight * num_tokens**2
        self._seconds = _DECAY * self._seconds + weight * seconds
        self._products = _DECAY * self._products + weight * num_tokens * seconds

    def observe_look(self, seconds: float) -> None:
        self.look_s = (self.look_s + seconds) / 2 if self.look_s else seconds

    @property
    def token_s(self) -> float | None:
        """Seconds of one more token; None if nothing was measured."""
        return self._fit()[1] if self._weight else None

    def seconds(self, n_max: int) -> F64:
        """Of drafts of 0..n_max tokens [n_max + 1]."""
        fixed, slope = self._fit()
        line: F64 = fixed + slope * np.arange(n_max + 1, dtype=np.float64)
        line[0] = 0.0
        return line

    def as_json(self) -> list[float]:
        """What is worth keeping: no time of a single draft, which may be only a guess."""
        fixed, slope = self._fit() if self._weight >= 1 else (0.0, 0.0)
        return [fixed, slope, self.look_s]

    @classmethod
    def restore(cls, saved: object) -> DraftTime:
        """What :meth:`as_json` gave, as two drafts that lie on the line.

        Raises:
            ValueError, TypeError: it is something else.
        """
        fixed, slope, look_s = (float(value) for value in saved)  # type: ignore[attr-defined]
        if not all(0 <= value < math.inf for value in (fixed, slope, look_s)):
            raise ValueError("not a time")
        times = cls()
        times.look_s = look_s
        if fixed + slope > 0:
            times._weight = 1.0
            times._tokens, times._squares = 2.0, 5.0  # one and three tokens, half a draft each
            times._seconds = fixed + 2 * slope
            times._products = 2 * fixed + 5 * slope
        return times

    def _line(self, num_tokens: int) -> float:
        fixed, slope = self._fit()
        return fixed + slope * num_tokens

    def _fit(self) -> tuple[float, float]:
        """Seconds: the fixed part, and those of a token."""
        if self._weight == 0:
            return 0.0, 0.0
        tokens, seconds = self._tokens / self._weight, self._seconds / self._weight
        spread = self._squares / self._weight - tokens**2
        slope = most = seconds / tokens
        if spread > 1e-3:
            covariance = self._products / self._weight - tokens * seconds
            slope = min(max(covariance / spread, 0.0), most)
        return seconds - slope * tokens, slope
