"""DRY against llama.cpp's sampler, a search by hand, and its breakers against a plain scan."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tools.llama_chain import (
    apply_chain,
    llama_law,
    native_chain,
    native_text,
    native_tokens,
    native_vocabulary,
)
from tools.properties import PROPERTY
from tools.slow_chain import slow_dry

from outrider.speculative.dry import NO_BREAKERS, DryBreakers, dry_penalties
from outrider.speculative.llama import library
from outrider.speculative.sampler import Sampler
from outrider.speculative.settings import SamplingSettings

I32 = NDArray[np.int32]

PLAIN = SamplingSettings(samplers=("dry",), dry_multiplier=0.8, dry_base=1.75, dry_allowed_length=2)
BREAKERS = (
    ("\n", ":", '"', "*"),
    ("\n",),
    (".",),
    ("e",),
    (" the",),
    ("the ", "\n\n"),
    ("and then",),
    ("you: ", "He said"),
    ("é", "…", "✓✓"),
    ("a" * 60,),
    ("<s>", "</s>"),
    ("", "x"),
    ("none",),
    ("a", "none", "\n"),
)


@pytest.fixture
def vocabulary(zoo: Path) -> Iterator[Any]:
    with native_vocabulary(zoo / "target-llama.gguf") as native:
        yield native


def _breakers(vocabulary: Any, texts: Sequence[str]) -> DryBreakers:
    return DryBreakers.find(
        texts,
        library().llama_vocab_n_tokens(vocabulary),
        lambda token: native_text(vocabulary, token),
        lambda text: native_tokens(vocabulary, text),
    )


def _penalties(
    history: Sequence[int], settings: SamplingSettings, breakers: DryBreakers = NO_BREAKERS
) -> dict[int, float]:
    ids, penalties = dry_penalties(np.array(history, np.int32), settings, breakers)
    assert ids.tolist() == sorted(set(ids.tolist()))
    return dict(zip(ids.tolist(), penalties.tolist(), strict=True))


def _as_breakers(sequences: Sequence[Sequence[int]]) -> DryBreakers:
    tails: dict[int, set[tuple[int, ...]]] = {}
    for head, *tail in sequences:
        tails.setdefault(head, set()).add(tuple(tail))
    return DryBreakers({head: frozenset(ends) for head, ends in tails.items()})


def test_penalties_worked_by_hand() -> None:
    """The example of llama.cpp's comments: a b c c b c y a b c."""
    a, b, c, y = 0, 1, 2, 3
    history = [a, b, c, c, b, c, y, a, b, c]
    one = replace(PLAIN, dry_multiplier=1.0, dry_base=2.0, dry_allowed_length=1)
    # c goes on with a b c, y with b c, b with c
    assert _penalties(history, one) == {c: 4.0, y: 2.0, b: 1.0}
    assert _penalties(history, replace(one, dry_allowed_length=2)) == {c: 2.0, y: 1.0}
    assert _penalties(history, replace(one, dry_allowed_length=4)) == {}
    assert _penalties(history, replace(one, dry_penalty_last_n=9)) == {c: 2.0, y: 2.0, b: 1.0}
    assert _penalties(history, replace(one, dry_penalty_last_n=3)) == {}
    # a repetition ends at a breaker, which costs nothing
    assert _penalties(history, one, _as_breakers([[y]])) == {c: 4.0, b: 1.0}
    assert _penalties(history, one, _as_breakers([[a, b]])) == {c: 1.0, y: 1.0, b: 1.0}
    assert _penalties(history, one, _as_breakers([[b, c]])) == {}
    # of two that begin at the same place the longer one
    assert _penalties(history, one, _as_breakers([[a], [a, b]])) == {c: 1.0, y: 1.0, b: 1.0}


@pytest.mark.parametrize("allowed", [0, 1, 2, 5])
@pytest.mark.parametrize("history", [[], [1], [1, 1], [1] * 9, [1, 2, 3], [1, 2] * 40])
def test_short_and_monotonous_histories(history: list[int], allowed: int) -> None:
    settings = replace(PLAIN, dry_allowed_length=allowed)
    assert _penalties(history, settings) == pytest.approx(slow_dry(history, settings))


@PROPERTY
@given(
    st.lists(st.integers(0, 3), max_size=60),
    st.integers(0, 4),
    st.integers(1, 70),
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3), max_size=2),
)
def test_penalties_are_those_of_the_search_at_all_places(
    history: list[int], allowed: int, last_n: int, breakers: list[list[int]]
) -> None:
    settings = replace(PLAIN, dry_allowed_length=allowed, dry_penalty_last_n=last_n)
    expected = slow_dry(history, settings, breakers)
    assert _penalties(history, settings, _as_breakers(breakers)) == pytest.approx(expected)


def _logits_taken(history: Sequence[int], settings: SamplingSettings, size: int) -> Any:
    """What llama.cpp's sampler takes off a row of zeros, read from the law it leaves."""
    with native_chain(size, settings) as chain:
        for token in history:
            library().llama_sampler_accept(chain, token)
        probs, _ = apply_chain(chain, np.zeros(size, np.float32))
    return -np.log(probs) + np.log(probs.max())


@pytest.mark.parametrize("seed", range(40))
def test_penalties_are_those_of_llama_cpp(seed: int) -> None:
    dice = random.Random(seed)
    size = dice.choice([3, 6, 40])
    history = [dice.randrange(size - 1) for _ in range(dice.choice([5, 30, 200]))]
    settings = replace(
        PLAIN,
        dry_multiplier=dice.choice([0.5, -0.5, 2.0]),
        dry_base=dice.choice([1.0, 1.2, 1.75]),
        dry_allowed_length=dice.choice([0, 1, 2, 4]),
        dry_penalty_last_n=dice.choice([1, 8, 64, 300]),
    )
    ours = np.zeros(size)
    for token, penalty in _penalties(history, settings).items():
        ours[token] = penalty
    expected = _logits_taken(history, settings, size)
    np.testing.assert_allclose(ours - ours.min(), expected, rtol=0, atol=2e-4)


def test_the_power_stays_below_the_largest_float32() -> None:
    history = [1] * 300
    settings = replace(PLAIN, dry_multiplier=1e-37, dry_penalty_last_n=300, dry_base=3.0)
    assert _penalties(history, settings) == pytest.approx({1: 1e-37 * 3.0**80})
    expected = _logits_taken(history, settings, 4)
    assert expected[1] == pytest.approx(1e-37 * 3.0**80, rel=1e-4)
    # the last bit of the limit at base 2: 128, in float64 it would be 127
    assert _penalties(history, replace(settings, dry_base=2.0)) == pytest.approx(
        {1: 1e-37 * 2**128}
    )


@pytest.mark.parametrize(
    "change", [{"dry_multiplier": 0.0}, {"dry_base": 0.99}, {"dry_penalty_last_n": 0}]
)
def test_dry_that_llama_cpp_leaves_out_is_off(change: dict[str, Any]) -> None:
    sampler = Sampler(replace(PLAIN, **change))
    assert sampler.history_length == 0
    assert sampler.adjustments(np.zeros(8, np.float32), np.ones(9, np.int32)) is None


def _plain_scan(vocabulary: Any, texts: Sequence[str]) -> dict[int, set[tuple[int, ...]]]:
    """Which tokens overlap with the beginning of a text: token by token, place by place."""
    found: dict[int, set[tuple[int, ...]]] = {}
    for text in texts:
        data = text.encode()[:40]
        for token in range(library().llama_vocab_n_tokens(vocabulary) if data else 0):
            piece = native_text(vocabulary, token)
            if data in piece:
                found.setdefault(token, set()).add(())
                continue
            for place in range(len(piece)):
                if data.startswith(piece[place:]):
                    rest = data[len(piece) - place :].decode("utf-8", "surrogateescape")
                    found.setdefault(token, set()).add(tuple(native_tokens(vocabulary, rest)[:20]))
    return found


@pytest.mark.parametrize("texts", BREAKERS, ids=repr)
def test_breakers_are_those_of_a_plain_scan(vocabulary: Any, texts: tuple[str, ...]) -> None:
    used = texts[texts.index("none") + 1 :] if "none" in texts else texts
    expected = {token: frozenset(tails) for token, tails in _plain_scan(vocabulary, used).items()}
    assert _breakers(vocabulary, texts).tails == expected
    assert expected or not any(used)


@pytest.mark.parametrize("texts", [t for t in BREAKERS if "none" not in t], ids=repr)
def test_breakers_act_as_in_llama_cpp(vocabulary: Any, texts: tuple[str, ...]) -> None:
    """Texts with the breakers in them, cut into tokens in several ways."""
    size = library().llama_vocab_n_tokens(vocabulary)
    breakers = _breakers(vocabulary, texts)
    settings = replace(PLAIN, dry_allowed_length=1, dry_sequence_breakers=texts)
    dice = random.Random(len(texts[0]))
    row = np.random.default_rng(len(texts)).standard_normal(size).astype(np.float32)
    num_changed = 0
    for _ in range(25):
        words = [native_tokens(vocabulary, text) for text in (*texts, "one two", "one", " ")]
        words += [
            [token, *tail] for token, tails in list(breakers.tails.items())[:40] for tail in tails
        ]
        phrases = [dice.choice(words) for _ in range(3)]
        history = [token for _ in range(12) for token in dice.choice(phrases)][-64:]
        sampler = Sampler(settings, breakers)
        law = sampler.distribution(row, np.array(history, np.int32))
        probs = np.zeros(size)
        probs[law.token_ids] = law.probs
        expected = llama_law(row, history, settings, vocabulary)
        np.testing.assert_allclose(probs, expected, rtol=0, atol=1e-6)
        without = Sampler(settings).distribution(row, np.array(history, np.int32))
        num_changed += not np.allclose(without.probs, law.probs)
    assert num_changed or not breakers.tails


def test_breakers_that_are_longer_are_cut() -> None:
    """At 40 bytes, and their tails at 20 tokens."""
    pieces = [b"b", b"xa", b"a"]
    found = DryBreakers.find(
        ["a" * 60], 3, lambda token: pieces[token], lambda text: [len(text), *[2] * 30]
    )
    assert found.tails == {1: {(39, *[2] * 19)}, 2: {(39, *[2] * 19)}}


def test_a_part_of_a_character_reaches_the_tokenizer() -> None:
    asked = []

    def encode(text: str) -> list[int]:
        asked.append(text.encode("utf-8", "surrogateescape"))
        return [7]

    pieces = [b"", b"\xe2", b"\xe2\x80", "…".encode(), b"\x80"]
    found = DryBreakers.find(["…"], 5, lambda token: pieces[token], encode)
    assert asked == [b"\x80\xa6", b"\xa6"]
    assert found.tails == {1: {(7,)}, 2: {(7,)}, 3: {()}}


def test_a_breaker_across_two_pieces_is_in_neither() -> None:
    pieces = [b"xa", b"", b"bb", b"aaba", b"", b"ab"]
    found = DryBreakers.find(["ab"], 6, lambda token: pieces[token], lambda text: [text == "b"])
    assert found.tails == {0: {(1,)}, 3: {()}, 5: {()}}


def test_without_texts_no_piece_is_asked_for() -> None:
    def refuse(_: object) -> Any:
        raise AssertionError

    assert DryBreakers.find([], 9, refuse, refuse) == NO_BREAKERS
    assert DryBreakers.find(["\n", "none"], 9, refuse, refuse) == NO_BREAKERS
