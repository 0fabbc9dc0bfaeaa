"""StepCosts: what a step costs on this machine, measured."""

from __future__ import annotations

from collections import deque
from statistics import median

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]

_WEIGHT = 0.2  # of a new measurement against what is known
_OUTLIER = 3.0  # a neighbour on a shared machine, not this model
_RECENT_DRAFTS = 15


class StepCosts:
    """Seconds to verify a block of n rows, and to draft n tokens."""

    def __init__(self) -> None:
        self._verify: dict[int, float] = {}
        self._draft_s_per_token: dict[str, deque[float]] = {}

    @property
    def is_measured(self) -> bool:
        return bool(self._verify)

    def observe_verify(self, num_rows: int, seconds: float) -> None:
        known = self._verify.get(num_rows)
        if known is None:
            self._verify[num_rows] = seconds
        else:
            seconds = min(seconds, _OUTLIER * known)
            # noise only adds: a far shorter time shows that the old one was taken beside it
            weight = 1.0 if seconds < known / 2 else _WEIGHT
            self._verify[num_rows] = known + weight * (seconds - known)

    def observe_draft(self, num_tokens: int, seconds: float, drafter: str = "") -> None:
        if num_tokens:
            recent = self._draft_s_per_token.setdefault(drafter, deque(maxlen=_RECENT_DRAFTS))
            recent.append(seconds / num_tokens)

    def step_s(self, n_max: int, drafter: str = "") -> F64:
        """Seconds of a step with 0..n_max tokens of ``drafter``, drafting included [n_max + 1]."""
        lengths = np.arange(n_max + 1)
        return self._verify_s(lengths + 1) + lengths * self._draft_s(drafter)

    def _draft_s(self, drafter: str) -> float:
        recent = self._draft_s_per_token.get(drafter)
        return median(recent) if recent else 0.0

    def _verify_s(self, num_rows: NDArray[np.int64]) -> F64:
        """Between measured row counts a line; beyond the last one its slope goes on."""
        known = sorted(self._verify)
        seconds = np.maximum.accumulate([self._verify[n] for n in known])
        inside = np.interp(num_rows, known, seconds)
        if len(known) < 2:
            return inside
        slope = (seconds[-1] - seconds[-2]) / (known[-1] - known[-2])
        return np.asarray(inside + slope * np.maximum(num_rows - known[-1], 0))
