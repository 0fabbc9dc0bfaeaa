"""ngram-simple against llama.cpp's search, written out the slow way."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.draft_law import GREEDY
from tools.properties import PROPERTY

from outrider.speculative.drafters.ngram_simple import NgramSimpleDrafter
from outrider.speculative.proposal import DraftRequest


def _slow(tokens: Sequence[int], match: int, size: int) -> tuple[int, ...]:
    """common/ngram-map.cpp: the text is all tokens but the last, which was just drawn."""
    prompt, last = list(tokens[:-1]), tokens[-1]
    length = len(prompt)
    if length <= match + size + 1:
        return ()
    pattern = [*prompt[length - match + 1 :], last]
    for start in range(length - match - 1, 0, -1):
        if prompt[start : start + match] == pattern:
            begin = start + match
            found = prompt[begin : begin + min(size, length - begin)]
            return tuple(found) if len(found) >= match else ()
    return ()


def _ask(
    drafter: NgramSimpleDrafter, tokens: Sequence[int], max_tokens: int = 99, seq_id: int = 0
) -> tuple[int, ...]:
    request = DraftRequest(seq_id, np.array(tokens, np.int32), max_tokens, GREEDY)
    [proposal] = drafter.propose([request])
    return proposal.token_ids


tokens = st.lists(st.integers(0, 3), min_size=1, max_size=60)
matches = st.integers(1, 4)
sizes = st.integers(1, 6)


@PROPERTY
@given(tokens, matches, sizes)
def test_one_text(text: list[int], match: int, size: int) -> None:
    assert _ask(NgramSimpleDrafter(match, size), text) == _slow(text, match, size)


@PROPERTY
@given(tokens, st.lists(st.integers(1, 9), max_size=12), matches, sizes)
def test_a_growing_text(text: list[int], growth: list[int], match: int, size: int) -> None:
    drafter = NgramSimpleDrafter(match, size)
    end = 1
    for more in (0, *growth):
        end += more
        assert _ask(drafter, text[:end]) == _slow(text[:end], match, size)


@PROPERTY
@given(st.lists(tokens, min_size=2, max_size=5), st.integers(0, 60), matches, sizes)
def test_texts_that_change_shrink_and_share_a_beginning(
    texts: list[list[int]], shared: int, match: int, size: int
) -> None:
    """A new chat, an undo, a branch: the index is that of the text that is asked about."""
    drafter = NgramSimpleDrafter(match, size)
    for text in (*texts, texts[0]):
        branch = [*texts[0][:shared], *text]
        assert _ask(drafter, branch) == _slow(branch, match, size)


@PROPERTY
@given(tokens, tokens, matches, sizes)
def test_sequences_do_not_mix(one: list[int], other: list[int], match: int, size: int) -> None:
    drafter = NgramSimpleDrafter(match, size)
    for end in range(1, 1 + max(len(one), len(other)), 3):
        for seq_id, text in enumerate((one[:end], other[:end])):
            assert _ask(drafter, text, seq_id=seq_id) == _slow(text, match, size)
    drafter.forget(0)
    assert _ask(drafter, other, seq_id=0) == _slow(other, match, size)


def test_by_hand() -> None:
    #       0  1  2  3  4  5  6  7  8  9
    text = [9, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3]
    drafter = NgramSimpleDrafter(match=3, size=4)
    assert _ask(drafter, text) == (4, 5, 6, 7)
    assert _ask(drafter, text, max_tokens=2) == (4, 5)
    # the latest occurrence wins: 6 after 1 2 3, and less than four tokens follow it
    latest = [9, 1, 2, 3, 4, 4, 1, 2, 3, 6, 7, 8, 1, 2, 3]
    assert _ask(drafter, latest) == (6, 7, 8, 1)
    # fewer tokens than were matched: nothing
    assert _ask(drafter, [9, 9, 9, 5, 5, 5, 8, 1, 2, 3, 1, 2, 3]) == ()
    # at position 0 llama.cpp never looks
    assert _ask(drafter, [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3]) == ()


@pytest.mark.parametrize(("n_max", "expected"), [(None, 4), (2, 2), (9, 4)])
def test_a_draft_is_bounded_apart_from_what_is_searched(n_max: int | None, expected: int) -> None:
    drafter = NgramSimpleDrafter(3, 4, n_max)
    assert drafter.n_max == expected
    text = [9, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3]
    assert _ask(drafter, text) == (4, 5, 6, 7)[:expected]
