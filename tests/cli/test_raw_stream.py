"""Text as the model writes it: whole lines, or lines wrapped to the width."""

from __future__ import annotations

import random

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from outrider.cli.screen.raw_stream import RawStream

WIDTH = 30

SOURCE = (
    """

# Head *line*

    four spaces, **stars** and a line that is longer than the screen is wide, 日本語 too
\ttab
- a


- b
"""
    + "word " * 60
)


def stream(*, wraps: bool) -> RawStream:
    return RawStream(Console(force_terminal=True), wraps=wraps)


def streamed(source: str, lengths: list[int], max_rows: int, *, wraps: bool) -> list[str]:
    """The rows of ``source`` that came in pieces of these lengths, over and over."""
    raw, rows, place, turn = stream(wraps=wraps), list[Text](), 0, 0
    while place < len(source):
        end = place + lengths[turn % len(lengths)]
        raw.feed(source[place:end])
        place, turn = end, turn + 1
        rows += raw.take(WIDTH, max_rows)
        raw.tail(WIDTH)
    return [row.plain for row in [*rows, *raw.close(WIDTH)]]


def test_lines_stay_as_they_were_written() -> None:
    rows = streamed(SOURCE, [7], 5, wraps=False)
    assert rows == [line.rstrip().expandtabs(4) for line in SOURCE.strip("\n").split("\n")]


@pytest.mark.parametrize("seed", range(15))
def test_wrapped_rows_are_the_same_however_the_text_was_cut(seed: int) -> None:
    draw = random.Random(seed)
    lengths = [draw.randint(1, 12) for _ in range(30)]
    rows = streamed(SOURCE, lengths, draw.randint(1, 20), wraps=True)
    assert rows == streamed(SOURCE, [len(SOURCE)], 5, wraps=True)
    assert all(cell_len(row) <= WIDTH for row in rows)
    assert "".join("".join(rows).split()) == "".join(SOURCE.split())


def test_a_long_line_gives_up_its_rows_but_two_where_it_is_wrapped() -> None:
    raw = stream(wraps=True)
    raw.feed("word " * 100)
    taken, tail = raw.take(WIDTH, 5), raw.tail(WIDTH)
    assert len(tail) == 2
    assert sum(row.plain.count("word") for row in [*taken, *tail]) == 100


def test_a_long_line_is_printed_whole_where_the_terminal_wraps_it() -> None:
    raw = stream(wraps=False)
    raw.feed("word " * 100)
    assert raw.take(WIDTH, 5) == []
    raw.feed("\n")
    assert [row.plain for row in raw.take(WIDTH, 5)] == [("word " * 100).rstrip()]


@pytest.mark.parametrize("wraps", [True, False])
def test_styles_stay_with_their_words(wraps: bool) -> None:
    raw = stream(wraps=wraps)
    for number in range(60):
        raw.feed(f"own{number} ")
        raw.feed(f"drafted{number} ", "underline")
    rows = [*raw.take(WIDTH, 4), *raw.close(WIDTH)]
    styled = [row.plain[span.start : span.end] for row in rows for span in row.spans if span.style]
    assert "".join("".join(styled).split()) == "".join(f"drafted{n}" for n in range(60))


def test_a_blank_line_waits_for_the_line_after_it() -> None:
    raw = stream(wraps=False)
    raw.feed("a\n\n\n")
    assert [row.plain for row in raw.take(WIDTH, 5)] == ["a"]
    assert raw.tail(WIDTH) == []
    raw.feed("b")
    assert [row.plain for row in raw.tail(WIDTH)] == ["", "", "b"]
    assert [row.plain for row in raw.close(WIDTH)] == ["", "", "b"]
