"""Every sampler of the chain: alone, with others and in any order; what greedy means then."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from tools.llama_chain import llama_law
from tools.sampler_rows import (
    EMPTY,
    F32,
    I32,
    INF,
    OFF,
    PENALTIES,
    assert_same,
    made_bias,
    made_history,
    made_row,
    probs_of,
    support_of,
)
from tools.slow_chain import slow_law

from outrider.speculative.sampler import Sampler
from outrider.speculative.settings import SAMPLERS, SamplingSettings

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
    probs = probs_of(Sampler(settings), row, history)
    expected = slow_law(row, history.tolist(), settings, xtc_acts=acts)
    assert_same(probs, expected, 1e-9)
    if with_llama:
        assert_same(probs, llama_law(row, history.tolist(), settings), 1e-5)


def _mild_bias(row: F32) -> dict[int, float]:
    """One after which no probability is too small for a float32."""
    return {token: min(max(bias, -9.0), 9.0) for token, bias in made_bias(row).items()}


@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("name", [*ALONE, *TOGETHER, *ORDERS])
@pytest.mark.parametrize("size", [64, 512, 4099])
def test_every_sampler_alone_and_with_others_is_that_of_llama_cpp(
    size: int, name: str, bias: bool
) -> None:
    row = made_row(size, seed=len(name))
    settings = {**ALONE, **TOGETHER, **ORDERS}[name]
    if bias:
        settings = replace(settings, logit_bias=_mild_bias(row))
    _check(row, made_history(row), settings, with_llama=True)


@pytest.mark.parametrize("name", [*ALONE, *TOGETHER, *ORDERS])
def test_every_sampler_on_a_large_vocabulary(name: str) -> None:
    """llama.cpp adds up tens of thousands of float32 here: only the reference is exact."""
    row = made_row(49153, seed=len(name))
    settings = replace({**ALONE, **TOGETHER, **ORDERS}[name], logit_bias=made_bias(row))
    _check(row, made_history(row), settings, with_llama=False)


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
    row = made_row(dice.choice([16, 300, 1500]), seed)
    settings = _any_settings(dice)
    if dice.random() < 0.5:
        settings = replace(settings, logit_bias=_mild_bias(row))
    with_llama = _is_clear_in_llama(settings)
    _check(row, _repetitive(dice, row), settings, with_llama=with_llama)


@pytest.mark.parametrize("seed", range(40))
def test_any_order_on_a_row_that_a_grammar_masked(seed: int) -> None:
    dice = random.Random(1000 + seed)
    row = made_row(dice.choice([64, 5000]), seed).copy()
    allowed = dice.sample(range(len(row)), dice.choice([1, 2, 5, 50]))
    masked = np.full(len(row), -INF, np.float32)
    masked[allowed] = row[allowed]
    settings = replace(_any_settings(dice), temp=dice.choice([0.0, 0.8]))
    history = _repetitive(dice, masked)
    _check(masked, history, settings, with_llama=False)
    law = support_of(Sampler(settings).distribution(masked, history))
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
        support = support_of(Sampler(settings).distribution(row, EMPTY, coin))
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
        return len(support_of(sampler.distribution(row, EMPTY, coin)))

    assert [size(coin) for coin in (0.0, 0.3, 0.3001, 0.9999)] == [2, 2, 4, 4]
    assert len(support_of(sampler.distribution(row, EMPTY))) == 4
    half = Sampler(replace(sampler.settings, xtc_threshold=0.5))
    assert support_of(half.distribution(np.zeros(2, np.float32), EMPTY, 0.0)) == {1: 1.0}
    for settings in (
        replace(sampler.settings, xtc_probability=0.0),
        replace(sampler.settings, xtc_threshold=0.51),
        replace(sampler.settings, samplers=("top_k",)),
        replace(sampler.settings, mirostat=2),
    ):
        still = Sampler(settings)
        assert not still.uses_coin
        assert len(support_of(still.distribution(row, EMPTY, 0.0))) == 4


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
    sizes = {
        len(support_of(sampler.distribution(made_row(64, seed), EMPTY, 0.0))) for seed in range(8)
    }
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
    row, known = made_row(64, seed=4), [1, 2, 3, 1, 2]
    settings = replace(DRY, repeat_penalty=1.2, frequency_penalty=0.1)
    for samplers in (SAMPLERS, ("top_k", "penalties", "dry")):
        sampler = Sampler(replace(settings, samplers=samplers))
        plain = sampler.distribution(row, np.array(known, np.int32))
        longer = sampler.distribution(row, np.array([90, 70, *known], np.int32))
        assert support_of(longer) == pytest.approx(support_of(plain))


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
        assert set(support_of(Sampler(settings).distribution(row, EMPTY, 0.0))) == expected
