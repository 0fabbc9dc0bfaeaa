"""Log-probabilities of emitted tokens."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.candidates import best
from outrider.speculative.distribution import Distribution

F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One token's natural logarithm of its probability, and the likeliest ones there.

    ``piece`` are the bytes the token prints; ``top`` are pairs of token id and log-probability,
    the likeliest first.
    """

    token_id: int
    piece: bytes
    logprob: float
    top: tuple[tuple[int, float], ...]


def logprob_of_row(row: F32, token_id: int, piece: bytes, num_top: int) -> TokenLogprob:
    """By the model itself: the softmax of the raw logits [vocab]."""
    highest = row.max()
    log_total = float(highest) + math.log(np.exp(row - highest).sum(dtype=np.float64))
    top_ids, top_logits = best(row, min(num_top, len(row)))
    top = zip(top_ids.tolist(), (top_logits - log_total).tolist(), strict=True)
    return TokenLogprob(token_id, piece, float(row[token_id]) - log_total, _finite(top))


def logprob_of_law(law: Distribution, token_id: int, piece: bytes, num_top: int) -> TokenLogprob:
    """By the law the token was drawn from: after the chain and whatever constrains it."""
    order = np.lexsort((law.token_ids, -law.probs))[:num_top]
    with np.errstate(divide="ignore"):
        logs = np.log(law.probs[order])
    top = zip(law.token_ids[order].tolist(), logs.tolist(), strict=True)
    prob = law.prob(token_id)
    logprob = math.log(prob) if prob > 0 else -math.inf
    return TokenLogprob(token_id, piece, logprob, _finite(top))


def _finite(pairs: Iterable[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    return tuple((token_id, logprob) for token_id, logprob in pairs if logprob > -math.inf)
