"""The sampler against llama.cpp's own chain and against a reference in float64."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.llama_chain import llama_law
from tools.properties import PROPERTY
from tools.sampler_rows import (
    EMPTY,
    INF,
    OFF,
    PENALTIES,
    VOCAB_SIZES,
    assert_same,
    made_bias,
    made_history,
    made_row,
    probs_of,
    support_of,
)
from tools.slow_chain import slow_law

from outrider.speculative.errors import EngineError
from outrider.speculative.sampler import Sampler
from outrider.speculative.settings import SamplingSettings

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


@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("name", WITH_TOP_K)
@pytest.mark.parametrize("size", VOCAB_SIZES)
def test_with_top_k_the_law_is_that_of_llama_cpp(size: int, name: str, bias: bool) -> None:
    row = made_row(size, seed=len(name))
    history = made_history(row)
    settings = WITH_TOP_K[name]
    if bias:
        settings = replace(settings, logit_bias=made_bias(row))
    probs = probs_of(Sampler(settings), row, history)
    assert_same(probs, llama_law(row, history.tolist(), settings), 1e-6)


@pytest.mark.parametrize("size", VOCAB_SIZES)
def test_default_chain_is_that_of_llama_cpp_on_many_rows(size: int) -> None:
    settings = replace(PENALTIES["repeat"], temp=0.7)
    for seed in range(4):
        row = made_row(size, seed)
        history = made_history(row)
        probs = probs_of(Sampler(settings), row, history)
        assert_same(probs, llama_law(row, history.tolist(), settings), 1e-6)


@pytest.mark.parametrize("adjusted", ["", "bias", "repeat", "all", "bias and all"])
@pytest.mark.parametrize("min_p", [0.0, 0.04])
@pytest.mark.parametrize("top_p", [1.0, 0.9])
@pytest.mark.parametrize("size", VOCAB_SIZES)
def test_without_top_k_the_law_is_that_of_the_reference(
    size: int, top_p: float, min_p: float, adjusted: str
) -> None:
    row = made_row(size, seed=5)
    history = made_history(row)
    base = PENALTIES.get(adjusted.removeprefix("bias and "), SamplingSettings())
    settings = replace(base, temp=1.3, top_k=0, top_p=top_p, min_p=min_p)
    if "bias" in adjusted:
        settings = replace(settings, logit_bias=made_bias(row))
    expected = slow_law(row, history.tolist(), settings)
    assert_same(probs_of(Sampler(settings), row, history), expected, 1e-12)


@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.999])
def test_top_p_alone_finds_its_end_in_a_flat_row(top_p: float) -> None:
    """Hundreds to all of the tokens: far more than a first look holds."""
    row = (made_row(6000, seed=1) / 30).astype(np.float32)
    settings = replace(OFF, top_p=top_p, temp=0.5)
    assert_same(probs_of(Sampler(settings), row), slow_law(row, (), settings), 1e-12)


@pytest.mark.parametrize("top_k", [0, 40])
def test_min_p_1_leaves_the_equals_of_the_best(top_k: int) -> None:
    row = np.array([0.1, 2.7, 2.7, np.nextafter(np.float32(2.7), np.float32(0))] * 20, np.float32)
    row[50:] = 0
    law = Sampler(replace(OFF, top_k=top_k, min_p=1.0)).distribution(row, EMPTY)
    best = [i for i in range(50) if i % 4 in (1, 2)]
    assert support_of(law) == pytest.approx(dict.fromkeys(best, 1 / len(best)))


@pytest.mark.parametrize("top_k", [0, -1, 64, 65, 1000])
def test_top_k_that_leaves_all_is_off(top_k: int) -> None:
    row = made_row(64, seed=3)
    settings = replace(OFF, top_k=top_k, temp=0.9)
    assert_same(probs_of(Sampler(settings), row), slow_law(row, (), settings), 1e-12)


def test_truncations_worked_by_hand() -> None:
    """Probabilities 0.5, 0.3, 0.15, 0.05: truncation sees them, temperature comes last."""
    row = np.log(np.array([0.05, 0.5, 0.15, 0.3])).astype(np.float32)

    def law(settings: SamplingSettings) -> dict[int, float]:
        support = support_of(Sampler(settings).distribution(row, EMPTY))
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
    law = support_of(sampler.distribution(row, history))
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
    assert (
        Sampler(SamplingSettings()).adjustments(made_row(64, 0), np.array([1, 2], np.int32)) is None
    )


@PROPERTY
@given(
    st.lists(st.sampled_from([-INF, -1.0, 0.0, 1.0, 2.0]), min_size=2, max_size=40),
    st.dictionaries(st.integers(0, 39), st.sampled_from([-INF, -1.0, 1.0, 2.0]), max_size=4),
    st.lists(st.integers(0, 39), max_size=6),
    st.sampled_from([0.0, 1.0]),
    st.sampled_from([0.0, -0.5]),
)
def test_temperature_0_is_the_lowest_id_of_the_best(
    values: list[float],
    bias: dict[int, float],
    history: list[int],
    frequency: float,
    temp: float,
) -> None:
    size = len(values)
    bias = {token % size: value for token, value in bias.items()}
    history = [token % size for token in history]
    logits = [value + bias.get(token, 0.0) for token, value in enumerate(values)]
    for token in set(history):
        logits[token] -= frequency * history.count(token)
    sampler = Sampler(SamplingSettings(temp=temp, frequency_penalty=frequency, logit_bias=bias))
    row, recent = np.array(values, np.float32), np.array(history, np.int32)
    if max(logits) == -INF:
        with pytest.raises(EngineError):
            sampler.argmax(row, recent)
        return
    expected = logits.index(max(logits))
    assert sampler.argmax(row, recent) == expected
    law = sampler.distribution(row, recent)
    assert support_of(law) == {expected: 1.0}
    assert sampler.is_greedy


@pytest.mark.parametrize("size", VOCAB_SIZES)
def test_temperature_0_is_that_of_llama_cpp(size: int) -> None:
    row = made_row(size, seed=11)
    history = made_history(row)
    settings = replace(PENALTIES["all"], temp=0.0, logit_bias=made_bias(row))
    probs = probs_of(Sampler(settings), row, history)
    assert_same(probs, llama_law(row, history.tolist(), settings), 0)


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
    "n-sigma": replace(OFF, top_n_sigma=1.5),
    "typical": replace(OFF, typical_p=0.7),
    "xtc": replace(OFF, xtc_probability=1.0, xtc_threshold=0.1),
    "dynamic temperature": replace(OFF, dynatemp_range=0.5),
    "greedy after typical": replace(OFF, typical_p=0.7, temp=0),
    "temperature first": SamplingSettings(samplers=("temperature", "top_p", "min_p")),
    "penalties last": SamplingSettings(samplers=("top_k", "penalties"), repeat_penalty=1.2),
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
    row = made_row(4096, seed=2).copy()
    row[1234] = bad
    with pytest.raises(EngineError, match="no usable logits"):
        Sampler(PATHS[path]).distribution(row, EMPTY)


@pytest.mark.parametrize("path", PATHS)
def test_masked_tokens_have_no_probability(path: str) -> None:
    row = np.full(4096, -INF, np.float32)
    row[[7, 900]] = 1.0, 1.5
    law = support_of(Sampler(PATHS[path]).distribution(row, EMPTY))
    assert set(law) <= {7, 900}
    assert math.fsum(law.values()) == pytest.approx(1)


@pytest.mark.parametrize("samplers", [(), ("temperature",), ("min_p", "top_k"), ("top_k", "xtc")])
def test_a_banned_token_has_no_part_in_any_chain(samplers: tuple[str, ...]) -> None:
    row = np.array([3.0, 2.0, 1.0, 0.0], np.float32)
    settings = SamplingSettings(samplers=samplers, top_k=2, logit_bias={0: -INF})
    law = Sampler(settings).distribution(row, EMPTY)
    kept = np.array([2.0, 1.0] if "top_k" in samplers else [2.0, 1.0, 0.0])
    assert law.token_ids[law.probs > 0].tolist() == list(range(1, 1 + len(kept)))
    temp = settings.temp if "temperature" in samplers else 1.0
    expected = np.exp(kept / temp) / np.exp(kept / temp).sum()
    np.testing.assert_allclose(law.probs[law.probs > 0], expected, rtol=1e-6)


def test_a_bias_on_a_token_the_row_does_not_have_changes_nothing() -> None:
    """A drafter's vocabulary may be shorter than the target's."""
    row, history = made_row(64, seed=4), np.array([1, 2, 63], np.int32)
    for settings in (SamplingSettings(), SamplingSettings(repeat_penalty=1.2)):
        plain = Sampler(settings).distribution(row, history)
        biased = Sampler(replace(settings, logit_bias={64: 9.0, 400: -INF}))
        assert support_of(biased.distribution(row, history)) == support_of(plain)


@pytest.mark.parametrize("size", [64, 49152])
def test_rows_are_not_changed(size: int) -> None:
    row = made_row(size, seed=8).copy()
    before = row.copy()
    for settings in (*WITH_TOP_K.values(), *PATHS.values()):
        Sampler(replace(settings, logit_bias=made_bias(row))).distribution(row, made_history(row))
    np.testing.assert_array_equal(row, before)
