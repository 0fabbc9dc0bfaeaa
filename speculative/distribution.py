"""Distribution: a sparse law over the vocabulary, and the arithmetic of verification."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

# a residual lighter than this is the rounding of two equal laws
_NO_MASS = 1e-12

CERTAIN = np.ones(1)
"""The probabilities of a law with all mass on one token."""
CERTAIN.flags.writeable = False


class Distribution:
    """Token ids [k] and their probabilities [k], float64, summing to 1.

    Sparse: after truncation a few dozen of a vocabulary remain. The order is fixed by the row
    the law came from, so that the same uniform draws the same token.
    """

    __slots__ = ("probs", "token_ids")

    def __init__(self, token_ids: I64, probs: F64) -> None:
        self.token_ids = token_ids
        self.probs = probs

    @classmethod
    def point(cls, token_id: int) -> Distribution:
        """All mass on one token."""
        return cls(np.array((token_id,)), CERTAIN)

    @classmethod
    def softmax(cls, token_ids: I64, logits: F64) -> Distribution:
        """The law proportional to exp(logits); at least one logit is finite."""
        weights = np.exp(logits - logits.max())
        return cls(token_ids, weights / weights.sum())

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def mode(self) -> int:
        """The most probable token (the first of equals)."""
        if len(self.token_ids) == 1:
            return self.token_ids.item()
        return int(self.token_ids[self.probs.argmax()])

    def prob(self, token_id: int) -> float:
        """The probability of one token, 0 outside the support."""
        return float(self.probs[self.token_ids == token_id].sum())

    def draw(self, uniform: float) -> int:
        """The token at ``uniform`` in [0, 1) of the cumulative law; never one of probability 0."""
        if len(self.probs) == 1:
            return self.token_ids.item()
        cumulative = self.probs.cumsum()
        index = int(cumulative.searchsorted(uniform * cumulative[-1], side="right"))
        if index == len(cumulative):  # rounding fell off the end
            index = int(np.flatnonzero(self.probs)[-1])
        return int(self.token_ids[index])

    def given(self, kept: NDArray[np.bool_]) -> Distribution | None:
        """The law on the entries that are ``kept`` [k]; None if they have no mass."""
        if kept.all():
            return self
        mass = self.probs[kept].sum()
        return Distribution(self.token_ids[kept], self.probs[kept] / mass) if mass > 0 else None

    def residual(self, proposed: Distribution) -> Distribution:
        """``max(0, self - proposed)``, normalised: the law of a recovered token.

        Two laws that are equal up to rounding leave nothing; a rejection has probability 0
        then, and the target's own law is returned.
        """
        rest = np.maximum(self.probs - proposed.probs_of(self.token_ids), 0.0)
        mass = rest.sum()
        if mass < _NO_MASS:
            return self
        kept = rest > 0
        return Distribution(self.token_ids[kept], rest[kept] / mass)

    def probs_of(self, token_ids: I64) -> F64:
        """The probabilities [n] of ``token_ids``, 0 outside the support."""
        order = self.token_ids.argsort()
        sorted_ids = self.token_ids[order]
        at = sorted_ids.searchsorted(token_ids).clip(max=len(sorted_ids) - 1)
        found = sorted_ids[at] == token_ids
        return np.where(found, self.probs[order[at]], 0.0)
