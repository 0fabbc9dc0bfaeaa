"""Rows, histories and settings for the sampler, and laws to compare."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.distribution import Distribution
from outrider.speculative.sampler import Sampler
from outrider.speculative.settings import SamplingSettings

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I32 = NDArray[np.int32]

INF = math.inf
VOCAB_SIZES = (64, 512, 49152, 262144)
EMPTY = np.empty(0, np.int32)

OFF = SamplingSettings(top_k=0, top_p=1.0, min_p=0.0)
PENALTIES = {
    "repeat": SamplingSettings(repeat_penalty=1.3),
    "frequency": SamplingSettings(frequency_penalty=0.6),
    "presence": SamplingSettings(presence_penalty=0.9),
    "all": SamplingSettings(repeat_penalty=1.2, frequency_penalty=0.3, presence_penalty=0.4),
    "negative": SamplingSettings(repeat_penalty=0.8, frequency_penalty=-0.5),
}


def made_row(size: int, seed: int) -> F32:
    row = (3 * np.random.default_rng(seed).standard_normal(size)).astype(np.float32)
    row.flags.writeable = False
    return row


def made_history(row: F32, length: int = 100) -> I32:
    """The best tokens several times, others, and at last none of the best: windows differ."""
    generator = np.random.default_rng(length)
    best = np.argsort(row)[-12:]
    others = generator.integers(0, len(row), 30)
    mixed = np.concatenate((best.repeat(3), others))[generator.permutation(66)]
    return np.concatenate((mixed, generator.integers(0, len(row), 34))).astype(np.int32)[:length]


def made_bias(row: F32) -> dict[int, float]:
    order = np.argsort(row)
    return {int(order[-1]): -INF, int(order[-3]): -2.5, int(order[2]): 30.0, int(order[9]): 0.5}


def support_of(law: Distribution) -> dict[int, float]:
    pairs = zip(law.token_ids.tolist(), law.probs.tolist(), strict=True)
    return {token: prob for token, prob in pairs if prob > 0}


def probs_of(sampler: Sampler, row: F32, history: I32 = EMPTY) -> F64:
    """The law over the whole vocabulary."""
    return dense_law(sampler.distribution(row, history), len(row))


def dense_law(law: Distribution, size: int) -> F64:
    probs = np.zeros(size)
    probs[law.token_ids] = law.probs
    return probs


def assert_same(actual: F64, expected: F64, tolerance: float) -> None:
    np.testing.assert_array_equal(actual > 0, expected > 0)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)
