"""AcceptanceModel: the chance that a draft token stands, learnt from those that were tested."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]

_DECAY = 0.97  # of old drafts, per draft, or per token of a bin: about the last thirty count
_PRIOR_CHANCE = 0.7  # before anything was tested: worth a try
_PRIOR_WEIGHT = 2.0  # tokens
_NEW_ANSWER = 0.5  # of the evidence is kept when all texts are others: another matter, maybe
_NUM_BINS = 9
_LEAST_DOUBT = 1e-9
_MAX_STREAK = 512


class AcceptanceModel:
    """Decayed counts of tokens that were really tested: those up to the first rejection.

    Chances are conditional: that a token stands, given that all before it stood. A draft that
    stood whole says nothing of what would have come after it. Without a word of the drafter
    they go by position; positions never tested get the chance over all positions. Where the
    drafter says how sure it is, they go by its confidence: counts in bins of equal ratio of
    doubt (1/2, 1/4, 1/8, ...), which start from the confidence itself times how far it was
    right so far; what a drafter's word is worth is kept from text to text. A surer token is no
    less likely to stand: bins that say otherwise count together. For those who say nothing
    :func:`after_streak` can.
    """

    def __init__(self, n_max: int) -> None:
        self._tested = np.zeros(n_max)
        self._stood = np.zeros(n_max)
        self._bin_tested = np.zeros(_NUM_BINS)
        self._bin_stood = np.zeros(_NUM_BINS)
        self._pools: tuple[F64, F64] | None = None  # of the bins, where nothing has changed since
        self._claimed = _PRIOR_WEIGHT  # sum of the confidences of tested tokens
        self._kept = _PRIOR_WEIGHT  # those of them that stood
        self.version = 0
        """Changes with every observation."""
        self.num_since = 0
        """Tokens that were emitted since a draft was begun."""
        self.num_in_vain = 0
        """Steps in which no draft was worth verifying, since one was."""

    @property
    def is_tested(self) -> bool:
        """True once a draft was seen."""
        return bool(self._tested.any())

    def begin_answer(self, num_slots: int = 1) -> None:
        """Trust what was learnt from other texts less; one of ``num_slots`` is another now."""
        self._decay(_NEW_ANSWER ** (1 / num_slots))
        self.num_in_vain = int(self.num_in_vain * (1 - 1 / num_slots))

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
            self._pools = None
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
        if self._pools is None:
            self._pools = _pooled(self._bin_stood, self._bin_tested)
        stood, tested = self._pools
        return np.asarray(
            (stood[at] + _PRIOR_WEIGHT * trust * confidences) / (tested[at] + _PRIOR_WEIGHT)
        )

    def _decay(self, factor: float) -> None:
        self.version += 1
        self._tested *= factor
        self._stood *= factor


def _pooled(stood: F64, tested: F64) -> tuple[F64, F64]:
    """The counts [bins], added up over neighbours whose rates fall instead of rising.

    Isotonic regression by pooling adjacent violators (Ayer et al. 1955).
    """
    pools: list[tuple[int, float, float]] = []  # first bin, counts; bins without any are passed
    ends: list[int] = []
    for at, (own_stood, own_tested) in enumerate(zip(stood.tolist(), tested.tolist(), strict=True)):
        if not own_tested:
            continue
        first = at
        while pools and pools[-1][1] * own_tested > own_stood * pools[-1][2]:
            first, more_stood, more_tested = pools.pop()
            own_stood, own_tested = own_stood + more_stood, own_tested + more_tested
            ends.pop()
        pools.append((first, own_stood, own_tested))
        ends.append(at + 1)
    stood, tested = np.zeros_like(stood), np.zeros_like(tested)
    for (first, all_stood, all_tested), end in zip(pools, ends, strict=True):
        stood[first:end], tested[first:end] = all_stood, all_tested
    return stood, tested


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
