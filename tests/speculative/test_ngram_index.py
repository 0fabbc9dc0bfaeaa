"""The index of n-grams against a search through the whole text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.draft_law import GREEDY
from tools.properties import PROPERTY

from outrider.speculative.drafters.ngram_index import NgramIndex
from outrider.speculative.proposal import DraftRequest
from outrider.speculative.token_sequence import TokenSequence


def _follow(index: NgramIndex, tokens: Sequence[int], revision: int | None = None) -> None:
    index.follow(DraftRequest(0, np.array(tokens, np.int32), 9, GREEDY, revision=revision))


def _check(index: NgramIndex, text: list[int]) -> None:
    """Assert that all the index says about ``text`` is what a search finds."""
    n = index.n
    grams = [text[i : i + n] for i in range(len(text) - n + 1)]
    assert len(index) == len(text)
    assert len(index.hashes) == len(grams)
    for start, gram in enumerate(grams):
        powers = [2654435761 ** (n - 1 - i) for i in range(n)]
        expected = sum(t * p for t, p in zip(gram, powers, strict=True)) % 2**32
        assert index.hashes[start] == expected
        earlier = [i for i in range(start - 1, -1, -1) if grams[i] == gram]
        assert list(index.earlier(start)) == earlier
        assert all(index.is_equal(start, i) for i in earlier)


texts = st.lists(st.integers(0, 2), max_size=30)
lengths = st.integers(1, 5)


@PROPERTY
@given(texts, lengths)
def test_a_text_read_at_once(text: list[int], n: int) -> None:
    index = NgramIndex(n)
    _follow(index, text)
    _check(index, text)


@PROPERTY
@given(st.lists(st.tuples(st.integers(0, 12), texts), max_size=8), lengths, st.booleans())
def test_a_text_that_grows_and_shrinks(
    steps: list[tuple[int, list[int]]], n: int, tell: bool
) -> None:
    """Undo, another answer, an edit; with and without word of it."""
    index, sequence = NgramIndex(n), TokenSequence()
    for cut, more in steps:
        if cut:
            sequence.truncate(max(len(sequence) - cut, 0))
        sequence.extend(more)
        _follow(index, sequence.ids.tolist(), sequence.revision if tell else None)
        _check(index, sequence.ids.tolist())


@PROPERTY
@given(st.lists(texts, max_size=5), lengths)
def test_taking_back_leaves_nothing_behind(several: list[list[int]], n: int) -> None:
    """What is held is what a new index of the same text holds: no stale place, no lost memory."""
    index, new = NgramIndex(n), NgramIndex(n)
    for text in several:
        _follow(index, text)
    _follow(new, several[-1] if several else [])
    assert index._latest == new._latest
    assert index._previous == new._previous
    assert index.hashes == new.hashes


def test_ngrams_that_share_a_hash_are_told_apart() -> None:
    # 1 * factor + 0 and 0 * factor + factor are equal, modulo 2**32
    one, other = (2, 2**31 - 1), (1, (2654435761 + 2**31 - 1) % 2**32)
    assert max(one + other) < 2**31
    index = NgramIndex(2)
    text = [*one, 0, *other, 0, *one, 0, *other]
    _follow(index, text)
    assert index.hashes[0] == index.hashes[3]
    _check(index, text)
    _follow(index, text[:7])
    _check(index, text[:7])


@pytest.mark.parametrize("n", [1, 12, 1024])
def test_long_ngrams_and_large_tokens(n: int) -> None:
    numbers = np.random.default_rng(n)
    part = numbers.integers(0, 2**31, n + 40).tolist()
    index = NgramIndex(n)
    for end in (len(part), len(part) + n, 2 * len(part)):
        _follow(index, (part + part)[:end])
    last = len(index) - n
    assert next(index.earlier(last)) == last - len(part)
