"""The sampler against llama.cpp's own chain and against a reference in float64."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tools.llama_chain import llama_law
from tools.properties import PROPERTY
from tools.slow_chain import slow_law

from outrider.speculative.distribution import Distribution
from outrider.speculative.errors import EngineError
from outrider.speculative.sampler import Sampler
from outrider.speculative.settings import SAMPLERS, SamplingSettings

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
    return _dense(sampler.distribution(row, history), len(row))


def _dense(law: Distribution, size: int) -> F64:
    probs = np.zeros(size)
    probs[law.token_ids] = law.probs
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
    expected = slow_law(row, history.tolist(), settings)
    _assert_same(_probs(Sampler(settings), row, history), expected, 1e-12)


@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.999])
def test_top_p_alone_finds_its_end_in_a_flat_row(top_p: float) -> None:
    """Hundreds to all of the tokens: far more than a first look holds."""
    row = (_row(6000, seed=1) / 30).astype(np.float32)
    settings = replace(OFF, top_p=top_p, temp=0.5)
    _assert_same(_probs(Sampler(settings), row), slow_law(row, (), settings), 1e-12)


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
    _assert_same(_probs(Sampler(settings), row), slow_law(row, (), settings), 1e-12)


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


DRY = SamplingSettings(dry_multiplier=0.8, dry_penalty_last_n=100)
XTC = SamplingSettings(xtc_probability=1.0, xtc_threshold=0.05)
ALONE = {
    "dry": replace(OFF, dry_multiplier=0.8, dry_penalty_last_n=100),
    "n-sigma": replace(OFF, top_n_sigma=1.0),
    "wide n-sigma": replace(OFF, top_n_sigma=2.5),
    "typical": replace(OFF, typical_p=0.5),
    "wide typical": replace(OFF, typical_p=0.95),
    "typical 0": replace(OFF, typical_p=0.0),
    "xtc": replace(OFF, xtc_probability=1.0, xtc_threshold=0.02),
    "xtc that finds one token": replace(OFF, xtc_probability=1.0, xtc_threshold=0.5),
    "xtc 0": replace(OFF, xtc_probability=1.0, xtc_threshold=0.0),
    "xtc that is off": replace(OFF, xtc_probability=1.0, xtc_threshold=0.51),
    "dynamic temperature": replace(OFF, temp=0.9, dynatemp_range=0.5),
    "dynamic temperature, bent": replace(OFF, temp=0.9, dynatemp_range=0.5, dynatemp_exp=2.5),
    "dynamic temperature from 0": replace(OFF, temp=0.3, dynatemp_range=0.8, dynatemp_exp=0.7),
    "dynamic temperature at 0": replace(OFF, temp=0.0, dynatemp_range=0.8),
    "dynamic temperature below 0": replace(OFF, temp=-0.5, dynatemp_range=0.3),
    "temperature 1": replace(OFF, temp=1.0),
    "negative range": replace(OFF, temp=0.7, dynatemp_range=-1.0),
}
TOGETHER = {
    "n-sigma and the rest": SamplingSettings(top_n_sigma=0.8),
    "n-sigma, dynamic temperature": replace(OFF, top_n_sigma=1.0, dynatemp_range=0.4),
    "n-sigma of the best, dynamic": replace(OFF, top_k=40, top_n_sigma=0.5, dynatemp_range=0.4),
    "typical and the rest": SamplingSettings(typical_p=0.8),
    "typical of the best": replace(OFF, top_k=200, typical_p=0.4, temp=0.9),
    "xtc and the rest": SamplingSettings(xtc_probability=1.0, xtc_threshold=0.08),
    "xtc, dynamic temperature": replace(XTC, dynatemp_range=0.5),
    "dry and penalties": replace(DRY, repeat_penalty=1.1),
    "all": replace(
        DRY,
        repeat_penalty=1.1,
        top_n_sigma=2.0,
        typical_p=0.99,
        xtc_probability=1.0,
        xtc_threshold=0.04,
        dynatemp_range=0.3,
    ),
    "greedy after typical": replace(OFF, typical_p=0.3, temp=0),
    "greedy after xtc": replace(XTC, temp=0),
    "greedy after all": replace(DRY, typical_p=0.6, xtc_probability=1.0, temp=0),
}
ORDERS = {
    "temperature first": SamplingSettings(samplers=("temperature", "top_k", "top_p", "min_p")),
    "temperature twice": SamplingSettings(samplers=("temperature", "top_k", "temperature")),
    "temperature 0 first": SamplingSettings(samplers=("temperature", "penalties"), temp=0),
    "no temperature": SamplingSettings(samplers=("top_k", "top_p", "min_p"), temp=0),
    "penalties last": replace(PENALTIES["all"], samplers=("top_k", "temperature", "penalties")),
    "penalties twice": replace(PENALTIES["all"], samplers=("penalties", "penalties", "top_k")),
    "penalties between": replace(PENALTIES["all"], samplers=("min_p", "penalties", "top_p")),
    "penalties before the argmax": replace(
        OFF, presence_penalty=20, samplers=("top_k", "penalties", "temperature"), top_k=3, temp=0
    ),
    "dry last": replace(DRY, samplers=("top_k", "dry")),
    "xtc first": replace(XTC, samplers=("xtc", "top_p", "temperature")),
    "xtc between": replace(XTC, samplers=("min_p", "xtc", "typ_p"), typical_p=0.8),
    "hot n-sigma": SamplingSettings(samplers=("temperature", "top_n_sigma"), top_n_sigma=1.0),
    "hot typical": SamplingSettings(samplers=("temperature", "typ_p"), typical_p=0.6, temp=1.5),
    "hot xtc": replace(XTC, samplers=("temperature", "xtc", "penalties"), repeat_penalty=1.2),
    "dynamic temperature first": SamplingSettings(
        samplers=("temperature", "top_k", "min_p"), dynatemp_range=0.5
    ),
    "top-p twice": replace(
        XTC, samplers=("top_p", "xtc", "top_p", "min_p"), xtc_threshold=0.003, min_p=0.01
    ),
    "xtc first, dynamic": replace(XTC, samplers=("xtc", "temperature"), dynatemp_range=0.5),
    "nothing": SamplingSettings(samplers=()),
}


def _check(row: F32, history: I32, settings: SamplingSettings, *, with_llama: bool) -> None:
    acts = settings.xtc_probability >= 1
    probs = _probs(Sampler(settings), row, history)
    expected = slow_law(row, history.tolist(), settings, xtc_acts=acts)
    _assert_same(probs, expected, 1e-9)
    if with_llama:
        _assert_same(probs, llama_law(row, history.tolist(), settings), 1e-5)


def _mild_bias(row: F32) -> dict[int, float]:
    """One after which no probability is too small for a float32."""
    return {token: min(max(bias, -9.0), 9.0) for token, bias in _bias(row).items()}


@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("name", [*ALONE, *TOGETHER, *ORDERS])
@pytest.mark.parametrize("size", [64, 512, 4099])
def test_every_sampler_alone_and_with_others_is_that_of_llama_cpp(
    size: int, name: str, bias: bool
) -> None:
    row = _row(size, seed=len(name))
    settings = {**ALONE, **TOGETHER, **ORDERS}[name]
    if bias:
        settings = replace(settings, logit_bias=_mild_bias(row))
    _check(row, _history(row), settings, with_llama=True)


@pytest.mark.parametrize("name", [*ALONE, *TOGETHER, *ORDERS])
def test_every_sampler_on_a_large_vocabulary(name: str) -> None:
    """llama.cpp adds up tens of thousands of float32 here: only the reference is exact."""
    row = _row(49153, seed=len(name))
    settings = replace({**ALONE, **TOGETHER, **ORDERS}[name], logit_bias=_bias(row))
    _check(row, _history(row), settings, with_llama=False)


def _any_settings(dice: random.Random) -> SamplingSettings:
    """Any samplers in any order, some twice, each with a value that does something or none."""
    names = [name for name in SAMPLERS if dice.random() < 0.6]
    names += [name for name in SAMPLERS if dice.random() < 0.1]
    dice.shuffle(names)

    def pick(off: float, *values: float) -> float:
        return dice.choice([off, *values])

    return SamplingSettings(
        samplers=tuple(names),
        temp=pick(1.0, 0.3, 0.8, 1.7),
        dynatemp_range=pick(0.0, 0.0, 0.4),
        dynatemp_exp=pick(1.0, 0.6, 2.0),
        top_k=int(pick(0, 3, 40, 300)),
        top_p=pick(1.0, 0.4, 0.9),
        min_p=pick(0.0, 0.02, 0.3),
        typical_p=pick(1.0, 0.3, 0.9),
        top_n_sigma=pick(-1.0, 0.7, 2.0),
        xtc_probability=pick(0.0, 1.0),
        xtc_threshold=pick(0.1, 0.03, 0.3),
        repeat_penalty=pick(1.0, 0.8, 1.3),
        repeat_last_n=int(pick(64, -1, 5)),
        frequency_penalty=pick(0.0, 0.3),
        presence_penalty=pick(0.0, -0.4),
        dry_multiplier=pick(0.0, 0.8),
        dry_allowed_length=int(pick(2, 1, 3)),
        dry_penalty_last_n=int(pick(64, 20)),
    )


def _is_clear_in_llama(settings: SamplingSettings) -> bool:
    """False where a masked token makes llama.cpp's typical sampler compute 0 times infinity."""
    names, is_masking = settings.samplers, settings.top_n_sigma > 0
    return not (
        settings.typical_p < 1
        and is_masking
        and "typ_p" in names
        and "top_n_sigma" in names
        and names.index("top_n_sigma") < len(names) - 1 - names[::-1].index("typ_p")
    )


def _repetitive(dice: random.Random, row: F32) -> I32:
    """The best tokens over and over, so that all samplers with a memory act."""
    few = np.argsort(row)[-dice.choice([3, 8]) :].tolist()
    return np.array([dice.choice(few) for _ in range(dice.choice([0, 1, 30, 90]))], np.int32)


@pytest.mark.parametrize("seed", range(150))
def test_any_order_of_any_samplers_is_that_of_llama_cpp(seed: int) -> None:
    dice = random.Random(seed)
    row = _row(dice.choice([16, 300, 1500]), seed)
    settings = _any_settings(dice)
    if dice.random() < 0.5:
        settings = replace(settings, logit_bias=_mild_bias(row))
    with_llama = _is_clear_in_llama(settings)
    _check(row, _repetitive(dice, row), settings, with_llama=with_llama)


@pytest.mark.parametrize("seed", range(40))
def test_any_order_on_a_row_that_a_grammar_masked(seed: int) -> None:
    dice = random.Random(1000 + seed)
    row = _row(dice.choice([64, 5000]), seed).copy()
    allowed = dice.sample(range(len(row)), dice.choice([1, 2, 5, 50]))
    masked = np.full(len(row), -INF, np.float32)
    masked[allowed] = row[allowed]
    settings = replace(_any_settings(dice), temp=dice.choice([0.0, 0.8]))
    history = _repetitive(dice, masked)
    _check(masked, history, settings, with_llama=False)
    law = _support(Sampler(settings).distribution(masked, history))
    assert set(law) <= set(allowed)
    assert math.fsum(law.values()) == pytest.approx(1)


def test_the_default_order_on_a_masked_row_is_that_of_llama_cpp() -> None:
    row = np.full(500, -INF, np.float32)
    row[[3, 77, 400]] = 0.5, 1.0, -0.25
    for extra in (SamplingSettings(), XTC, SamplingSettings(dynatemp_range=0.5)):
        _check(row, EMPTY, extra, with_llama=True)


def test_new_truncations_worked_by_hand() -> None:
    """Probabilities 1/2, 1/4, 1/8, 1/8: the entropy is 1.75 bits, the surprises 1, 2, 3, 3."""
    row = np.log(np.array([1, 4, 1, 2]) / 8).astype(np.float32)

    def law(settings: SamplingSettings, coin: float = 0.0) -> dict[int, float]:
        support = _support(Sampler(settings).distribution(row, EMPTY, coin))
        return {token: round(prob, 6) for token, prob in support.items()}

    plain = replace(OFF, temp=1.0)
    assert law(replace(plain, typical_p=0.2)) == {3: 1.0}
    # the next nearest is the most probable
    assert law(replace(plain, typical_p=0.3)) == {3: round(1 / 3, 6), 1: round(2 / 3, 6)}
    # of the two at the same distance the lower id
    assert law(replace(plain, typical_p=0.8)) == {3: 0.285714, 1: 0.571429, 0: 0.142857}
    assert law(replace(plain, typical_p=0.3, temp=0)) == {1: 1.0}
    assert law(replace(plain, typical_p=0.2, temp=0)) == {3: 1.0}
    # of those with a quarter or more only the last
    quarter = replace(plain, xtc_probability=0.5, xtc_threshold=0.2)
    assert law(quarter) == {3: 0.5, 0: 0.25, 2: 0.25}
    assert law(replace(quarter, temp=0)) == {3: 1.0}
    assert law(replace(quarter, xtc_threshold=0.4)) == {0: 0.125, 1: 0.5, 2: 0.125, 3: 0.25}
    # in bits: mean -2.25, deviation 0.829
    assert law(replace(plain, top_n_sigma=1.0)) == {1: 1.0}
    assert law(replace(plain, top_n_sigma=1.3)) == {1: round(2 / 3, 6), 3: round(1 / 3, 6)}
    # temperature 0 + 2 * (1.75 / 2): logits in bits are divided by 1.75
    weights = [2 ** (bits / 1.75) for bits in (-3, -1, -3, -2)]
    assert law(replace(plain, dynatemp_range=1.0)) == {
        token: round(weight / sum(weights), 6) for token, weight in enumerate(weights)
    }


def test_xtc_acts_when_the_coin_says_so() -> None:
    row = np.array([2.0, 1.9, 1.8, -3.0], np.float32)
    sampler = Sampler(replace(OFF, xtc_probability=0.3, xtc_threshold=0.1))
    assert sampler.uses_coin

    def size(coin: float) -> int:
        return len(_support(sampler.distribution(row, EMPTY, coin)))

    assert [size(coin) for coin in (0.0, 0.3, 0.3001, 0.9999)] == [2, 2, 4, 4]
    assert len(_support(sampler.distribution(row, EMPTY))) == 4
    half = Sampler(replace(sampler.settings, xtc_threshold=0.5))
    assert _support(half.distribution(np.zeros(2, np.float32), EMPTY, 0.0)) == {1: 1.0}
    for settings in (
        replace(sampler.settings, xtc_probability=0.0),
        replace(sampler.settings, xtc_threshold=0.51),
        replace(sampler.settings, samplers=("top_k",)),
        replace(sampler.settings, mirostat=2),
    ):
        still = Sampler(settings)
        assert not still.uses_coin
        assert len(_support(still.distribution(row, EMPTY, 0.0))) == 4


GREEDY = {
    "temperature 0": (SamplingSettings(temp=0), True),
    "below 0": (SamplingSettings(temp=-1), True),
    "warm": (SamplingSettings(temp=0.1), False),
    "no temperature": (SamplingSettings(temp=0, samplers=("top_k",)), False),
    "dynamic": (SamplingSettings(temp=0, dynatemp_range=0.5), False),
    "dynamic below 0": (SamplingSettings(temp=-0.5, dynatemp_range=0.5), True),
    "xtc": (replace(XTC, temp=0), True),
    "mirostat": (SamplingSettings(temp=0, mirostat=2, samplers=("top_k",)), True),
    "dynamic mirostat": (SamplingSettings(temp=0, mirostat=1, dynatemp_range=0.5), True),
    "warm mirostat": (SamplingSettings(mirostat=1), False),
}


@pytest.mark.parametrize("name", GREEDY)
def test_greedy_means_that_every_law_is_a_point(name: str) -> None:
    settings, is_greedy = GREEDY[name]
    sampler = Sampler(settings)
    assert sampler.is_greedy == is_greedy
    sizes = {len(_support(sampler.distribution(_row(64, seed), EMPTY, 0.0))) for seed in range(8)}
    assert (sizes == {1}) == is_greedy


def test_nothing_after_temperature_0_is_looked_at() -> None:
    samplers = ("top_k", "temperature", "penalties", "dry", "xtc")
    settings = replace(DRY, samplers=samplers, repeat_penalty=2.0, xtc_probability=1.0, temp=0)
    sampler = Sampler(settings)
    assert sampler.history_length == 0
    assert not sampler.uses_coin
    row = np.array([1.0, 3.0, 2.0], np.float32)
    assert sampler.argmax(row, np.ones(9, np.int32)) == 1


def test_the_argmax_is_the_best_after_bias_penalties_and_dry() -> None:
    row = np.zeros(64, np.float32)
    row[[5, 6, 7]] = 3.0, 2.9, 2.8
    text = np.array([1, 2, 3, 5, 1, 2, 3], np.int32)
    settings = replace(DRY, xtc_probability=1.0, temp=0.7)
    assert Sampler(settings).argmax(row, text) == 6
    assert Sampler(replace(settings, logit_bias={6: -1.0})).argmax(row, text) == 7
    assert Sampler(replace(settings, samplers=("top_k",))).argmax(row, text) == 5
    assert Sampler(replace(settings, mirostat=2, logit_bias={5: -1.0})).argmax(row, text) == 6


def test_the_history_is_as_long_as_the_longest_memory() -> None:
    assert Sampler(DRY).history_length == 100
    assert Sampler(replace(DRY, repeat_penalty=1.1, repeat_last_n=128)).history_length == 128
    assert Sampler(replace(DRY, samplers=("penalties",))).history_length == 0
    assert Sampler(replace(DRY, mirostat=1)).history_length == 0
    assert Sampler(replace(DRY, dry_penalty_last_n=-1)).history_length == 0


def test_a_history_beyond_the_vocabulary_of_the_row_changes_nothing() -> None:
    """A drafter's vocabulary may be shorter than the target's."""
    row, known = _row(64, seed=4), [1, 2, 3, 1, 2]
    settings = replace(DRY, repeat_penalty=1.2, frequency_penalty=0.1)
    for samplers in (SAMPLERS, ("top_k", "penalties", "dry")):
        sampler = Sampler(replace(settings, samplers=samplers))
        plain = sampler.distribution(row, np.array(known, np.int32))
        longer = sampler.distribution(row, np.array([90, 70, *known], np.int32))
        assert _support(longer) == pytest.approx(_support(plain))


def test_the_order_of_equals_is_by_token_id_everywhere() -> None:
    row = np.zeros(3000, np.float32)
    row[[2000, 10, 700]] = 2.0
    cases = {
        "top_k": (replace(OFF, top_k=2, typical_p=0.999), {10, 700}),
        "top_p": (replace(OFF, top_p=0.003), {10, 700}),
        "xtc": (replace(OFF, top_k=3, xtc_probability=1.0), {2000}),
        "typical": (replace(OFF, top_k=3, typical_p=0.5), {10, 700}),
        "greedy typical": (replace(OFF, typical_p=0.5, top_k=3, temp=0), {10}),
    }
    for settings, expected in cases.values():
        assert set(_support(Sampler(settings).distribution(row, EMPTY, 0.0))) == expected
