"""AcceptanceModel: the chance that a draft token stands, learnt from those that were tested."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]

_DECAY = 0.97  # of old drafts, per draft, or per token of a bin: about the last thirty count
_PRIOR_CHANCE = 0.7  # before anything was tested: worth a try
_PRIOR_WEIGHT = 2.0  # tokens
_NEW_ANSWER = 0.5  # of the evidence is kept: another text may be another matter
_NUM_BINS = 9
_LEAST_DOUBT = 1e-9
_MAX_STREAK = 512
_LONG = 1e9  # tokens: longer than any wait


class AcceptanceModel:
    """Decayed counts of tokens that were really tested: those up to the first rejection.

    Chances are conditional: that a token stands, given that all before it stood. A draft that
    stood whole says nothing of what would have come after it. Without a word of the drafter
    they go by position; positions never tested get the chance over all positions. Where the
    drafter says how sure it is, they go by its confidence: counts in bins of equal ratio of
    doubt (1/2, 1/4, 1/8, ...), which start from the confidence itself times how far it was
    right so far; what a drafter's word is worth is kept from text to text. For those who say
    nothing :func:`after_streak` can.
    """

    def __init__(self, n_max: int) -> None:
        self._tested = np.zeros(n_max)
        self._stood = np.zeros(n_max)
        self._bin_tested = np.zeros(_NUM_BINS)
        self._bin_stood = np.zeros(_NUM_BINS)
        self._claimed = _PRIOR_WEIGHT  # sum of the confidences of tested tokens
        self._kept = _PRIOR_WEIGHT  # those of them that stood
        self.version = 0
        """Changes with every observation."""
        self.num_since = _LONG
        """Tokens that were emitted since a draft was begun."""

    @property
    def is_tested(self) -> bool:
        """True once a draft was seen."""
        return bool(self._tested.any())

    def begin_answer(self) -> None:
        """Trust what was learnt from another text less."""
        self._decay(_NEW_ANSWER)

    def begin_draft(self) -> None:
        """A new draft: what came before it counts for less."""
        self._decay(_DECAY)

    def test(self, position: int, stood: bool, confidence: float | None = None) -> None:
        """Learn what became of the token at a position."""
        self.version += 1
        if position < len(self._tested):
            self._tested[position] += 1
            self._stood[position] += stood
        if confidence is not None:
            at = _bin(confidence)
            self._bin_tested[at] = _DECAY * self._bin_tested[at] + 1
            self._bin_stood[at] = _DECAY * self._bin_stood[at] + stood
            self._claimed = _faded(self._claimed) + confidence
            self._kept = _faded(self._kept) + stood

    def observe(self, num_drafted: int, num_accepted: int, confidences: F64 | None = None) -> None:
        """Learn from a verified draft."""
        self.begin_draft()
        for position in range(min(num_accepted + 1, num_drafted)):
            sure = None if confidences is None else float(confidences[position])
            self.test(position, position < num_accepted, sure)

    def chances(self) -> F64:
        """Conditional chances by position [n_max]."""
        prior = _PRIOR_WEIGHT * _PRIOR_CHANCE
        overall = (self._stood.sum() + prior) / (self._tested.sum() + _PRIOR_WEIGHT)
        return np.asarray((self._stood + _PRIOR_WEIGHT * overall) / (self._tested + _PRIOR_WEIGHT))

    def chances_of(self, confidences: F64) -> F64:
        """Conditional chances [n] of tokens by their drafter's confidences [n]."""
        trust = min(1.0, self._kept / self._claimed)
        bins = np.minimum(-np.log2(np.maximum(1 - confidences, _LEAST_DOUBT)), _NUM_BINS - 1)
        at = bins.astype(np.intp)
        stood = self._bin_stood[at] + _PRIOR_WEIGHT * trust * confidences
        return np.asarray(stood / (self._bin_tested[at] + _PRIOR_WEIGHT))

    def _decay(self, factor: float) -> None:
        self.version += 1
        self._tested *= factor
        self._stood *= factor


def after_streak(streak: int, num_tokens: int) -> F64:
    """How sure to be of the next ``num_tokens`` after ``streak`` that were right.

    m of m were right: the next is with (m + 1/2) / (m + 1), the mean of Jeffreys' posterior.
    """
    start = min(streak, _MAX_STREAK)
    return _AFTER[start : start + num_tokens]


_AFTER: F64 = 1 - 0.5 / (np.arange(2 * _MAX_STREAK, dtype=np.float64) + 1)


def _faded(total: float) -> float:
    """A sum that begins with the prior, after one more test."""
    return _PRIOR_WEIGHT + _DECAY * (total - _PRIOR_WEIGHT)


def _bin(confidence: float) -> int:
    """By doubt: below 1/2, then from each power of 1/2 to the next."""
    return min(int(-math.log2(max(1 - confidence, _LEAST_DOUBT))), _NUM_BINS - 1)
