"""Mirostat against llama.cpp's, walked along a text of its own draws."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from tools.llama_chain import apply_chain, native_chain

from outrider.speculative.distribution import Distribution
from outrider.speculative.errors import EngineError
from outrider.speculative.mirostat import Mirostat
from outrider.speculative.settings import SamplingSettings

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

INF = math.inf
CASES = {
    "defaults": SamplingSettings(),
    "cold": SamplingSettings(temp=0.4),
    "hot": SamplingSettings(temp=1.5),
    "temperature 1": SamplingSettings(temp=1.0),
    "little surprise": SamplingSettings(mirostat_tau=1.0, mirostat_eta=0.3),
    "much surprise": SamplingSettings(mirostat_tau=7.0, mirostat_eta=0.05),
    "none": SamplingSettings(mirostat_tau=0.0, mirostat_eta=0.5),
    "bias": SamplingSettings(logit_bias={3: 4.0, 5: -3.0, 7: -2.0}),
    "greedy": SamplingSettings(temp=0.0),
    "the rest is not for it": SamplingSettings(
        top_k=1, top_p=0.1, min_p=0.9, repeat_penalty=2.0, dynatemp_range=0.5, typical_p=0.1
    ),
}


def _rows(size: int, count: int, seed: int) -> list[F32]:
    """Rows from sharp to blunt.

    On flat ones llama.cpp's version 1 converts what is too large for an int: undefined.
    """
    generator = np.random.default_rng(seed)
    return [
        (generator.uniform(1.5, 4) * generator.standard_normal(size)).astype(np.float32)
        for _ in range(count)
    ]


def _dense(law: Distribution, size: int) -> F64:
    probs = np.zeros(size)
    probs[law.token_ids] = law.probs
    return probs


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("size", [40, 99, 1000])
def test_the_laws_along_a_text_are_those_of_llama_cpp(size: int, version: int, name: str) -> None:
    settings = replace(CASES[name], mirostat=version)
    mirostat = Mirostat(settings)
    mu = mirostat.first_mu
    with native_chain(size, settings) as chain:
        for row in _rows(size, 25, seed=len(name)):
            expected, token = apply_chain(chain, row)
            law = mirostat.distribution(row, mu)
            probs = _dense(law, size)
            np.testing.assert_array_equal(probs > 0, expected > 0)
            np.testing.assert_allclose(probs, expected, rtol=0, atol=1e-5)
            mu = mirostat.next_mu(mu, law, token)


def _full_sort(row: F32, settings: SamplingSettings, mu: float) -> F64:
    """The paper's truncations by a full sort in float64."""
    logits = row.astype(np.float64) / settings.temp
    order = np.argsort(-logits, kind="stable")
    probs = np.exp(logits[order] - logits.max())
    probs /= probs.sum()
    if settings.mirostat == 2:
        kept = max(1, int((-np.log2(probs) <= mu).sum()))
    else:
        steps = [math.log((i + 2) / (i + 1)) for i in range(99)]
        drops = [math.log(probs[i] / probs[i + 1]) for i in range(99)]
        slope = float(np.dot(steps, drops) / np.dot(steps, steps))
        excess = slope - 1
        kept = max(1, int((excess * 2**mu / (1 - len(row) ** -excess)) ** (1 / slope)))
    dense = np.zeros(len(row))
    dense[order[:kept]] = probs[:kept] / probs[:kept].sum()
    return dense


@pytest.mark.parametrize("mu", [-1.0, 0.5, 3.0, 10.0, 14.0])
@pytest.mark.parametrize("version", [1, 2])
def test_a_large_vocabulary_needs_no_sort_for_the_same_law(version: int, mu: float) -> None:
    """llama.cpp adds up float32 here: only the reference is exact."""
    settings = SamplingSettings(mirostat=version, temp=0.9)
    for row in _rows(262144, 2, seed=version):
        law = Mirostat(settings).distribution(row, mu)
        np.testing.assert_allclose(
            _dense(law, len(row)), _full_sort(row, settings, mu), rtol=0, atol=1e-12
        )


def test_mu_follows_the_surprise() -> None:
    mirostat = Mirostat(SamplingSettings(mirostat=2, mirostat_tau=3.0, mirostat_eta=0.2))
    assert mirostat.first_mu == 6.0
    law = Distribution(np.array([4, 9]), np.array([0.75, 0.25]))
    assert mirostat.next_mu(6.0, law, 9) == pytest.approx(6.0 - 0.2 * (2 - 3))
    assert mirostat.next_mu(6.0, law, 4) == pytest.approx(6.0 - 0.2 * (-math.log2(0.75) - 3))
    assert mirostat.next_mu(6.0, Distribution.point(4), 4) == pytest.approx(6.6)
    # a token that something else than this law chose
    assert mirostat.next_mu(6.0, law, 5) == 6.0


def test_version_2_worked_by_hand() -> None:
    """Surprises of 1, 2, 3 and 3 bits."""
    row = np.log(np.array([1, 4, 1, 2]) / 8).astype(np.float32)
    mirostat = Mirostat(SamplingSettings(mirostat=2, temp=1.0))

    def law(mu: float) -> dict[int, float]:
        found = mirostat.distribution(row, mu)
        return dict(zip(found.token_ids.tolist(), found.probs.round(6).tolist(), strict=True))

    assert law(0.5) == {1: 1.0}
    assert law(1.5) == {1: 1.0}
    assert law(2.5) == {1: round(2 / 3, 6), 3: round(1 / 3, 6)}
    assert law(3.5) == {0: 0.125, 1: 0.5, 2: 0.125, 3: 0.25}


@pytest.mark.parametrize("version", [1, 2])
def test_masked_tokens_have_no_probability(version: int) -> None:
    row = np.full(4096, -INF, np.float32)
    for allowed in ([7], [7, 900], list(range(50, 60))):
        row[:] = -INF
        row[allowed] = np.linspace(1, 2, len(allowed))
        for mu in (-1.0, 2.0, 10.0):
            law = Mirostat(SamplingSettings(mirostat=version)).distribution(row, mu)
            assert set(law.token_ids[law.probs > 0].tolist()) <= set(allowed)
            assert law.probs.sum() == pytest.approx(1)
    # ten tokens of about the same weight: a surprise of ten bits leaves all
    assert len(law) == 10


@pytest.mark.parametrize("version", [1, 2])
def test_a_flat_row_keeps_all_its_tokens(version: int) -> None:
    """llama.cpp's version 1 divides by zero here."""
    law = Mirostat(SamplingSettings(mirostat=version)).distribution(np.ones(64, np.float32), 10.0)
    assert len(law) == 64


@pytest.mark.parametrize("temp", [0.0, 0.8])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("bad", [-INF, math.nan])
def test_a_row_without_a_usable_logit_is_an_error(bad: float, version: int, temp: float) -> None:
    mirostat = Mirostat(SamplingSettings(mirostat=version, temp=temp))
    with pytest.raises(EngineError, match="no usable logits"):
        mirostat.distribution(np.full(300, bad, np.float32), 10.0)
