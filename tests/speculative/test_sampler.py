"""The sampler against llama.cpp's own chain and against a reference in float64."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tools.llama_chain import llama_law
from tools.properties import PROPERTY

from outrider.speculative.distribution import Distribution
from outrider.speculative.errors import EngineError
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
WITH_TOP_K = {
    "defaults": SamplingSettings(),
    "top-k 1": SamplingSettings(top_k=1),
    "top-k alone": replace(OFF, top_k=40),
    "top-k 1024": SamplingSettings(top_k=1024, top_p=0.98, min_p=0.001),
    "top-p": replace(OFF, top_k=200, top_p=0.7),
    "top-p 0": replace(OFF, top_k=40, top_p=0.0),
    "min-p": replace(OFF, top_k=200, min_p=0.2),
    "min-p 1": replace(OFF, top_k=40, min_p=1.0),
    "cold": SamplingSettings(temp=0.1),
    "hot": SamplingSettings(temp=2.5, min_p=0.0),
    **{f"penalties: {name}": settings for name, settings in PENALTIES.items()},
    "all history": replace(PENALTIES["all"], repeat_last_n=-1),
    "no history": replace(PENALTIES["all"], repeat_last_n=0),
    "one token": replace(PENALTIES["all"], repeat_last_n=1),
}


def _row(size: int, seed: int) -> F32:
    row = (3 * np.random.default_rng(seed).standard_normal(size)).astype(np.float32)
    row.flags.writeable = False
    return row


def _history(row: F32, length: int = 100) -> I32:
    """The best tokens several times, others, and at last none of the best: windows differ."""
    generator = np.random.default_rng(length)
    best = np.argsort(row)[-12:]
    others = generator.integers(0, len(row), 30)
    mixed = np.concatenate((best.repeat(3), others))[generator.permutation(66)]
    return np.concatenate((mixed, generator.integers(0, len(row), 34))).astype(np.int32)[:length]


def _bias(row: F32) -> dict[int, float]:
    order = np.argsort(row)
    return {int(order[-1]): -INF, int(order[-3]): -2.5, int(order[2]): 30.0, int(order[9]): 0.5}


def _support(law: Distribution) -> dict[int, float]:
    pairs = zip(law.token_ids.tolist(), law.probs.tolist(), strict=True)
    return {token: prob for token, prob in pairs if prob > 0}


def _probs(sampler: Sampler, row: F32, history: I32 = EMPTY) -> F64:
    """The law over the whole vocabulary."""
    law = sampler.distribution(row, history)
    probs = np.zeros(len(row))
    probs[law.token_ids] = law.probs
    return probs


def _reference(row: F32, history: I32, settings: SamplingSettings) -> F64:
    """The chain in float64 by a full sort: probabilities of the whole vocabulary."""
    logits = row.astype(np.float64)
    for token, bias in settings.logit_bias.items():
        logits[token] += bias
    last = settings.repeat_last_n if settings.repeat_last_n >= 0 else len(history)
    for token, count in Counter(history.tolist()[len(history) - last :] if last else []).items():
        logits[token] *= settings.repeat_penalty ** (1 if logits[token] <= 0 else -1)
        logits[token] -= count * settings.frequency_penalty + settings.presence_penalty
    order = np.argsort(-logits, kind="stable")
    logits = logits[order]
    weights = np.exp(logits - logits[0])
    kept = np.ones(len(row), np.bool_)
    if settings.top_p < 1:
        # up to the token that reaches top_p, that one included
        kept[1:] = weights.cumsum()[:-1] < settings.top_p * weights.sum()
    if settings.min_p > 0:
        kept &= weights >= settings.min_p * (1 - 1e-12)
    hot = np.where(kept, np.exp((logits - logits[0]) / settings.temp), 0.0)
    probs = np.empty(len(row))
    probs[order] = hot / hot.sum()
    return probs


def _assert_same(actual: F64, expected: F64, tolerance: float) -> None:
    np.testing.assert_array_equal(actual > 0, expected > 0)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("name", WITH_TOP_K)
@pytest.mark.parametrize("size", VOCAB_SIZES)
def test_with_top_k_the_law_is_that_of_llama_cpp(size: int, name: str, bias: bool) -> None:
    row = _row(size, seed=len(name))
    history = _history(row)
    settings = WITH_TOP_K[name]
    if bias:
        settings = replace(settings, logit_bias=_bias(row))
    probs = _probs(Sampler(settings), row, history)
    _assert_same(probs, llama_law(row, history.tolist(), settings), 1e-6)


@pytest.mark.parametrize("size", VOCAB_SIZES)
def test_default_chain_is_that_of_llama_cpp_on_many_rows(size: int) -> None:
    settings = replace(PENALTIES["repeat"], temp=0.7)
    for seed in range(4):
        row = _row(size, seed)
        history = _history(row)
        probs = _probs(Sampler(settings), row, history)
        _assert_same(probs, llama_law(row, history.tolist(), settings), 1e-6)


@pytest.mark.parametrize("adjusted", ["", "bias", "repeat", "all", "bias and all"])
@pytest.mark.parametrize("min_p", [0.0, 0.04])
@pytest.mark.parametrize("top_p", [1.0, 0.9])
@pytest.mark.parametrize("size", VOCAB_SIZES)
def test_without_top_k_the_law_is_that_of_the_reference(
    size: int, top_p: float, min_p: float, adjusted: str
) -> None:
    row = _row(size, seed=5)
    history = _history(row)
    base = PENALTIES.get(adjusted.removeprefix("bias and "), SamplingSettings())
    settings = replace(base, temp=1.3, top_k=0, top_p=top_p, min_p=min_p)
    if "bias" in adjusted:
        settings = replace(settings, logit_bias=_bias(row))
    _assert_same(_probs(Sampler(settings), row, history), _reference(row, history, settings), 1e-12)


@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.999])
def test_top_p_alone_finds_its_end_in_a_flat_row(top_p: float) -> None:
    """Hundreds to all of the tokens: far more than a first look holds."""
    row = (_row(6000, seed=1) / 30).astype(np.float32)
    settings = replace(OFF, top_p=top_p, temp=0.5)
    _assert_same(_probs(Sampler(settings), row), _reference(row, EMPTY, settings), 1e-12)


@pytest.mark.parametrize("top_k", [0, 40])
def test_min_p_1_leaves_the_equals_of_the_best(top_k: int) -> None:
    row = np.array([0.1, 2.7, 2.7, np.nextafter(np.float32(2.7), np.float32(0))] * 20, np.float32)
    row[50:] = 0
    law = Sampler(replace(OFF, top_k=top_k, min_p=1.0)).distribution(row, EMPTY)
    best = [i for i in range(50) if i % 4 in (1, 2)]
    assert _support(law) == pytest.approx(dict.fromkeys(best, 1 / len(best)))


@pytest.mark.parametrize("top_k", [0, -1, 64, 65, 1000])
def test_top_k_that_leaves_all_is_off(top_k: int) -> None:
    row = _row(64, seed=3)
    settings = replace(OFF, top_k=top_k, temp=0.9)
    _assert_same(_probs(Sampler(settings), row), _reference(row, EMPTY, settings), 1e-12)


def test_truncations_worked_by_hand() -> None:
    """Probabilities 0.5, 0.3, 0.15, 0.05: truncation sees them, temperature comes last."""
    row = np.log(np.array([0.05, 0.5, 0.15, 0.3])).astype(np.float32)

    def law(settings: SamplingSettings) -> dict[int, float]:
        support = _support(Sampler(settings).distribution(row, EMPTY))
        return {token: round(prob, 6) for token, prob in support.items()}

    two = {1: 0.625, 3: 0.375}
    three = {1: round(0.5 / 0.95, 6), 3: round(0.3 / 0.95, 6), 2: round(0.15 / 0.95, 6)}
    plain = replace(OFF, temp=1.0)
    assert law(replace(plain, top_k=2)) == two
    assert law(replace(plain, top_p=0.79)) == two
    assert law(replace(plain, top_p=0.81)) == three
    assert law(replace(plain, min_p=0.61)) == {1: 1.0}
    assert law(replace(plain, min_p=0.59)) == two
    # top-p of the two that top-k leaves
    assert law(replace(plain, top_k=2, top_p=0.62)) == {1: 1.0}
    squares = 0.25 + 0.09
    assert law(replace(plain, top_k=2, temp=0.5)) == {
        1: round(0.25 / squares, 6),
        3: round(0.09 / squares, 6),
    }


@pytest.mark.parametrize("last_n", [0, -1, 64, 3])
def test_penalties_see_the_window_and_no_more(last_n: int) -> None:
    """Token i stands i + 1 places from the end of 80 tokens."""
    row = np.zeros(80, np.float32)
    history = np.arange(79, -1, -1, dtype=np.int32)
    sampler = Sampler(replace(OFF, presence_penalty=1.0, repeat_last_n=last_n))
    law = _support(sampler.distribution(row, history))
    penalised = {token for token in law if law[token] < max(law.values()) / 2}
    expected = 80 if last_n < 0 else last_n
    if expected == 80:
        assert len({round(prob, 12) for prob in law.values()}) == 1
    else:
        assert penalised == set(range(expected))
    assert min(sampler.history_length, 80) == expected


def test_penalties_worked_by_hand() -> None:
    row = np.array([2.0, -2.0, 1.0, 0.0], np.float32)
    settings = replace(OFF, repeat_penalty=2.0, frequency_penalty=0.25, presence_penalty=0.5)
    history = np.array([0, 1, 1, 0, 0], np.int32)
    adjusted = Sampler(settings).adjustments(row, history)
    assert adjusted is not None
    assert dict(zip(adjusted.token_ids.tolist(), adjusted.logits.tolist(), strict=True)) == {
        0: 2.0 / 2 - (3 * 0.25 + 0.5),
        1: -2.0 * 2 - (2 * 0.25 + 0.5),
    }


def test_bias_comes_before_penalties() -> None:
    row = np.array([1.0, 0.0], np.float32)
    settings = replace(OFF, repeat_penalty=2.0, logit_bias={0: -4.0})
    adjusted = Sampler(settings).adjustments(row, np.array([0], np.int32))
    assert adjusted is not None
    assert adjusted.logits.tolist() == [-6.0]


def test_neutral_penalties_need_no_history() -> None:
    assert Sampler(SamplingSettings()).history_length == 0
    assert Sampler(SamplingSettings()).adjustments(_row(64, 0), np.array([1, 2], np.int32)) is None


@PROPERTY
@given(
    st.lists(st.sampled_from([-INF, -1.0, 0.0, 1.0, 2.0]), min_size=2, max_size=40),
    st.dictionaries(st.integers(0, 39), st.sampled_from([-INF, -1.0, 1.0, 2.0]), max_size=4),
    st.lists(st.integers(0, 39), max_size=6),
    st.sampled_from([0.0, -0.5]),
)
def test_temperature_0_is_the_lowest_id_of_the_best(
    values: list[float], bias: dict[int, float], history: list[int], temp: float
) -> None:
    size = len(values)
    bias = {token: value for token, value in bias.items() if token < size}
    history = [token for token in history if token < size]
    logits = [value + bias.get(token, 0.0) for token, value in enumerate(values)]
    for token in set(history):
        logits[token] -= history.count(token)
    sampler = Sampler(SamplingSettings(temp=temp, frequency_penalty=1.0, logit_bias=bias))
    row, recent = np.array(values, np.float32), np.array(history, np.int32)
    if max(logits) == -INF:
        with pytest.raises(EngineError):
            sampler.argmax(row, recent)
        return
    expected = logits.index(max(logits))
    assert sampler.argmax(row, recent) == expected
    law = sampler.distribution(row, recent)
    assert _support(law) == {expected: 1.0}
    assert sampler.is_greedy


@pytest.mark.parametrize("size", VOCAB_SIZES)
def test_temperature_0_is_that_of_llama_cpp(size: int) -> None:
    row = _row(size, seed=11)
    history = _history(row)
    settings = replace(PENALTIES["all"], temp=0.0, logit_bias=_bias(row))
    probs = _probs(Sampler(settings), row, history)
    _assert_same(probs, llama_law(row, history.tolist(), settings), 0)


def test_equal_logits_beyond_the_window_of_adjusted_ones() -> None:
    """The best of the rest is the lowest id however many tie."""
    row = np.zeros(5000, np.float32)
    row[[700, 1200, 1900, 4000]] = 1.0
    settings = SamplingSettings(temp=0, logit_bias={3000: 0.5})
    assert Sampler(settings).argmax(row, EMPTY) == 700


PATHS = {
    "greedy": SamplingSettings(temp=0),
    "greedy, adjusted": SamplingSettings(temp=0, logit_bias={5: 1.0}),
    "top-k": SamplingSettings(),
    "top-k, adjusted": SamplingSettings(logit_bias={5: 1.0}),
    "top-p": replace(OFF, top_p=0.9),
    "min-p": replace(OFF, min_p=0.1),
    "nothing": OFF,
    "nothing, adjusted": replace(OFF, logit_bias={5: 1.0}),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("size", [64, 4096])
@pytest.mark.parametrize("values", list(itertools.product([-INF, math.nan], repeat=2)))
def test_a_row_without_a_usable_logit_is_an_error(
    values: tuple[float, float], size: int, path: str
) -> None:
    row = np.tile(np.array(values, np.float32), size // 2)
    with pytest.raises(EngineError, match="no usable logits"):
        Sampler(PATHS[path]).distribution(row, EMPTY)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("bad", [math.nan, INF])
def test_one_bad_logit_is_an_error(bad: float, path: str) -> None:
    row = _row(4096, seed=2).copy()
    row[1234] = bad
    with pytest.raises(EngineError, match="no usable logits"):
        Sampler(PATHS[path]).distribution(row, EMPTY)


@pytest.mark.parametrize("path", PATHS)
def test_masked_tokens_have_no_probability(path: str) -> None:
    row = np.full(4096, -INF, np.float32)
    row[[7, 900]] = 1.0, 1.5
    law = _support(Sampler(PATHS[path]).distribution(row, EMPTY))
    assert set(law) <= {7, 900}
    assert math.fsum(law.values()) == pytest.approx(1)


def test_a_bias_on_a_token_the_row_does_not_have_changes_nothing() -> None:
    """A drafter's vocabulary may be shorter than the target's."""
    row, history = _row(64, seed=4), np.array([1, 2, 63], np.int32)
    for settings in (SamplingSettings(), SamplingSettings(repeat_penalty=1.2)):
        plain = Sampler(settings).distribution(row, history)
        biased = Sampler(replace(settings, logit_bias={64: 9.0, 400: -INF}))
        assert _support(biased.distribution(row, history)) == _support(plain)


@pytest.mark.parametrize("size", [64, 49152])
def test_rows_are_not_changed(size: int) -> None:
    row = _row(size, seed=8).copy()
    before = row.copy()
    for settings in (*WITH_TOP_K.values(), *PATHS.values()):
        Sampler(replace(settings, logit_bias=_bias(row))).distribution(row, _history(row))
    np.testing.assert_array_equal(row, before)
