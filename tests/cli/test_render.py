from __future__ import annotations

import io
import random
import re

import pyte
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from outrider.cli.glyphs import ASCII, UNICODE
from outrider.cli.screen.frame import Frame, LiveRow
from outrider.cli.screen.markdown import MarkdownRows
from outrider.cli.screen.markdown_stream import MarkdownStream
from outrider.cli.screen.panel import Row
from outrider.cli.screen.render import PlainRenderer, TerminalRenderer
from outrider.cli.screen.theme import theme_for

WIDTH = 59

DOCUMENT = (
    """# Head *line*

A **bold *both*** word, `code`, and a line that is longer than the width of sixty columns.
second line

1. one
2. two
   - nested
     more
3. three

| a | b | ccc |
|---|--:|:-:|
| 1 | 2 | 3 |
| x **y** | 222 | z |

> quote
> more

```python
def f(x):
    \"\"\"Twice.\"\"\"

    return x + x  # text
```

***
<div>html</div> and List<String>

[ref]: http://x
"""
    + "Long **paragraph** of words that goes on and " * 20
)

ROWS = """\
Head line

A bold both word, code, and a line that is longer than the
width of sixty columns.
second line

1. one
2. two
   - nested
     more
3. three

 a       b   ccc
─────────────────
 1       2    3
 x y   222    z

> quote
> more

def f(x):
    \"\"\"Twice.\"\"\"

    return x + x  # text

────────────────────────────────────────

<div>html</div> and List<String>

[ref]: http://x
Long paragraph of words that goes on and Long paragraph of
""".splitlines()


def stream() -> MarkdownStream:
    return MarkdownStream(MarkdownRows(Console(force_terminal=True), UNICODE))


def streamed(source: str, pieces: list[int], max_rows: int = 5) -> list[str]:
    """The rows of ``source`` that came in pieces of these lengths, over and over."""
    rows: list[Text] = []
    markdown, at, turn = stream(), 0, 0
    while at < len(source):
        length = pieces[turn % len(pieces)]
        markdown.feed(source[at : at + length])
        at, turn = at + length, turn + 1
        rows += markdown.take(WIDTH, max_rows)
        markdown.tail(WIDTH)
    return [row.plain for row in [*rows, *markdown.close(WIDTH)]]


def test_markdown_becomes_plain_rows() -> None:
    assert streamed(DOCUMENT, [7])[: len(ROWS)] == ROWS


@pytest.mark.parametrize("seed", range(25))
def test_rows_are_the_same_however_the_text_was_cut(seed: int) -> None:
    draw = random.Random(seed)
    pieces = [draw.randint(1, 12) for _ in range(30)]
    assert streamed(DOCUMENT, pieces, max_rows=draw.randint(1, 20)) == streamed(
        DOCUMENT, [len(DOCUMENT)]
    )


MARKS = st.sampled_from([*"ab *_`#>-1.|~[]()<&\\\n\n", "```", "1. ", "- ", "    ", "日本"])


@settings(max_examples=100, deadline=None)
@given(st.lists(MARKS, max_size=60), st.integers(1, 9))
@example(list("a\n-\n```\nb\n```\n"), 1)
def test_no_word_is_lost_or_doubled_by_streaming(marks: list[str], piece: int) -> None:
    # every letter of the source is somewhere in the rows, once
    source = "".join(marks)
    rows = "".join(streamed(source, [piece], max_rows=3))
    languages = sum(line.count("a") + line.count("b") for line in _info_strings(source))
    shown = rows.count("a") + rows.count("b")
    assert shown >= source.count("a") + source.count("b") - languages
    assert shown <= source.count("a") + source.count("b")


def _info_strings(source: str) -> list[str]:
    return [line for line in source.split("\n") if "```" in line or "~~~" in line]


def test_code_is_printed_as_it_was_written() -> None:
    code = [f"    x_{n} = '" + "long " * 30 + "'  # * not _emphasis_" for n in range(5)]
    source = "```python\nif x:\n" + "\n".join(code) + "\n```\n"
    assert streamed(source, [11]) == ["if x:", *code]


def test_a_finished_line_of_code_leaves_the_tail_at_once() -> None:
    markdown = stream()
    markdown.feed("```python\ndef f():\n    retu")
    assert [row.plain for row in markdown.take(WIDTH, 5)] == ["def f():"]
    assert [row.plain for row in markdown.tail(WIDTH)] == ["    retu"]


def test_a_paragraph_longer_than_the_tail_gives_up_its_rows_but_two() -> None:
    markdown = stream()
    markdown.feed("word " * 100)
    taken = markdown.take(WIDTH, 5)
    tail = markdown.tail(WIDTH)
    assert len(tail) == 2
    assert sum(row.plain.count("word") for row in [*taken, *tail]) == 100


def test_a_long_paragraph_without_spaces_gives_up_rows_too() -> None:
    markdown = stream()
    markdown.feed("日本語の長い文章です。" * 60)
    taken = markdown.take(WIDTH, 5)
    tail = markdown.tail(WIDTH)
    assert len(tail) == 2
    assert "".join(row.plain for row in [*taken, *tail]) == "日本語の長い文章です。" * 60


def test_a_long_paragraph_with_links_and_emphasis_is_cut_where_nothing_changes() -> None:
    source = "some **bold text** and a [link](http://a.b/c) with `code x` in it, " * 20
    whole = streamed(source, [len(source)])
    assert streamed(source, [3], max_rows=4) == whole
    assert "".join(whole).count("(http://a.b/c)") == 20


def test_emphasis_that_is_open_is_not_torn() -> None:
    markdown = stream()
    markdown.feed("start **" + "bold " * 100)
    rows = [row.plain for row in markdown.take(WIDTH, 5)]
    markdown.feed("end** after\n")
    rows += [row.plain for row in markdown.close(WIDTH)]
    text = " ".join(rows)
    assert text.count("bold") == 100
    assert text.endswith("end after")
    assert "**" not in text


def painted(columns: int = 60, rows: int = 20) -> tuple[pyte.HistoryScreen, pyte.Stream]:
    screen = pyte.HistoryScreen(columns, rows, history=5000, ratio=0.5)
    return screen, pyte.Stream(screen)


def everything(screen: pyte.HistoryScreen) -> list[str]:
    above = [
        "".join(line[column].data for column in range(screen.columns)).rstrip()
        for line in screen.history.top
    ]
    return [*above, *(line.rstrip() for line in screen.display)]


class Clock:
    """Time that only passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_each_finished_row_is_printed_once_above_the_live_rows() -> None:
    screen, terminal = painted()
    clock = Clock()
    frame = Frame(terminal.feed, lambda: (60, 20), clock=clock, sleep=clock.sleep)
    for number in range(100):
        live = [LiveRow(f"live {number} {row}", 9) for row in range(number % 7)]
        assert frame.paint([f"mark {number}."], live)
    frame.settle(["last"])
    lines = everything(screen)
    assert [line for line in lines if line] == [f"mark {n}." for n in range(100)] + ["last"]
    assert not screen.cursor.hidden


def test_nothing_is_painted_while_the_size_changes_and_nothing_is_lost() -> None:
    screen, terminal = painted()
    clock = Clock()
    size = (60, 20)
    frame = Frame(terminal.feed, lambda: size, clock=clock, sleep=clock.sleep)
    assert frame.paint(["one"], [LiveRow("live", 4)])
    size = (60, 18)
    screen.resize(18, 60)
    assert not frame.paint(["two"], [LiveRow("live", 4)])
    clock.now += 0.2
    assert not frame.paint(["three"], [LiveRow("live", 4)])
    clock.now += 0.2
    assert frame.paint(["four"], [LiveRow("live", 4)])
    frame.settle()
    assert [line for line in everything(screen) if line] == ["one", "two", "three", "four"]


@pytest.mark.parametrize(
    ("columns", "answer", "rows_up"),
    [
        (30, 56 % 30, 5),
        (57, 56, 2),  # both a cut row and a wrapped one leave the cursor there
        (56, 0, 5),
        (29, 56 % 29, 7),  # a wide character is not split: 29 of them take three rows
        (30, 29, 2),
        (30, None, 2),
        (19, 18, 2),  # here too
    ],
)
def test_live_rows_are_counted_as_the_terminal_wraps_them(
    columns: int, answer: int | None, rows_up: int
) -> None:
    # three live rows of 58 cells or 57, the cursor parked in the last even column
    written: list[str] = []
    clock = Clock()
    size = (60, 20)
    frame = Frame(
        written.append,
        lambda: size,
        cursor_column=lambda: answer,
        clock=clock,
        sleep=clock.sleep,
    )
    frame.paint([], [LiveRow("\x1b[1m" + "日" * 29 + "\x1b[0m", 58)] * 2 + [LiveRow("x" * 57, 57)])
    assert written[-1].endswith("\r\x1b[56C\x1b[?2026l")
    size = (columns, 20)
    frame.paint([], [])
    clock.now += 1
    assert frame.paint([], [])
    assert f"\r\x1b[{rows_up}A\x1b[K" in written[-1]


def renderer(
    columns: int = 60, rows: int = 20, *, colour: str | None = "standard", no_colour: bool = False
) -> tuple[TerminalRenderer, pyte.HistoryScreen, list[str]]:
    screen, terminal = painted(columns, rows)
    written: list[str] = []

    def write(text: str) -> None:
        written.append(text)
        terminal.feed(text.replace("\n", "\r\n"))

    console = Console(
        file=io.StringIO(),
        force_terminal=True,
        color_system=colour,  # type: ignore[arg-type]
        no_color=no_colour,
    )
    return TerminalRenderer(console, write, lambda: (columns, rows), UNICODE), screen, written


def panel(columns: int, rows: int) -> list[Row]:
    return [[(" 26.1 tok/s", "strong"), (" dim", "dim"), (" paused", "warn"), ("█", "accepted")]]


def test_an_answer_ends_as_rows_and_a_summary_without_the_panel() -> None:
    shown, screen, _ = renderer()
    shown.begin(panel)
    assert any("26.1 tok/s" in line for line in screen.display)
    for piece in ("Hello ", "**wor", "ld**.\n\n- a\n", "- b\n"):
        shown.write(piece)
    shown.end("4 tokens")
    lines = "\n".join(everything(screen)).strip().split("\n")
    assert lines == ["Hello world.", "", "- a", "- b", "", "4 tokens"]


def test_live_rows_take_at_most_half_the_screen() -> None:
    shown, screen, _ = renderer(60, 20)
    shown.begin(panel)
    shown._next_paint = 0.0  # paint now, not when it is time
    shown.write("- " + "word " * 400)
    live = [row for row, line in enumerate(screen.display) if line.strip()]
    assert 0 < len(live) <= 10
    shown.end(None)
    assert "\n".join(everything(screen)).count("word") == 400


def test_notes_during_an_answer_stand_above_it() -> None:
    shown, screen, _ = renderer()
    shown.begin(panel)
    shown.show(["note: something"], "warn")
    shown.write("text")
    shown.end(None)
    lines = [line for line in everything(screen) if line]
    assert lines == ["note: something", "text"]


ESCAPES = "a\x1b]0;title\x07b\x1b[31mc\x9b1md\x7fe\x00f\x08g\rh"


def test_control_characters_never_reach_the_terminal() -> None:
    shown, screen, written = renderer()
    shown.begin(panel)
    shown.write(ESCAPES)
    shown.show([ESCAPES], "error")
    shown.end(ESCAPES)
    assert screen.title == ""
    for text in written:
        assert not set(text) & {"\x07", "\x9b", "\x7f", "\x00", "\x08"}
        assert "\x1b]" not in text
    assert "\n".join(everything(screen)).count("a]0;titleb[31mc1mdefgh") == 3


def test_no_colour_means_bold_and_nothing_else() -> None:
    for colour, no_colour in (("standard", True), (None, False)):
        shown, _, written = renderer(colour=colour, no_colour=no_colour)
        shown.begin(panel)
        shown.write("a **bold** `code`\n\n```python\nx = 1\n```\n")
        shown.show(["error: x"], "error")
        shown.end("summary")
        codes = {
            code
            for text in written
            for part in text.split("\x1b[")[1:]
            if "m" in part
            for code in [part.split("m")[0]]
            if code.replace(";", "").isdigit()
        }
        assert codes <= {"0", "1"}
        assert "1" in codes


def test_colours_are_of_the_palette_and_have_no_background() -> None:
    shown, _, written = renderer()
    shown.begin(panel)
    shown.write("```python\nx = 'a'  # b\n```\n")
    shown.end("summary")
    text = "".join(written)
    assert "\x1b[36m█" in text
    assert "\x1b[33m paused" in text
    assert not any(f"\x1b[{code}" in text for code in ("40", "48;", "41", "7m"))


def test_rules_are_dim_as_the_theme_says() -> None:
    shown, _, written = renderer(colour="truecolor")
    shown.dress(theme_for(shown._console, "light"), UNICODE)
    for _ in range(2):
        shown.begin(panel)
        shown.write("*a*\n\n***\n\nb\n")
        shown.end("summary")
        assert "\x1b[38;2;90;100;107m──" in "".join(written)
        assert "\x1b[38;2;90;100;107msummary" in "".join(written)
        written.clear()
    shown.dress(theme_for(shown._console, "none"), UNICODE)
    shown.begin(panel)
    shown.write("*a*\n\n***\n\nb\n")
    shown.end("summary")
    assert not re.search(r"\x1b\[(2|3|38;[\d;]*)m", "".join(written))


def test_a_plain_terminal_gets_text_and_no_escape() -> None:
    written: list[str] = []
    plain = PlainRenderer(written.append, lambda: (80, 24))
    plain.show(["banner"], "dim")
    plain.begin(panel)
    for piece in ("Hel", "lo **x**", ESCAPES):
        plain.write(piece)
    plain.refresh()
    plain.end("summary")
    plain.show(["error: x"], "error")
    text = "".join(written)
    assert text == "banner\nHello **x**a]0;titleb[31mc1mdefgh\nerror: x\n"


def test_ascii_rules_are_ascii() -> None:
    markdown = MarkdownStream(MarkdownRows(Console(), ASCII))
    markdown.feed("|a|b|\n|-|-|\n|1|2|\n\n***\n")
    assert "".join(row.plain for row in markdown.close(WIDTH)).isascii()
