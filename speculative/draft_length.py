"""How many tokens to draft: a fixed number, or the one that pays most."""

from __future__ import annotations

from collections.abc import Mapping
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
_FIRST_PLAIN, _PLAIN_INTERVAL = 8, 32  # steps with drafts before one without measures plain


class DraftLength(Protocol):
    """Chooses the length of each draft of one sequence and learns from the outcome."""

    @property
    def paused(self) -> Pause | None:
        """Why the length is 0 now."""
        ...

    @property
    def by_drafter(self) -> Mapping[str, int] | None:
        """The lengths of the last answer by drafter; None: the same for all."""
        ...

    def next_length(self, limit: int) -> int:
        """The draft length for the coming step, at most ``limit``; 0 drafts nothing."""
        ...

    def observe(
        self, num_drafted: int, num_accepted: int, num_emitted: int, drafter: str = ""
    ) -> None:
        """Learn from a step; ``num_drafted`` 0 means there was no draft."""
        ...


class FixedLength:
    """Always the same length, as far as the limits allow."""

    paused: Pause | None = None
    by_drafter: Mapping[str, int] | None = None

    def __init__(self, length: int) -> None:
        self._length = length

    def next_length(self, limit: int) -> int:
        return min(self._length, limit)

    def observe(
        self, num_drafted: int, num_accepted: int, num_emitted: int, drafter: str = ""
    ) -> None:
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

    @property
    def is_tested(self) -> bool:
        """True once a draft was seen."""
        return bool(self._tested.any())

    def chances(self) -> F64:
        """Conditional chances by position [n_max]."""
        prior = _PRIOR_WEIGHT * _PRIOR_CHANCE
        overall = (self._stood.sum() + prior) / (self._tested.sum() + _PRIOR_WEIGHT)
        return np.asarray((self._stood + _PRIOR_WEIGHT * overall) / (self._tested + _PRIOR_WEIGHT))


class AdaptiveLength:
    """The k, 0 included, with the most expected tokens a second.

    Expected tokens of a draft of k are 1 plus the chances that its first i tokens all stand;
    the time is that of verifying k + 1 rows and drafting k tokens, both measured. While the
    best k is 0, a short draft at first and then every few dozen tokens looks whether the text
    is predictable; a probe that stands whole is followed by another at once, unless not even
    perfect drafts would pay here.
    """

    by_drafter: Mapping[str, int] | None = None

    def __init__(self, costs: StepCosts, n_max: int, drafter: str = "") -> None:
        self.paused: Pause | None = None
        self._costs = costs
        self._drafter = drafter
        self._n_max = n_max
        self._acceptance = AcceptanceModel(n_max)
        self._since_draft = _PROBE_INTERVAL  # an answer begins with a look
        self._probe_again = False

    def next_length(self, limit: int) -> int:
        limit = min(limit, self._n_max)
        if limit <= 0 or not self._costs.is_measured:
            return max(limit, 0)
        best, pause = self._best(limit)
        # before anything was tried there is nothing to be said of it
        self.paused = None if best or not self._acceptance.is_tested else pause
        could_pay = pause.needed is not None and pause.needed < 1
        is_due = self._since_draft >= _PROBE_INTERVAL
        if not best and (is_due or (self._probe_again and could_pay)):
            return min(_PROBE_LENGTH, limit)
        return best

    def observe(
        self, num_drafted: int, num_accepted: int, num_emitted: int, drafter: str = ""
    ) -> None:
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
        step_s = self._costs.step_s(limit, self._drafter)
        speed = expected / step_s
        nearest = 1 + int(speed[1:].argmax())
        needed = (step_s[nearest] / step_s[0] - 1) / nearest
        measured = (expected[nearest] - 1) / nearest
        pause = Pause("does not pay", float(needed), float(measured))
        return int(speed.argmax()), pause


class ChainLength:
    """A length of its own for each drafter of a chain, chosen by the same measure.

    A drafter that seldom proposes but is right then does not pay for another that always
    proposes and is often wrong. Now and then a step goes without a draft: what plain decoding
    costs must be known as it is now, or a figure from a busy moment would keep losing drafts
    going.
    """

    def __init__(self, costs: StepCosts, limits: Mapping[str, int]) -> None:
        """``limits`` are the most tokens of each drafter."""
        self.by_drafter: dict[str, int] = dict.fromkeys(limits, 0)
        self._lengths = {name: AdaptiveLength(costs, n, name) for name, n in limits.items()}
        self._num_drafts = 0
        self._plain_after = _FIRST_PLAIN

    @property
    def paused(self) -> Pause | None:
        """Of the drafter that comes nearest to paying; None while any of them drafts."""
        pauses = [length.paused for length in self._lengths.values()]
        if any(self.by_drafter.values()) or None in pauses:
            return None
        known = [p for p in pauses if p is not None]
        return min(known, key=lambda p: (p.needed or 0) - (p.measured or 0), default=None)

    def next_length(self, limit: int) -> int:
        is_plain = self._num_drafts >= self._plain_after
        for name, length in self._lengths.items():
            self.by_drafter[name] = 0 if is_plain else length.next_length(limit)
        return max(self.by_drafter.values(), default=0)

    def observe(
        self, num_drafted: int, num_accepted: int, num_emitted: int, drafter: str = ""
    ) -> None:
        if num_drafted:
            self._num_drafts += 1
        elif self._num_drafts:
            self._plain_after = min(2 * self._plain_after, _PLAIN_INTERVAL)
            self._num_drafts = 0
        for name, length in self._lengths.items():
            if name == drafter:
                length.observe(num_drafted, num_accepted, num_emitted)
            else:
                length.observe(0, 0, num_emitted)
