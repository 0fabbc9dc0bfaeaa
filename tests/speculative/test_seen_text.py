"""A drafter's view of a sequence: what still stands, and what it costs to know."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.draft_law import GREEDY
from tools.properties import PROPERTY
from tools.slow_ngrams import shared

from outrider.speculative.drafters.seen_text import Change, SeenText
from outrider.speculative.proposal import DraftRequest
from outrider.speculative.token_sequence import TokenSequence

texts = st.lists(st.integers(0, 2), min_size=1, max_size=12)


def _request(tokens: Sequence[int], revision: int | None = None) -> DraftRequest:
    return DraftRequest(0, np.array(tokens, np.int32), 9, GREEDY, revision=revision)


@PROPERTY
@given(st.lists(texts, max_size=6))
def test_it_becomes_each_text(several: list[list[int]]) -> None:
    seen, before = SeenText(), list[int]()
    for text in several:
        change = seen.compare(_request(text))
        assert seen.ids.tolist() == before
        assert change == seen.follow(_request(text))
        assert change.num_kept == shared(before, text)
        assert seen.ids.tolist() == text
        assert len(seen) == len(text)
        before = text


@PROPERTY
@given(st.lists(st.tuples(st.integers(0, 9), texts), min_size=1, max_size=6))
def test_it_follows_a_sequence_that_says_when_tokens_are_taken_back(
    steps: list[tuple[int, list[int]]],
) -> None:
    """Each step takes tokens back (0: none) and adds some."""
    sequence, seen = TokenSequence(), SeenText()
    for number, (cut, more) in enumerate(steps):
        before = seen.ids.tolist()
        if cut:
            sequence.truncate(max(len(sequence) - cut, 0))
        sequence.extend(more)
        change = seen.follow(_request(sequence.ids.tolist(), sequence.revision))
        assert change == Change(shared(before, sequence.ids.tolist()), cut > 0 or not number)
        assert seen.ids.tolist() == sequence.ids.tolist()


def test_without_a_revision_a_new_answer_is_one_that_takes_back() -> None:
    seen = SeenText()
    assert seen.follow(_request([1, 2])) == Change(0, is_new_answer=True)
    assert seen.follow(_request([1, 2, 3])) == Change(2, is_new_answer=False)
    assert seen.follow(_request([1, 2])) == Change(2, is_new_answer=True)


@pytest.mark.parametrize("length", [10, 100_000])
def test_tokens_that_cannot_have_changed_are_not_looked_at(length: int) -> None:
    seen = SeenText()
    tokens = np.arange(length, dtype=np.int32)
    seen.follow(DraftRequest(0, tokens, 9, GREEDY, revision=5))
    # not what a sequence does: only a comparison could tell
    other = np.concatenate((-tokens, [7])).astype(np.int32)
    change = seen.follow(DraftRequest(0, other, 9, GREEDY, revision=5))
    assert change == Change(length, is_new_answer=False)
    assert seen.ids.tolist() == [*tokens.tolist(), 7]


def test_two_sequences_never_have_the_same_revision() -> None:
    revisions = [TokenSequence([1]).revision for _ in range(9)]
    assert len(set(revisions)) == 9
    sequence = TokenSequence([1, 2, 3])
    before = sequence.revision
    sequence.extend([4])
    assert sequence.revision == before
    sequence.truncate(4)
    assert sequence.revision not in (before, *revisions)
