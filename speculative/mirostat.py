"""Mirostat: truncation that keeps the surprise of the text near a target.

Basu et al. 2021 (arXiv 2007.14966), as in llama.cpp (src/llama-sampler.cpp); version 1 guesses
how many tokens to keep from the slope of the best, version 2 drops by surprise alone.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.distribution import Distribution
from outrider.speculative.settings import SamplingSettings
from outrider.speculative.shortlist import Candidates, LogitBias, Ranked
from outrider.speculative.truncation import temperature

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

_NUM_BEST = 100  # what common/sampling.cpp passes


class Mirostat:
    """Bias, temperature, and a truncation that depends on ``mu``; no state is kept here.

    ``mu`` is the surprise in bits that a token may have; it starts at :attr:`first_mu` and
    :meth:`next_mu` follows each token of the answer.
    """

    def __init__(self, settings: SamplingSettings) -> None:
        assert settings.mirostat in (1, 2)
        self._settings = settings
        self._bias = LogitBias(settings.logit_bias)

    @property
    def first_mu(self) -> float:
        return 2 * self._settings.mirostat_tau

    def distribution(self, row: F32, mu: float) -> Distribution:
        """The law of the next token.

        Raises:
            EngineError: the model returned no finite logit.
        """
        candidates = temperature(self._bias.candidates(row), self._settings.temp)
        if self._settings.temp <= 0:
            return candidates.law()
        if self._settings.mirostat == 1:
            return candidates.head(_num_kept(candidates.head(_NUM_BEST), len(row), mu)).law()
        return _unsurprising(candidates, mu).law()

    def next_mu(self, mu: float, law: Distribution, token_id: int) -> float:
        """``mu`` after a token that was drawn from ``law``."""
        prob = law.prob(token_id)
        if prob <= 0:  # a token from elsewhere says nothing about the law
            return mu
        return mu - self._settings.mirostat_eta * (-math.log2(prob) - self._settings.mirostat_tau)


def _num_kept(head: Ranked, vocab_size: int, mu: float) -> int:
    """How many tokens have a surprise of ``mu``, if the law is Zipf's with the head's slope."""
    logits = head.logits / head.temp
    if len(logits) < 2:
        return 1
    steps = np.log(np.arange(2, len(logits) + 1) / np.arange(1, len(logits)))
    slope = float(steps @ -np.diff(logits) / (steps @ steps))
    if slope <= 0:  # all equal
        return vocab_size
    excess = slope - 1
    # (excess * 2^mu / (1 - vocab_size^-excess)) ^ (1 / slope), in logarithms: it may be huge
    log_size = math.log(vocab_size)
    share = excess / -math.expm1(-excess * log_size) if excess else 1 / log_size
    log_count = (math.log(share) + mu * math.log(2)) / slope
    return max(1, int(math.exp(log_count))) if log_count < log_size else vocab_size


def _unsurprising(candidates: Candidates, mu: float) -> Candidates:
    """The tokens of at most ``mu`` bits; the best if there are none."""
    log_total = math.log(float(candidates.weights().sum()))
    margin = candidates.temp * (log_total - mu * math.log(2))
    if margin > 0:
        return candidates.head(1)
    return candidates.at_least(candidates.top + margin)
