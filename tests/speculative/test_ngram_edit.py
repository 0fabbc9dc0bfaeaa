"""ngram-edit: what it proposes is what a text edited by hand goes on with."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.draft_law import GREEDY
from tools.properties import PROPERTY

from outrider.speculative.acceptance import AcceptanceModel
from outrider.speculative.draft_gate import DraftGate
from outrider.speculative.drafters.ngram_edit import NgramEditDrafter
from outrider.speculative.proposal import DraftRequest

MATCH = 4
SOURCE = list(range(100, 160))
GAP = [1, 2, 3]


def ask(
    drafter: NgramEditDrafter,
    tokens: Sequence[int],
    max_tokens: int = 99,
    *,
    seq_id: int = 0,
    revision: int | None = None,
) -> list[int]:
    """Without a revision an answer is new if it takes tokens back."""
    ids = np.array(tokens, np.int32)
    [proposal] = drafter.propose([DraftRequest(seq_id, ids, max_tokens, GREEDY, revision=revision)])
    return list(proposal.token_ids)


def replaced(text: Sequence[int], at: int, count: int, new: Sequence[int]) -> list[int]:
    return [*text[:at], *new, *text[at + count :]]


class Writer:
    """Writes ``answer`` behind ``prompt``, token by token or more, and asks before each part."""

    def __init__(self, prompt: Sequence[int], answer: Sequence[int], match: int = MATCH) -> None:
        self.drafter = NgramEditDrafter(match, 64)
        self.text = list(prompt)
        self.answer = list(answer)
        self.num_written = 0
        ask(self.drafter, self.text)

    def write(self, count: int = 1) -> list[int]:
        """The draft after ``count`` more tokens."""
        self.text += self.answer[self.num_written : self.num_written + count]
        self.num_written += count
        return ask(self.drafter, self.text)

    @property
    def rest(self) -> list[int]:
        return self.answer[self.num_written :]

    def is_right(self, draft: Sequence[int]) -> bool:
        """Not empty, and right as far as the answer goes."""
        common = min(len(draft), len(self.rest))
        return bool(draft) and list(draft[:common]) == self.rest[:common]


def test_a_copy_by_hand() -> None:
    drafter = NgramEditDrafter(3, 64)
    text = [9, 1, 2, 3, 4, 5, 6, 7, 1, 2, 3]
    assert ask(drafter, text, 4) == [4, 5, 6, 7]
    # at the end of the text the copy goes on with itself: a text that repeats itself
    assert ask(drafter, text, 12) == [4, 5, 6, 7, 1, 2, 3, 4, 5, 6, 7, 1]
    assert ask(drafter, [9, 1, 2, 3, 4, 5, 6, 7, 1, 2]) == []  # two of three
    assert ask(drafter, [9, 1, 2]) == ask(drafter, [9, 1, 2, 3]) == []


def test_the_latest_occurrence_is_copied_and_a_draft_is_bounded() -> None:
    drafter = NgramEditDrafter(2, 3)
    assert ask(drafter, [1, 2, 5, 6, 1, 2, 7, 8, 9, 1, 2]) == [7, 8, 9]


def test_one_token_for_another_is_tried_at_once() -> None:
    writer = Writer([*SOURCE, *GAP], replaced(SOURCE, 10, 1, [5]))
    assert writer.write(10)[0] == SOURCE[10]  # nobody can know
    assert writer.is_right(writer.write())


@pytest.mark.parametrize("new", [[5], [5, 6], [5, 6, 7, 8, 9, 10, 11], []])
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_behind_an_edit_the_source_is_found_by_one_token(count: int, new: list[int]) -> None:
    """``new`` for ``count`` tokens: put in, left out, replaced."""
    writer = Writer([*SOURCE, *GAP], replaced(SOURCE, 10, count, new))
    writer.write(10)
    writer.write(len(new) + 1)
    assert writer.is_right(writer.write())


def test_more_than_an_edit_is_another_text_until_tokens_match_again() -> None:
    writer = Writer([*SOURCE, *GAP], replaced(SOURCE, 10, 9, range(5, 14)))
    writer.write(10)
    for _ in range(9 + MATCH - 1):
        writer.write()
    assert writer.is_right(writer.write())


def test_a_source_is_left_for_another_that_matches_longer() -> None:
    """Though tokens of the first stand in the second, one after three others."""
    groups = [[300 + 3 * i, 301 + 3 * i, 302 + 3 * i, SOURCE[20 + i]] for i in range(20)]
    other = [token for group in groups for token in group]
    writer = Writer([*other, *GAP, *SOURCE, *GAP], [*SOURCE[:20], *other])
    writer.write(20)
    for _ in range(2 * MATCH - 1):
        writer.write()
    assert writer.is_right(writer.write())


def test_a_few_tokens_that_stand_elsewhere_are_no_other_source() -> None:
    prompt = [*SOURCE, *GAP, 7, *SOURCE[11:18], 8, 9, *GAP]
    writer = Writer(prompt, replaced(SOURCE, 10, 1, [5]))
    writer.write(10)
    while writer.rest:
        writer.write()
        assert not writer.rest or writer.is_right(ask(writer.drafter, writer.text))


names = st.lists(st.integers(200, 204), min_size=1, max_size=3, unique=True)
new_names = st.lists(st.integers(210, 214), min_size=1, max_size=4, unique=True)
distances = st.lists(st.integers(4, 12), min_size=2, max_size=5)


def with_name(distances: Sequence[int], name: Sequence[int]) -> list[int]:
    """A text of tokens that come once, with a name between them."""
    tokens = itertools.count(1000)
    parts = [list(itertools.islice(tokens, distance)) for distance in (*distances, 4)]
    return [token for part in parts for token in (*part, *name)]


@PROPERTY
@given(names, new_names, distances, st.integers(1, 5))
def test_a_name_that_is_changed_throughout_is_missed_once(
    name: list[int], new: list[int], distances: list[int], part: int
) -> None:
    """However much is written between two requests."""
    source, answer = with_name(distances, name), with_name(distances, new)
    writer = Writer([*source, *GAP], answer)
    while writer.num_written < distances[0] + len(new) + 2:
        writer.write(part)
    while writer.rest:
        assert writer.is_right(ask(writer.drafter, writer.text))
        writer.write(part)


def test_an_edit_that_was_begun_in_the_prompt_is_gone_on_with() -> None:
    name, new = [200, 201], [210]
    source, answer = with_name([40, 8, 8], name), with_name([40, 8, 8], new)
    begun = 40 + len(new) + 2
    writer = Writer([*source, *GAP, *answer[:begun]], answer[begun:])
    assert writer.is_right(ask(writer.drafter, writer.text))


@pytest.mark.parametrize(("first", "others", "begun"), [(12, 0, 17), (40, 2, 45)])
def test_parts_of_a_prompt_that_are_alike_are_no_edit(first: int, others: int, begun: int) -> None:
    """Where less than 16 tokens are copied for each difference, and one more time."""
    name, new = [200, 201], [210]
    source, answer = with_name([first, 8, 8], name), with_name([first, 8, 8], new)
    for at in range(10, 10 * (others + 1), 10):
        answer[at] = at
    writer = Writer([*source, *GAP, *answer[:begun]], answer[begun:])
    draft = ask(writer.drafter, writer.text)
    at = writer.rest.index(210)
    assert draft[: at + 2] == [*writer.rest[:at], *name]


def test_an_edit_that_was_wrong_is_forgotten() -> None:
    source, right = with_name([6, 6, 6, 6, 6], [200]), with_name([6, 6, 6, 6, 6], [200])
    right[6] = 210  # the first one only
    writer = Writer([*source, *GAP], right)
    writer.write(6 + 3)
    assert ask(writer.drafter, writer.text)[: 6 - 2 + 1] == [*writer.rest[:4], 210]
    writer.write(5)  # and it is 200 there
    while writer.rest:
        assert writer.is_right(ask(writer.drafter, writer.text))
        writer.write()


def test_an_edit_outlives_another_that_was_wrong() -> None:
    """Though the source is found again by an n-gram that reaches far back over the wrong one."""
    distances = [10, 10, 10, 10]
    parts = zip([*distances, 4], [[200], [201], [200], [201], [1]], strict=True)
    tokens = itertools.count(1000)
    source = [t for n, name in parts for t in (*itertools.islice(tokens, n), *name)]
    answer = [{201: 211}.get(token, token) for token in source]
    answer[10] = 210  # the first 200 only
    writer = Writer([*source, *GAP], answer)
    writer.write(33)  # the second 200 was no 210, and none of the drafts from here on is wrong
    while writer.rest:
        assert writer.is_right(ask(writer.drafter, writer.text))
        writer.write()


def test_an_edit_is_none_before_a_second_token_has_told() -> None:
    source = with_name([6, 6, 6], [200])
    answer = [*source[:6], 210, source[7], 999, *source[8:13]]
    writer = Writer([*source, *GAP], answer)
    for _ in answer[:-1]:
        writer.write()
    assert writer.write()[0] == 200


def test_a_new_answer_knows_nothing_of_the_edits_of_another() -> None:
    source, answer = with_name([20, 20, 20], [200]), with_name([20, 20, 20], [210])
    drafter = NgramEditDrafter(MATCH, 64)
    prompt = [*source, *GAP]
    ask(drafter, prompt, revision=1)
    ask(drafter, [*prompt, *answer[:25]], revision=1)
    draft = ask(drafter, [*prompt, *answer[:30]], revision=1)
    assert draft[:12] == [*range(1029, 1040), 210]
    assert (
        ask(drafter, [*prompt, *source[:10]], revision=2) == [*source, *GAP, *source][10 : 10 + 64]
    )


def test_a_draft_ends_within_an_edit_and_goes_on_there() -> None:
    source, answer = with_name([20, 6, 6], [200]), with_name([20, 6, 6], [210, 211, 212])
    writer = Writer([*source, *GAP], answer)
    writer.write(20 + 3 + 2)
    assert ask(writer.drafter, writer.text, 5) == [*writer.rest[:4], 210]
    writer.write(5)
    assert ask(writer.drafter, writer.text, 3) == [211, 212, *writer.rest[2:3]]


def test_how_sure_a_draft_is_goes_by_the_tokens_since_an_edit() -> None:
    """Of m tokens that were right the next is with (m + 1/2) / (m + 1)."""
    drafter = NgramEditDrafter(MATCH, 64)
    text = [*SOURCE, *GAP]
    answer = replaced(SOURCE, 20, 1, [5])

    def surest(num_written: int) -> float:
        ids = np.array([*text, *answer[:num_written]], np.int32)
        gate = DraftGate(64, AcceptanceModel(64), np.full(65, 1.0), 0.0, 0.0)
        [proposal] = drafter.propose([DraftRequest(0, ids, 64, GREEDY, gate=gate)])
        assert proposal.confidences is not None
        return float(proposal.confidences[0])

    drafter.propose([DraftRequest(0, np.array(text, np.int32), 64, GREEDY)])
    expected = {10: 10.5 / 11, 20: 20.5 / 21, 21: 0.5, 22: 1.5 / 2, 25: 4.5 / 5}
    assert {count: surest(count) for count in expected} == pytest.approx(expected)


tokens = st.lists(st.integers(0, 3), min_size=1, max_size=60)


@PROPERTY
@given(st.lists(tokens, min_size=2, max_size=5), st.integers(0, 60), st.integers(1, 4))
def test_a_text_that_was_taken_back_is_as_if_it_had_never_been(
    texts: list[list[int]], shared: int, match: int
) -> None:
    drafter = NgramEditDrafter(match, 9)
    for revision, text in enumerate((*texts, texts[0])):
        branch = [*texts[0][:shared], *text]
        for end in range(1 + len(branch) // 2, len(branch) + 1):
            draft = ask(drafter, branch[:end], revision=revision)
        fresh = NgramEditDrafter(match, 9)
        for end in range(1 + len(branch) // 2, len(branch) + 1):
            expected = ask(fresh, branch[:end], revision=revision)
        assert draft == expected


@PROPERTY
@given(tokens, st.lists(st.integers(1, 9), max_size=12), st.integers(1, 4), st.integers(1, 64))
def test_any_text_is_drafted_from(
    text: list[int], growth: list[int], match: int, most: int
) -> None:
    """With tokens of the text, and no more than asked for."""
    drafter = NgramEditDrafter(match, 64)
    end = 1
    for more in (0, *growth):
        end += more
        draft = ask(drafter, text[:end], most)
        assert len(draft) <= most
        assert set(draft) <= set(text[:end])


@PROPERTY
@given(tokens, tokens, st.integers(1, 4))
def test_sequences_do_not_mix(one: list[int], other: list[int], match: int) -> None:
    both, alone = NgramEditDrafter(match, 8), [NgramEditDrafter(match, 8) for _ in range(2)]
    for end in range(1, 1 + max(len(one), len(other)), 3):
        for seq_id, text in enumerate((one[:end], other[:end])):
            assert ask(both, text, seq_id=seq_id) == ask(alone[seq_id], text)
    both.forget(0)
    assert ask(both, other, seq_id=0) == ask(NgramEditDrafter(match, 8), other)
