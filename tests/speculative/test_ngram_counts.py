"""Counts of n-grams, forwards and backwards, against plain dictionaries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tools.properties import PROPERTY

from outrider.speculative.drafters.ngram_counts import Followers, NgramCounts

ngrams = st.sampled_from([b"abcd", b"abcdabcd", b"efgh"])
tokens = st.sampled_from([0, 1, 2, 2**31 - 1])
amounts = st.sampled_from([1, 1, 3, 2**31])
Plain = dict[bytes, dict[int, int]]


def _add(plain: Plain, ngram: bytes, token: int, count: int) -> None:
    part = plain.setdefault(ngram, {})
    part[token] = part.get(token, 0) + count


def _check(counts: NgramCounts, plain: Plain) -> None:
    assert {ngram: dict(part) for ngram, part in counts} == plain
    assert len(counts) == len(plain)
    for ngram, part in plain.items():
        followers = counts.after(ngram)
        assert followers is not None
        # the order counts: it decides between equal ones
        assert list(followers.counts.items()) == list(part.items())
        assert followers.total == sum(part.values())
        assert part[followers.best] == max(part.values())
    assert counts.after(b"gone") is None


@PROPERTY
@given(st.lists(st.tuples(ngrams, tokens, amounts), max_size=30))
def test_adding(added: list[tuple[bytes, int, int]]) -> None:
    counts, plain = NgramCounts(), Plain()
    for ngram, token, count in added:
        counts.add(ngram, token, count)
        _add(plain, ngram, token, count)
        _check(counts, plain)


@PROPERTY
@given(st.lists(st.tuples(ngrams, tokens), max_size=30), st.data())
def test_taking_back(added: list[tuple[bytes, int]], data: st.DataObject) -> None:
    """From the end, as an undo does: what is left is what was added until then."""
    counts = NgramCounts()
    for ngram, token in added:
        counts.add(ngram, token)
    for end in range(len(added), data.draw(st.integers(0, len(added))), -1):
        counts.take_back(*added[end - 1])
        plain = Plain()
        for ngram, token in added[: end - 1]:
            _add(plain, ngram, token, 1)
        _check(counts, plain)


@PROPERTY
@given(*[st.lists(st.tuples(ngrams, tokens, amounts), max_size=12)] * 2)
def test_merging(ours: list[tuple[bytes, int, int]], theirs: list[tuple[bytes, int, int]]) -> None:
    one, other, plain = NgramCounts(), NgramCounts(), Plain()
    for ngram, token, count in ours:
        one.add(ngram, token, count)
        _add(plain, ngram, token, count)
    for ngram, token, count in theirs:
        other.add(ngram, token, count)
    before = {ngram: dict(part) for ngram, part in other}
    one.merge(other)
    for ngram, part in before.items():
        for token, count in part.items():
            _add(plain, ngram, token, count)
    _check(one, plain)
    _check(other, before)


def test_the_best_of_several() -> None:
    followers = Followers(7, 2)
    followers.add(8, 3)
    assert followers.best == 8
    followers.add(8, -2)
    assert followers.best == 7
    followers.add(7, -2)
    assert (followers.best, followers.total, followers.counts) == (8, 1, {8: 1})
