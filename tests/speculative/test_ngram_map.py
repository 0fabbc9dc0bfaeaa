"""ngram-map-k and ngram-map-k4v against llama.cpp's searches, written out the slow way."""

from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tools.conversation import Answer, Talk, conversations
from tools.draft_law import GREEDY
from tools.properties import PROPERTY
from tools.slow_ngrams import SlowMap

from outrider.speculative.drafters import ngram_map
from outrider.speculative.drafters.ngram_map import NgramMapDrafter
from outrider.speculative.proposal import DraftRequest, Verdict

TALKS = settings(PROPERTY, max_examples=100)  # each is dozens of drafts

has_values = pytest.mark.parametrize("values", [False, True], ids=["k", "k4v"])
matches = st.integers(1, 3)
sizes = st.integers(1, 4)
hits = st.integers(1, 3)


@has_values
@given(talk=conversations(max_cut=0), match=matches, size=sizes, min_hits=hits)
@TALKS
def test_text_that_only_grows(
    values: bool, talk: list[Answer], match: int, size: int, min_hits: int
) -> None:
    drafter = NgramMapDrafter(match, size, min_hits, has_values=values)
    Talk(drafter, SlowMap(match, size, min_hits, values=values)).run(talk)


@has_values
@given(talk=conversations(max_cut=30), match=matches, size=sizes)
@TALKS
def test_text_that_is_taken_back_and_written_anew(
    values: bool, talk: list[Answer], match: int, size: int
) -> None:
    drafter = NgramMapDrafter(match, size, has_values=values)
    Talk(drafter, SlowMap(match, size, values=values)).run(talk)


@has_values
@given(talk=conversations(max_cut=30), match=matches, size=sizes)
@TALKS
def test_ngrams_that_share_an_entry_of_the_table(
    values: bool, talk: list[Answer], match: int, size: int
) -> None:
    with patch.object(ngram_map, "_TABLE_SIZE", 5):
        drafter = NgramMapDrafter(match, size, has_values=values)
        Talk(drafter, SlowMap(match, size, values=values, table_size=5)).run(talk)


@has_values
@given(one=conversations(max_cut=9), other=conversations(max_cut=9), match=matches)
@TALKS
def test_sequences_do_not_mix(
    values: bool, one: list[Answer], other: list[Answer], match: int
) -> None:
    drafter = NgramMapDrafter(match, 3, has_values=values)
    talks = [Talk(drafter, SlowMap(match, 3, values=values), seq_id=i) for i in (4, 7)]
    for answers in zip(one, other, strict=False):
        for talk, answer in zip(talks, answers, strict=True):
            talk.run([answer])
    drafter.forget(4)
    Talk(drafter, SlowMap(match, 3, values=values), seq_id=4).run(one)


def _ask(
    drafter: NgramMapDrafter, tokens: Sequence[int], max_tokens: int = 99, revision: int = 0
) -> tuple[int, ...]:
    request = DraftRequest(0, np.array(tokens, np.int32), max_tokens, GREEDY, revision=revision)
    [proposal] = drafter.propose([request])
    return proposal.token_ids


def _tell(drafter: NgramMapDrafter, num_accepted: int) -> None:
    drafter.observe_verdict(0, Verdict(num_accepted, 0, "recovered"))


# at least 2 n + m tokens, and m and one more after the place that is found
TEXT = [9, 1, 2, 3, 4, 5, 6, 7, 8, 30, 31, 32, 1]
KEY = [2, 3]


def test_after_a_rejection_only_as_much_is_drafted_as_held() -> None:
    drafter = NgramMapDrafter(3, 4, has_values=False)
    assert _ask(drafter, [*TEXT, *KEY]) == (4, 5, 6, 7)
    _tell(drafter, 4)
    text = [*TEXT, *KEY, 4, 5, 6, 7, 40, 1]
    assert _ask(drafter, [*text, *KEY]) == (4, 5, 6, 7)
    _tell(drafter, 1)
    text = [*text, *KEY, 4, 50, 1]
    assert _ask(drafter, [*text, *KEY]) == (4,)
    _tell(drafter, 0)
    # never again, as llama.cpp does it
    text = [*text, *KEY, 60, 1]
    assert _ask(drafter, [*text, *KEY]) == ()
    assert _ask(drafter, [*text, *KEY, 4, 5, 6, 7, 1, *KEY]) == ()


def test_a_cut_draft_that_held_says_nothing_about_the_rest() -> None:
    drafter = NgramMapDrafter(3, 4, has_values=False)
    assert _ask(drafter, [*TEXT, *KEY], max_tokens=2) == (4, 5)
    _tell(drafter, 2)
    text = [*TEXT, *KEY, 4, 5, 40, 1]
    assert _ask(drafter, [*text, *KEY], max_tokens=3) == (4, 5, 6)
    _tell(drafter, 2)
    text = [*text, *KEY, 4, 5, 50, 1]
    assert _ask(drafter, [*text, *KEY]) == (4, 5)


def test_the_place_that_was_registered_first_stays() -> None:
    drafter = NgramMapDrafter(3, 4, has_values=False)
    assert _ask(drafter, [*TEXT, *KEY]) == (4, 5, 6, 7)
    later = [*TEXT, *KEY, 11, 12, 13, 14, 15, 1]
    assert _ask(drafter, [*later, *KEY]) == (4, 5, 6, 7)
    # read at once, the latest place is
    assert _ask(NgramMapDrafter(3, 4, has_values=False), [*later, *KEY]) == (11, 12, 13, 14)


def test_values_are_drafted_only_if_one_stands_out() -> None:
    one, other = [1, 2, 3, 4, 5, 6], [1, 2, 3, 7, 8, 9]
    gap = [20, 21, 22]
    for parts, expected in (
        ([one], (4, 5, 6)),
        ([one, other], ()),
        ([one, one, other, other], ()),
        ([one, other, one, one], (4, 5, 6)),
        # llama.cpp drafts what followed at the latest place, whichever value won
        ([one, one, other], (7, 8, 9)),
    ):
        text = [9, *[token for part in parts for token in (*part, *gap)], *gap, 1, 2, 3]
        assert _ask(NgramMapDrafter(3, 3, has_values=True), text) == expected, parts
        # k does not weigh them
        assert _ask(NgramMapDrafter(3, 3, has_values=False), text) == tuple(parts[-1][3:])


@has_values
def test_a_key_must_have_come_often_enough(values: bool) -> None:
    drafter = NgramMapDrafter(3, 4, min_hits=3, has_values=values)
    text = [*TEXT, *KEY]
    assert _ask(drafter, text) == ()
    text += [4, 40, 1, *KEY]
    assert _ask(drafter, text) == ()
    text += [4, 50, 1, *KEY]
    assert _ask(drafter, text) == (4, 5, 6, 7)


@has_values
def test_an_edited_text_never_gives_what_is_no_longer_there(values: bool) -> None:
    drafter = NgramMapDrafter(3, 4, has_values=values)
    assert _ask(drafter, [*TEXT, *KEY]) == (4, 5, 6, 7)
    edited = [9, 1, 2, 3, 14, 15, 16, 17, 18, 30, 31, 32, 33, 34, 1]
    assert _ask(drafter, [*edited, *KEY], revision=1) == (14, 15, 16, 17)
    other = [70, 71, 72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 1, 2]
    assert _ask(drafter, [*other, 3], revision=2) == ()


@pytest.mark.parametrize(("n_max", "expected"), [(None, 4), (2, 2), (9, 4)])
def test_a_draft_is_bounded_apart_from_what_is_searched(n_max: int | None, expected: int) -> None:
    drafter = NgramMapDrafter(3, 4, n_max=n_max, has_values=False)
    assert drafter.n_max == expected
    assert _ask(drafter, [*TEXT, *KEY]) == (4, 5, 6, 7)[:expected]


def test_most_made_up_conversations_draft_and_edit() -> None:
    """The properties above would hold for nothing: count what they have seen."""
    drafts, edits = [], 0

    @TALKS
    @given(conversations(max_cut=30))
    def observe(talk: list[Answer]) -> None:
        nonlocal edits
        slow = SlowMap(2, 3, values=True)
        made = Talk(NgramMapDrafter(2, 3, has_values=True), slow)
        made.run(talk)
        drafts.extend(made.drafts)
        edits += slow.num_edits

    observe()
    assert sum(map(bool, drafts)) > 300
    assert edits > 20
