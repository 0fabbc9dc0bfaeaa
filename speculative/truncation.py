"""llama.cpp's samplers that drop tokens or change the temperature (src/llama-sampler.cpp).

Each is a function of the candidates; ``min_keep`` is 0 throughout, as in llama.cpp's programs.
Sums are float64; llama.cpp's are float32.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.candidates import best
from outrider.speculative.shortlist import Candidates, Ranked, Unranked

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

_FIRST_GUESS = 256
_GROWTH = 16
# e to this power is 0: in place of minus infinity, which times 0 is not a number
_NO_WEIGHT = -1e4
_LEAST_ENTROPY = 1e-30


def top_k(candidates: Candidates, count: int) -> Candidates:
    """The ``count`` best; all if there are no more."""
    return candidates.head(count) if count < candidates.size else candidates


def top_p(candidates: Candidates, mass: float, least: float = 0.0) -> Candidates:
    """The best tokens up to the one that reaches ``mass``, that one included.

    ``least`` is what min-p asks for where it comes next: tokens that it will drop need not be
    looked for.
    """
    if isinstance(candidates, Ranked):
        cumulative = candidates.weights().cumsum()
        return candidates.head(int(cumulative.searchsorted(mass * cumulative[-1])) + 1)
    wanted = mass * float(candidates.weights().sum())
    count = _FIRST_GUESS
    while True:
        head = candidates.head(count)
        kept = int(head.weights().cumsum().searchsorted(wanted)) + 1
        is_below = least > 0 and head.logits[-1] < _min_p_floor(head, least)
        if kept <= len(head) or is_below or count >= len(candidates):
            return head.head(kept)
        count *= _GROWTH


def min_p(candidates: Candidates, ratio: float) -> Candidates:
    """Tokens at least ``ratio`` times as probable as the best."""
    if ratio > 1:
        return candidates.head(1)
    return candidates.at_least(_min_p_floor(candidates, ratio))


def _min_p_floor(candidates: Candidates, ratio: float) -> float:
    return candidates.top + candidates.temp * math.log(ratio)


def top_n_sigma(candidates: Candidates, num_sigmas: float) -> Candidates:
    """Tokens at most ``num_sigmas`` standard deviations below the best.

    llama.cpp masks the others, so that its list keeps its length.
    """
    below = candidates.exponents()
    if below.min() == -math.inf:
        below = below[below > -math.inf]
    sigma = candidates.temp * float(below.std())
    kept = candidates.at_least(candidates.top - num_sigmas * sigma)
    kept.size = candidates.size
    return kept


def typical(candidates: Candidates, mass: float) -> Candidates:
    """The tokens whose surprise is nearest to the entropy, until more than ``mass`` is theirs.

    (Meister et al. 2022, arXiv 2202.00666.)
    """
    log_probs = _log_probs(candidates)
    probs = np.exp(log_probs)
    nearness = -np.abs(log_probs - float((probs * log_probs).sum()))
    count = _FIRST_GUESS
    while True:
        nearest = _nearest(candidates, nearness, count)
        kept = int(probs[nearest].cumsum().searchsorted(mass, side="right")) + 1
        if kept <= len(nearest) or count >= len(candidates):
            return candidates.at(np.sort(nearest[:kept]))
        count *= _GROWTH


def xtc(candidates: Candidates, threshold: float) -> Candidates:
    """Without the tokens of at least ``threshold``, save the least probable of them."""
    wanted = threshold * float(candidates.weights().sum())
    # no more than these can reach the threshold
    most = 1 / threshold + 1 if threshold > 0 else math.inf
    head = candidates.head(int(min(most, candidates.size)))
    dropped = head.token_ids[: max(0, int((head.weights() >= wanted).sum()) - 1)]
    if isinstance(candidates, Ranked):
        return candidates.tail(len(dropped))
    _, places = candidates.find(np.sort(dropped))
    rest = candidates.with_logits(places, np.full(len(places), -math.inf))
    return Unranked(rest.logits, rest.token_ids, rest.adjusted, rest.size - len(dropped), rest.temp)


def temperature(
    candidates: Candidates, temp: float, spread: float = 0.0, exponent: float = 1.0
) -> Candidates:
    """All logits divided by ``temp``; at 0 and below only the best is left.

    With a ``spread`` the temperature follows the entropy, from ``temp - spread`` for a sure
    law to ``temp + spread`` for a flat one.
    """
    if spread > 0:
        if candidates.size < 2:
            return candidates
        lowest = max(0.0, temp - spread)
        temp = lowest + (temp + spread - lowest) * _flatness(candidates, exponent)
    return candidates.heated(temp) if temp > 0 else candidates.head(1)


def _flatness(candidates: Candidates, exponent: float) -> float:
    """The entropy as a share of the largest possible one, to the power ``exponent``."""
    log_probs = _log_probs(candidates)
    # not 0, which has no negative powers
    entropy = max(_LEAST_ENTROPY, -float((np.exp(log_probs) * log_probs).sum()))
    return float((entropy / math.log(candidates.size)) ** exponent)


def _log_probs(candidates: Candidates) -> F64:
    exponents = candidates.exponents()
    np.maximum(exponents, _NO_WEIGHT, out=exponents)
    exponents -= math.log(float(np.exp(exponents).sum()))
    return exponents


def _nearest(candidates: Candidates, nearness: F64, count: int) -> I64:
    """The places of the ``count`` largest, largest first; of equals the lowest ids."""
    if isinstance(candidates, Ranked):
        return np.lexsort((candidates.token_ids, -nearness))[:count]
    return best(nearness, count)[0]
