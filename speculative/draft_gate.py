"""DraftGate: how far one drafter may go in one step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.acceptance import AcceptanceModel, after_streak

F64 = NDArray[np.float64]


@dataclass(slots=True)
class Choice:
    """The fastest draft: its length, expected tokens a second, and rates of acceptance.

    ``needed`` is the rate at which it is as fast as what is done otherwise, ``measured`` the
    one that is expected.
    """

    length: int
    speed: float
    needed: float
    measured: float

    @classmethod
    def of(cls, chances: F64, step_s: F64, floor: float, other_tokens: float) -> Choice:
        """Among drafts of 1..n tokens.

        Args:
            chances: conditional chances of the tokens [n].
            step_s: seconds of a step with so many [n].
            floor: tokens a second of what is done otherwise.
            other_tokens: what other sequences of the batch emit.
        """
        expected = chances.cumprod().cumsum()
        own = 1 + other_tokens
        speeds = (own + expected) / step_s
        best = int(speeds.argmax())
        length = best + 1
        return cls(
            length,
            float(speeds[best]),
            (float(step_s[best]) * floor - own) / length,
            float(expected[best]) / length,
        )


@dataclass(slots=True, eq=False)
class DraftGate:
    """What a drafter is asked for in one step, and when more of a draft does not pay.

    Attributes:
        max_tokens: at most so many.
        is_look: the draft is only compared with what the target says by itself: it costs no
            row of the target.
        is_free: drafting costs nothing to speak of: it is asked for all it knows.
    """

    max_tokens: int
    acceptance: AcceptanceModel
    verify_s: F64
    """Seconds of a step with 0..max_tokens draft tokens, without drafting."""
    token_s: float
    """Seconds to draft one more token."""
    floor: float
    """Tokens a second of what is done otherwise."""
    other_tokens: float = 0
    """What the other sequences of the batch emit."""
    streak: int = 0
    """Tokens of this drafter that were right in a row, for drafters that do not say how sure
    they are."""
    rate: float = 0.0
    """Tokens a second that it brings on average, where it is asked for that: one more token
    keeps up with it, or its time is better spent on the next step."""
    is_look: bool = False
    is_free: bool = False
    was_asked: bool = False
    """Not while a drafter before it in the chain has proposed."""
    length: int | None = None
    """How much of a draft was found worth it."""
    needed: float | None = None
    measured: float | None = None
    """Of that draft: the rate of acceptance it needs, and what is expected."""
    _standing: float = 1.0
    _num_taken: int = 0

    def num_worth(self, num_tokens: int, confidences: F64 | None = None) -> int:
        """How many tokens of a finished draft to verify, by expected tokens a second."""
        num_tokens = min(num_tokens, self.max_tokens)
        if self.is_look or not num_tokens:
            return 0
        if confidences is None:
            confidences = after_streak(self.streak, num_tokens)
        chances = self.acceptance.chances_of(confidences[:num_tokens])
        step_s = self.verify_s[1 : num_tokens + 1]
        best = Choice.of(chances, step_s, self.floor, self.other_tokens)
        self.needed, self.measured = best.needed, best.measured
        self.length = best.length if best.speed > self.floor else 0
        return self.length

    def admits(self, confidence: float) -> bool:
        """True if one more token, already drafted, is worth its row and those after it."""
        if self.is_look:
            return True
        at = self._num_taken
        chance = float(self.acceptance.chances_of(np.array([confidence]))[0])
        standing = self._standing * chance
        if not self._pays(standing, at + 1, drafted=1):
            return False
        self._standing, self._num_taken = standing, at + 1
        return True

    @property
    def goes_on(self) -> bool:
        """True if drafting one more token is worth it."""
        if self._num_taken >= self.max_tokens:
            return False
        if self.is_look:
            return True
        at = self._num_taken
        chance = float(self.acceptance.chances()[at])
        return self._pays(self._standing * chance, at + 1, drafted=0)

    def _pays(self, standing: float, first: int, *, drafted: int) -> bool:
        """True if the tokens from ``first`` on are worth more than their time elsewhere.

        ``standing`` is the chance that the first of them and all before it stand; ``drafted``
        of them are paid for. Knees of the cost curve are looked across.
        """
        later = self.acceptance.chances()[first : self.max_tokens]
        gains = standing * np.concatenate(([1.0], later.cumprod())).cumsum()
        count = len(gains)
        rows_s = self.verify_s[first : first + count] - self.verify_s[first - 1]
        draft_s = self.token_s * (np.arange(1, count + 1) - drafted)
        return bool((gains > max(self.floor, self.rate) * (rows_s + draft_s)).any())
