"""ngram-mod and its pool against llama.cpp's, written out the slow way."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.conversation import Answer, Talk, conversations
from tools.draft_law import GREEDY
from tools.properties import PROPERTY
from tools.slow_ngrams import SlowMod, SlowPool

from outrider.speculative.drafters.ngram_mod import NgramModDrafter
from outrider.speculative.drafters.ngram_pool import NgramPool
from outrider.speculative.proposal import DraftRequest, Verdict

N_MAX = 6
matches = st.integers(1, 4)
minima = st.integers(0, 8)
# small ones collide and are cleared for being full
sizes = st.sampled_from([16, 64, 2**20])


def _talks(match: int, n_min: int, size: int, count: int) -> tuple[list[Talk], list[SlowMod]]:
    """Sequences that share a pool, ours and the slow one."""
    drafter = NgramModDrafter(NgramPool(match, size), n_min, N_MAX)
    pool, peers = SlowPool(size), list[SlowMod]()
    talks = [
        Talk(drafter, SlowMod(pool, peers, match, n_min, N_MAX), seq_id=i) for i in range(count)
    ]
    return talks, peers


@PROPERTY
@given(conversations(max_cut=30), matches, minima, sizes)
def test_one_sequence(talk: list[Answer], match: int, n_min: int, size: int) -> None:
    [made], _ = _talks(match, n_min, size, 1)
    made.run(talk)


@PROPERTY
@given(st.lists(conversations(max_cut=9), min_size=2, max_size=3), matches, sizes)
def test_sequences_share_the_pool(several: list[list[Answer]], match: int, size: int) -> None:
    talks, _ = _talks(match, 1, size, len(several))
    for number in range(max(map(len, several))):
        for talk, answers in zip(talks, several, strict=True):
            talk.run(answers[number : number + 1])


def test_the_conversations_clear_the_pool_for_both_reasons() -> None:
    """The properties above would hold for nothing: count what they have seen."""
    drafts: list[tuple[int, ...]] = []
    full = wrong = 0

    @PROPERTY
    @given(conversations(max_cut=30))
    def observe(talk: list[Answer]) -> None:
        nonlocal full, wrong
        for match, size in ((3, 16), (1, 2**20)):
            [made], [slow] = _talks(match, 1, size, 1)
            made.run(talk)
            drafts.extend(made.drafts)
            if size == 16:
                full += slow.num_resets
            else:
                wrong += slow.num_resets

    observe()
    assert sum(map(bool, drafts)) > 300
    assert full > 50
    assert wrong > 5


@PROPERTY
@given(st.lists(st.integers(0, 9), max_size=30), st.integers(1, 6))
def test_the_pool_by_itself(text: list[int], match: int) -> None:
    pool, slow = NgramPool(match), SlowPool()
    pool.add(np.array(text, np.int32))
    for i in range(len(text) - match):
        slow.table[slow.place(text[i : i + match])] = text[i + match]
    pool.add(np.array(text, np.int32))  # twice is once
    used = len(slow.table) / slow.size
    assert not pool.is_fuller_than(used)
    assert pool.is_fuller_than(used - 0.5 / slow.size)
    for i in range(len(text) - match + 1):
        window, expected = text[i : i + match], list[int]()
        while len(expected) < 5:
            token = slow.table.get(slow.place([*window, *expected][-match:]))
            if token is None:
                break
            expected.append(token)
        assert pool.continuation(window, 5) == expected
    pool.clear()
    assert not pool.is_fuller_than(0)
    assert pool.num_cleared == 1


def test_large_tokens_and_long_ngrams() -> None:
    numbers = np.random.default_rng(3)
    text = numbers.integers(0, 2**31 - 1, 80, np.int32)
    pool, slow = NgramPool(24), SlowPool()
    pool.add(text)
    places = [slow.place(text[i : i + 24].tolist()) for i in range(56)]
    assert np.flatnonzero(pool._followers).tolist() == sorted(places)
    assert pool.continuation(text[:24].tolist(), 99) == text[24:].tolist()


def _ask(
    drafter: NgramModDrafter, tokens: Sequence[int], max_tokens: int = 99, seq_id: int = 0
) -> tuple[int, ...]:
    request = DraftRequest(seq_id, np.array(tokens, np.int32), max_tokens, GREEDY, revision=0)
    [proposal] = drafter.propose([request])
    return proposal.token_ids


PART = [1, 2, 3, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("n_min", "max_tokens", "num_drafted"),
    [
        (0, 99, 5),
        (5, 99, 5),
        (6, 99, 0),
        (48, 99, 0),
        (5, 2, 2),
        (6, 2, 0),
    ],
)
def test_fewer_than_the_minimum_is_nothing(n_min: int, max_tokens: int, num_drafted: int) -> None:
    """It is asked of what is known, not of what is wanted."""
    drafter = NgramModDrafter(NgramPool(3), n_min, 64)
    # what is known ends at the three tokens before the last one
    text = [1, 2, 3, 4, 5, 6, 1, 2, 3]
    assert _ask(drafter, text, max_tokens) == (4, 5, 6, 1, 2)[:num_drafted]


def test_the_minimum_is_no_more_than_the_longest_draft() -> None:
    drafter = NgramModDrafter(NgramPool(3), min_tokens=48, size=2)
    assert _ask(drafter, [*PART, 20, 1, 2, 3]) == (4, 5)


def test_another_sequence_knows_the_text_too() -> None:
    drafter = NgramModDrafter(NgramPool(3), 1, 4)
    assert _ask(drafter, [*PART, 20], seq_id=0) == ()
    assert _ask(drafter, [30, 2, 3, 4], seq_id=1) == (5, 6, 7, 8)
    drafter.forget(0)
    assert _ask(drafter, [30, 2, 3, 4], seq_id=2) == (5, 6, 7, 8)


def test_a_pool_that_was_full_knows_the_text_at_hand() -> None:
    """llama.cpp clears it together with the prompt it has just read."""
    pool = NgramPool(2, size=64)
    drafter = NgramModDrafter(pool, 1, 4)
    filling = np.random.default_rng(4).integers(100, 999, 40).tolist()
    _ask(drafter, filling, seq_id=1)
    assert pool.num_cleared == 1
    assert _ask(drafter, [*PART, 1, 2], seq_id=0) == (3, 4, 5, 6)
    assert pool.num_cleared == 2


def test_wrong_drafts_clear_the_pool_but_not_cut_ones() -> None:
    pool = NgramPool(2)
    drafter = NgramModDrafter(pool, 1, 8)
    text = [*PART, 1, 2]
    for limit, accepted, cleared in ((1, 1, 0), (8, 1, 1), (8, 2, 0)):
        before = pool.num_cleared
        for _ in range(5):
            assert len(_ask(drafter, text, max_tokens=limit)) == limit
            drafter.observe_verdict(0, Verdict(accepted, 0, "recovered"))
        assert pool.num_cleared - before == cleared
        drafter.forget(0)


@pytest.mark.parametrize(("n_max", "expected"), [(None, 7), (2, 2), (9, 7)])
def test_a_draft_is_bounded_apart_from_what_is_known(n_max: int | None, expected: int) -> None:
    drafter = NgramModDrafter(NgramPool(2), 5, 7, n_max)
    assert drafter.n_max == expected
    assert _ask(drafter, [*PART, 1, 2]) == (3, 4, 5, 6, 7, 8, 9)[:expected]
