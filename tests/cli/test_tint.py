"""Tint: what was drafted and accepted looks different, in the chat and on the screen."""

from __future__ import annotations

import contextlib
import io
import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pyte
import pytest
from rich.console import Console
from tools.scripted_chat import ListScreen, Nothing, Scripted, scripted_chat

from outrider.cli.chat.chat import Chat
from outrider.cli.chat.running_models import RunningModels
from outrider.cli.engine_setup import engine_settings, generation_settings
from outrider.cli.glyphs import UNICODE
from outrider.cli.screen.panel import Row
from outrider.cli.screen.render import PlainRenderer, TerminalRenderer, TextForm
from outrider.cli.screen.tint import split_spans, tint_legend, tinted_pieces
from outrider.profiles.fields import check
from outrider.profiles.load import load_profile
from outrider.speculative.engine import Engine
from outrider.speculative.settings import DrafterSettings, SpeculationSettings

LEGEND = " tint: {} = drafted and accepted, plain = the target's own"


def panel(columns: int, rows: int) -> list[Row]:
    return [[(" 26.1 tok/s", "strong")]]


class Screen:
    """A terminal renderer with an emulator behind it."""

    def __init__(self, columns: int = 80, rows: int = 24, *, colour: bool = True) -> None:
        self.emulator = pyte.HistoryScreen(columns, rows, history=2000, ratio=0.5)
        stream = pyte.Stream(self.emulator)
        console = Console(
            file=io.StringIO(),
            force_terminal=True,
            color_system="standard",
            no_color=not colour,
        )
        self.renderer = TerminalRenderer(
            console,
            lambda text: stream.feed(text.replace("\r\n", "\n").replace("\n", "\r\n")),
            lambda: (columns, rows),
            UNICODE,
        )

    def begin(self, form: TextForm) -> None:
        self.renderer.begin(panel, form)

    def write(self, text: str, accepted: tuple[tuple[int, int], ...] = ()) -> None:
        self.renderer._next_paint = 0.0  # paint now, not when it is time
        self.renderer.write(text, accepted)

    def end(self) -> list[str]:
        self.renderer.end(None)
        return "\n".join(self.lines()).strip("\n").split("\n")

    def lines(self) -> list[str]:
        return ["".join(cell.data for cell in row).rstrip() for row in self.cells()]

    def cells(self) -> list[list[Any]]:
        shown = [self.emulator.buffer[number] for number in range(self.emulator.lines)]
        width = range(self.emulator.columns)
        return [[row[column] for column in width] for row in [*self.emulator.history.top, *shown]]

    def words(self, **look: object) -> str:
        """The characters that look so, without spaces."""
        return "".join(
            cell.data
            for row in self.cells()
            for cell in row
            if all(getattr(cell, name) == value for name, value in look.items())
        ).replace(" ", "")


@pytest.mark.parametrize(
    ("colour", "look", "word"),
    [(True, {"fg": "cyan"}, "coloured"), (False, {"underscore": True}, "underlined")],
)
def test_accepted_words_are_tinted_and_the_text_is_raw(
    colour: bool, look: dict[str, object], word: str
) -> None:
    screen = Screen(colour=colour)
    screen.begin("tint")
    screen.write("# A **bold** wo", ((2, 10), (13, 15)))
    screen.write("rd\nand `code`", ((0, 3), (7, 8)))
    assert LEGEND.format(word) in screen.lines()
    above = screen.lines().index(LEGEND.format(word))
    assert screen.lines()[above + 1].startswith(" 26.1 tok/s")
    assert screen.end() == ["# A **bold** word", "and `code`"]
    assert screen.words(**look) == "A**bold" + "wo" + "rd" + "`"
    assert not screen.emulator.cursor.hidden


def test_control_characters_do_not_shift_the_tint() -> None:
    screen = Screen()
    screen.begin("tint")
    screen.write("\x1b]0;x\x07own\x9b drafted\x1b own", ((10, 18),))
    assert screen.end() == ["]0;xown drafted own"]
    assert screen.words(fg="cyan") == "drafted"


def test_rows_are_wrapped_to_the_width_and_none_is_lost() -> None:
    screen = Screen(40, 16)
    screen.begin("tint")
    draw = random.Random(3)
    drafted = ""
    for number in range(300):
        word = f"w{number} " + "x" * draw.randint(0, 9) + " "
        screen.write(word, ((0, len(word)),) if number % 3 == 0 else ())
        drafted += word.replace(" ", "") if number % 3 == 0 else ""
    rows = screen.end()
    assert [word for word in " ".join(rows).split() if word[0] == "w"] == [
        f"w{number}" for number in range(300)
    ]
    assert screen.words(fg="cyan") == drafted


def test_another_form_begins_below_what_is_printed() -> None:
    screen = Screen()
    screen.begin("markdown")
    screen.write("A **bold** start.\n\n", ((0, 10),))
    screen.renderer.go_on("tint")
    assert any("tint:" in line for line in screen.lines())
    screen.write("Then **raw**.\n\n", ((0, 4),))
    screen.renderer.go_on("markdown")
    assert not any("tint:" in line for line in screen.lines())
    screen.write("And *back*.", ((0, 3),))
    assert screen.end() == ["A bold start.", "", "Then **raw**.", "", "And back."]
    assert screen.words(fg="cyan") == "Then"


@pytest.mark.parametrize("columns", range(20, 100, 5))
def test_the_legend_fits(columns: int) -> None:
    [(text, role)] = tint_legend("underlined", columns)
    assert len(text) < columns
    assert text.startswith(" tint")
    assert role == "dim"


def test_a_text_in_pieces_and_spans_in_two() -> None:
    text, spans = "abcdefgh", ((1, 3), (5, 8))
    pieces = [piece for piece in tinted_pieces(text, spans) if piece[0]]
    assert pieces == [("a", False), ("bc", True), ("de", False), ("fgh", True)]
    assert split_spans(spans, 0) == ((), spans)
    assert split_spans(spans, 2) == (((1, 2),), ((0, 1), (3, 6)))
    assert split_spans(spans, 8) == (spans, ())


@pytest.fixture
def model(zoo: Path) -> Path:
    return zoo / "target-llama.gguf"


def keys_of(scripted: Scripted) -> Nothing:
    return cast(Nothing, scripted.chat._keyboard)


def test_the_command_tints_the_answers_that_follow(model: Path) -> None:
    scripted = scripted_chat("abcd|efgh", "ijkl", "mnop", model=model)
    scripted.chat.submit("/tint on")
    scripted.chat.submit("one")
    assert scripted.screen.accepted == "abef"  # the first half of a piece
    scripted.chat.submit("two")
    scripted.chat.submit("/tint")
    scripted.chat.submit("three")
    assert scripted.screen.forms == ["tint", "tint", "markdown"]
    assert scripted.screen.accepted == "abefij"
    assert scripted.screen.of("warn") == [
        "note: tint on from the next answer on",
        "note: tint off from the next answer on",
    ]
    scripted.chat.submit("/tint maybe")
    assert scripted.screen.of("error") == ["error: /tint maybe: allowed: on, off"]
    assert [settings.marks_accepted for settings in scripted.session.settings] == [True] * 3


def press_during(scripted: Scripted, *steps: int) -> None:
    """Ctrl-O while these steps are made; it is heard when the step is shown."""
    numbers = itertools.count(2)

    def on_step() -> None:
        if next(numbers) in steps:
            keys_of(scripted).tint_asked = True

    scripted.session.on_step = on_step


def test_the_key_tints_from_the_next_block_on_and_so_the_next_answer(model: Path) -> None:
    pieces = ["Fir", "st.\n", "\nSecond ", "block.\n\n", "Th", "ird"]
    scripted = scripted_chat("|".join(pieces), "next", model=model)
    press_during(scripted, 2)
    scripted.chat.submit("one")
    assert scripted.screen.of("answer") == ["".join(pieces)]
    # "\nSecond ": its first half is accepted, and the first character ends the block before
    assert scripted.screen.forms == ["markdown", "tint"]
    assert scripted.screen.accepted == "Sec" + "bloc" + "T" + "i"
    scripted.chat.submit("two")
    assert scripted.screen.forms == ["markdown", "tint", "tint"]


def test_code_is_not_torn(model: Path) -> None:
    scripted = scripted_chat("```\n|a = 1\n\n|b = 2\n|```\n|After", model=model)
    press_during(scripted, 2)
    scripted.chat.submit("one")
    assert scripted.screen.accepted == "Af"


def test_two_presses_before_a_block_are_none(model: Path) -> None:
    scripted = scripted_chat("a|b|c|d\n\n|e", model=model)
    press_during(scripted, 2, 3)
    scripted.chat.submit("one")
    assert scripted.screen.forms == ["markdown"]


def test_without_markdown_the_answer_is_as_it_was_written(model: Path) -> None:
    raw = {"chat.markdown": check("chat.markdown", "false")}
    scripted = scripted_chat("a", "b", model=model, overrides=raw)
    scripted.chat.submit("one")
    scripted.chat.submit("/tint")
    scripted.chat.submit("two")
    assert scripted.screen.forms == ["raw", "tint"]
    screen = Screen(40, 16)
    screen.begin("raw")
    source = "# Head\n\n**a** " + "word " * 20 + "\n\n```python\n    x = 1\n```"
    for character in source:
        screen.write(character, ((0, 1),))
    text = "\n".join(screen.end())
    assert text.startswith("# Head\n\n**a** word")
    assert text.endswith("\n```python\n    x = 1\n```")
    assert screen.words(fg="cyan") == ""


def test_a_plain_terminal_cannot_tint(model: Path) -> None:
    scripted = scripted_chat("abc", model=model)
    written: list[str] = []
    scripted.chat.renderer = PlainRenderer(written.append, lambda: (80, 24))
    scripted.chat.submit("/tint")
    keys_of(scripted).tint_asked = True
    scripted.chat.submit("one")
    assert "".join(written) == "error: /tint: this terminal has no look for accepted text\nabc\n"
    assert not scripted.session.settings[0].marks_accepted


COUNT = "Count from 5 to 16."


@pytest.fixture
def oracle_chat(model: Path) -> Iterator[tuple[Chat, ListScreen, list[str]]]:
    """A chat with the tiny target, drafts of 3 by an oracle that errs at the third token.

    Also the text of each token of the answer, of which there are 42.
    """
    values = {
        "target.model": check("target.model", str(model)),
        "target.threads": check("target.threads", "1"),
        "sampling.temp": check("sampling.temp", "0"),
    }
    profile = load_profile("base", values)

    @contextlib.contextmanager
    def loading() -> Iterator[Callable[[str, float], None]]:
        yield lambda stage, share: None

    with Engine.load(engine_settings(profile)) as engine:
        models, screen = RunningModels(profile, engine, loading, values), ListScreen()
        prompt = engine.render([{"role": "user", "content": COUNT}])
        *events, last = models.session.generate(prompt, generation_settings(profile))
        tokens = cast(Any, last).result.token_ids
        pieces = [cast(Any, event).text for event in events if hasattr(event, "text")]
        models.session.reset()
        options = {"answer": tokens, "prompt_length": len(prompt), "wrong": [2]}
        oracle = DrafterSettings("oracle", options=options)
        engine.configure(SpeculationSettings(n_max=3, adaptive=False), [oracle])

        chat = Chat(models, renderer=cast(Any, screen), keyboard=Nothing(), glyphs=UNICODE)
        yield chat, screen, pieces


def test_exact_acceptance_in_stats_and_tint(
    oracle_chat: tuple[Chat, ListScreen, list[str]],
) -> None:
    chat, screen, pieces = oracle_chat
    assert len(pieces) >= 42
    chat.submit("/tint on")
    chat.submit(COUNT)
    # The first token, then drafts of tokens 1-3 (1 kept, then the target's own), 3-5, 7-9, ...
    # 35-37, each with an own token after it, and 39-41 with the end after it: 11 drafts of 3.
    own = {0, 2, *range(6, 39, 4)}
    assert screen.accepted == "".join(
        piece for number, piece in enumerate(pieces[:42]) if number not in own
    )
    chat.submit("/stats")
    rows = screen.of("plain")
    assert rows[0].split("  ")[1:3] == ["1 turn", "42 tokens"]
    assert rows[0].endswith("acceptance 0.94  mean length 3.82")  # 31 of 33, 1 + 31 / 11
    assert rows[2].split()[3:7] == ["33", "31", "0.94", "3.82"]
    assert rows[4].split()[:6] == ["oracle", "11", "33", "31", "0.94", "3.82"]
    assert rows[6].split() == ["prose", "42", "33", "31", "0.94"]
