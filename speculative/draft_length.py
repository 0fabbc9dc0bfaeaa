"""How many tokens to draft: a fixed number, or the one that pays most."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.statistics import Pause
from outrider.speculative.step_costs import StepCosts

F64 = NDArray[np.float64]

_DECAY = 0.97  # of old drafts, per draft: about the last thirty count
_PRIOR_CHANCE = 0.7  # nothing is known at first: worth a try
_PRIOR_WEIGHT = 2.0
_PROBE_INTERVAL = 32  # emitted tokens without a draft before the next look
_PROBE_LENGTH = 2


class DraftLength(Protocol):
    """Chooses the length of each draft of one sequence and learns from the outcome."""

    @property
    def paused(self) -> Pause | None:
        """Why the length is 0 now."""
        ...

    def next_length(self, limit: int) -> int:
        """The draft length for the coming step, at most ``limit``; 0 drafts nothing."""
        ...

    def observe(self, num_drafted: int, num_accepted: int, num_emitted: int) -> None:
        """Learn from a step; ``num_drafted`` 0 means there was no draft."""
        ...


class FixedLength:
    """Always the same length, as far as the limits allow."""

    paused: Pause | None = None

    def __init__(self, length: int) -> None:
        self._length = length

    def next_length(self, limit: int) -> int:
        return min(self._length, limit)

    def observe(self, num_drafted: int, num_accepted: int, num_emitted: int) -> None:
        pass


class AcceptanceModel:
    """Chance that the draft token at a position stands, given that all before it stood.

    Decayed counts of positions that were really tested: those up to the first rejection.
    Positions never tested get the chance over all positions.
    """

    def __init__(self, n_max: int) -> None:
        self._tested = np.zeros(n_max)
        self._stood = np.zeros(n_max)

    def observe(self, num_drafted: int, num_accepted: int) -> None:
        self._tested *= _DECAY
        self._stood *= _DECAY
        self._tested[: min(num_accepted + 1, num_drafted)] += 1
        self._stood[:num_accepted] += 1

    def chances(self) -> F64:
        """Conditional chances by position [n_max]."""
        prior = _PRIOR_WEIGHT * _PRIOR_CHANCE
        overall = (self._stood.sum() + prior) / (self._tested.sum() + _PRIOR_WEIGHT)
        return np.asarray((self._stood + _PRIOR_WEIGHT * overall) / (self._tested + _PRIOR_WEIGHT))


class AdaptiveLength:
    """The k, 0 included, with the most expected tokens a second.

    Expected tokens of a draft of k are 1 plus the chances that its first i tokens all stand;
    the time is that of verifying k + 1 rows and drafting k tokens, both measured. While the
    best k is 0, a short draft every few dozen tokens looks whether the text has become
    predictable; a probe that stands whole is followed by another at once, unless not even
    perfect drafts would pay here.
    """

    def __init__(self, costs: StepCosts, n_max: int) -> None:
        self.paused: Pause | None = None
        self._costs = costs
        self._n_max = n_max
        self._acceptance = AcceptanceModel(n_max)
        self._since_draft = 0
        self._probe_again = False

    def next_length(self, limit: int) -> int:
        limit = min(limit, self._n_max)
        if limit <= 0 or not self._costs.is_measured:
            return max(limit, 0)
        best, pause = self._best(limit)
        if best:
            self.paused = None
            return best
        self.paused = pause
        could_pay = pause.needed is not None and pause.needed < 1
        if self._since_draft >= _PROBE_INTERVAL or (self._probe_again and could_pay):
            return min(_PROBE_LENGTH, limit)
        return 0

    def observe(self, num_drafted: int, num_accepted: int, num_emitted: int) -> None:
        if num_drafted:
            self._acceptance.observe(num_drafted, num_accepted)
            self._since_draft = 0
            self._probe_again = num_accepted == num_drafted
        else:
            self._since_draft += num_emitted

    def _best(self, limit: int) -> tuple[int, Pause]:
        """The best length, and what a pause would say: of the length that comes nearest."""
        standing = np.cumprod(self._acceptance.chances()[:limit])
        expected = 1 + np.concatenate(([0.0], np.cumsum(standing)))
        step_s = self._costs.step_s(limit)
        speed = expected / step_s
        nearest = 1 + int(speed[1:].argmax())
        needed = (step_s[nearest] / step_s[0] - 1) / nearest
        measured = (expected[nearest] - 1) / nearest
        pause = Pause("does not pay", float(needed), float(measured))
        return int(speed.argmax()), pause
