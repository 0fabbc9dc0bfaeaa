"""The growing array of committed tokens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.properties import PROPERTY

from outrider.speculative.token_sequence import TokenSequence, common_prefix_length

tokens = st.lists(st.integers(0, 2**31 - 1), max_size=40)


@PROPERTY
@given(tokens, st.lists(st.one_of(tokens, st.floats(0, 1)), max_size=12))
def test_it_behaves_as_a_list(start: list[int], steps: list[list[int] | float]) -> None:
    """A list extends; a fraction truncates to that part."""
    sequence, expected = TokenSequence(start), list(start)
    for step in steps:
        if isinstance(step, list):
            sequence.extend(step)
            expected += step
        else:
            del expected[int(step * len(expected)) :]
            sequence.truncate(len(expected))
        assert sequence.ids.tolist() == expected
        assert len(sequence) == len(expected)
    assert sequence.ids.dtype == np.int32


def test_growth_beyond_the_first_buffer_keeps_what_was_there() -> None:
    sequence = TokenSequence()
    for token in range(3000):
        sequence.extend([token])
    sequence.extend(np.arange(3000, 9000, dtype=np.int32))
    np.testing.assert_array_equal(sequence.ids, np.arange(9000))


def test_ids_are_a_view() -> None:
    sequence = TokenSequence([1, 2, 3])
    assert np.shares_memory(sequence.ids, sequence.ids)
    assert np.shares_memory(sequence.ids[:2], sequence.ids)


def test_it_copies_what_it_is_given() -> None:
    given_ids = np.array([1, 2, 3], np.int32)
    sequence = TokenSequence(given_ids)
    given_ids[0] = 9
    assert sequence.ids.tolist() == [1, 2, 3]


@pytest.mark.parametrize("length", [-1, 4])
def test_truncating_to_what_is_not_there_is_a_mistake(length: int) -> None:
    with pytest.raises(AssertionError):
        TokenSequence([1, 2, 3]).truncate(length)


@PROPERTY
@given(st.lists(st.integers(0, 2), max_size=12), st.lists(st.integers(0, 2), max_size=12))
def test_common_prefix(a: list[int], b: list[int]) -> None:
    expected = 0
    while expected < min(len(a), len(b)) and a[expected] == b[expected]:
        expected += 1
    assert common_prefix_length(np.array(a, np.int32), np.array(b, np.int32)) == expected


def test_tokens_one_by_one() -> None:
    sequence = TokenSequence(range(5))
    revision = sequence.revision
    for token in range(5, 2000):
        sequence.append(token)
    assert sequence.ids.tolist() == list(range(2000))
    assert sequence.revision == revision


@pytest.mark.parametrize("length", [1, 5, 253, 254, 255, 256])  # a first buffer holds 256
def test_a_draft_stands_after_the_newest_token_and_is_not_added(length: int) -> None:
    sequence = TokenSequence()
    for token in range(length):
        sequence.append(token)
    revision = sequence.revision
    for draft in ((), (7,), (7, 8, 9)):
        assert sequence.last_and(draft).tolist() == [length - 1, *draft]
        assert sequence.ids.tolist() == list(range(length))
    assert sequence.revision == revision
    sequence.append(5)
    assert sequence.ids.tolist() == [*range(length), 5]
