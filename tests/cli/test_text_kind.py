"""Which kind of text is being written, and the counts of each kind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.properties import PROPERTY

from outrider.cli.screen.text_kind import TextCounts, TextReader, TextTally
from outrider.speculative.events import StepEvent

# each line with the kind of text at its end
LINES = [
    ("# Heading - with a dash", "prose"),
    ("", "prose"),
    ("Some prose, 3. not a list", "prose"),
    ("- an item", "list"),
    ("that goes on lazily", "list"),
    ("  1) nested", "list"),
    ("", "list"),
    ("    still below the item", "list"),
    ("", "list"),
    ("Prose again", "prose"),
    ("* * *", "prose"),
    ("**bold** at the start", "prose"),
    ("| a | - b |", "prose"),
    ("```python", "code"),
    ("- this is code", "code"),
    ("", "code"),
    ("``", "code"),
    ("x = `y`", "code"),
    ("```", "code"),
    ("prose after it", "prose"),
    ("~~~~ text", "code"),
    ("~~~", "code"),
    ("```", "code"),
    ("~~~~~", "code"),
    ("", "prose"),
    ("```inline``` code is prose", "prose"),
    ("1. one", "list"),
    ("   ```", "code"),
    ("   code in the item", "code"),
    ("   ```", "code"),
    ("2. two", "list"),
    ("## Heading", "prose"),
    ("+ item", "list"),
    ("", "list"),
    ("> quote", "prose"),
    ("17 things", "prose"),
]


def kinds(pieces: list[str]) -> list[str]:
    """The kind at the end of each line of the text, before its line break."""
    reader, seen = TextReader(), []
    for piece in pieces:
        for character in [piece] if len(piece) == 1 else piece.splitlines(keepends=True):
            if character.endswith("\n"):
                reader.feed(character[:-1])
                seen.append(reader.kind)
                reader.feed("\n")
            else:
                reader.feed(character)
    return [*seen, reader.kind]


SOURCE = "\n".join(line for line, _ in LINES)


def test_each_line_has_its_kind() -> None:
    found = kinds([SOURCE])
    assert [(line, kind) for (line, _), kind in zip(LINES, found, strict=True)] == LINES


@PROPERTY
@given(st.lists(st.integers(1, 30), min_size=1, max_size=40))
def test_the_kind_does_not_depend_on_how_the_text_is_cut(lengths: list[int]) -> None:
    pieces, place, turn = [], 0, 0
    while place < len(SOURCE):
        pieces.append(SOURCE[place : place + lengths[turn % len(lengths)]])
        place, turn = place + len(pieces[-1]), turn + 1
    assert kinds(pieces) == kinds([SOURCE])


@pytest.mark.parametrize(
    ("written", "begun"),
    [
        ("", "prose"),
        ("- item\n", "list"),  # the next line is likely another
        ("- item\n-", "list"),
        ("- item\n\n1", "list"),
        ("- item\n\nW", "prose"),
        ("text\n-", "prose"),  # a rule, an item, or emphasis: not known yet
        ("text\n- ", "list"),
        ("text\n``", "prose"),
        ("text\n```", "code"),
        ("```\nx\n```", "code"),
        ("```\nx\n```\n", "prose"),
    ],
)
def test_the_kind_in_the_middle_of_a_line(written: str, begun: str) -> None:
    reader = TextReader()
    reader.feed(written)
    assert reader.kind == begun


@pytest.mark.parametrize(
    ("written", "coming", "place"),
    [
        ("", "text", 0),
        ("one\n\n", "two", 0),
        ("one", " more\n\ntwo", 7),
        ("one", " more\ntwo\n", None),
        ("one\n", "\ntwo", 1),
        ("```\n", "code\n\ncode\n", None),
        ("```\n", "code\n\ncode\n```\nafter", 15),
        ("one\n", "```\nx\n", None),
    ],
)
def test_where_the_next_block_begins(written: str, coming: str, place: int | None) -> None:
    reader = TextReader()
    reader.feed(written)
    assert reader.next_block(coming) == place
    assert reader.next_block(coming) == place  # looking ahead is not reading


def step(
    text: str, tokens: int, drafted: int = 0, accepted: int = 0, *, reasoning: str = ""
) -> StepEvent:
    return StepEvent(text, (0,) * tokens, accepted, reasoning, drafted)


ANSWER = [
    step("", 1),  # before a word of the thought came
    step("", 3, 4, 2, reasoning="Hm"),
    step("", 1, reasoning=" well"),
    step("Yes", 2, 2, 1, reasoning="."),  # began as a thought, ended as the answer
    step(", so:\n\n- on", 4, 3, 3),
    step("e\n- two\n\n```", 3, 5, 2),
    step("\nx = 1\n```\n", 6, 5, 5),
    step("Done", 1, 3, 0),
]


def tally(*events: StepEvent) -> TextTally:
    counted = TextTally()
    for event in events:
        counted.observe(event)
    return counted


def test_a_step_counts_where_it_began() -> None:
    counts = tally(*ANSWER).counts(21)
    assert counts == {
        "prose": TextCounts(tokens=1 + 4 + 1, drafted=3 + 3, accepted=3),
        "reasoning": TextCounts(tokens=3 + 1 + 2, drafted=4 + 2, accepted=2 + 1),
        "list": TextCounts(tokens=3, drafted=5, accepted=2),
        "code": TextCounts(tokens=6, drafted=5, accepted=5),
    }
    assert counts["list"].acceptance_rate == 2 / 5
    assert TextCounts(4).acceptance_rate is None


def test_what_a_stop_string_takes_back_does_not_count() -> None:
    # 21 tokens were emitted, the last 1 + 6 + 1 are no part of the text
    counts = tally(*ANSWER).counts(13)
    assert "code" not in counts
    assert counts["list"] == TextCounts(tokens=2, drafted=2, accepted=2)
    assert sum(one.tokens for one in counts.values()) == 13
