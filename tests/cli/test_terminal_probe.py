"""What the terminal is asked at the start, and that neither question nor answer is ever seen."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.keys import Keys
from tools.terminal import ENTER
from tools.zoo_chat import saved_turns, zoo_chat

from outrider.cli.prompt.keyboard import Keyboard
from outrider.cli.prompt.paste_parser import read_large_pastes
from outrider.cli.screen.terminal_probe import TerminalTraits, is_light, probe

WHITE, BLACK = "\x1b]11;rgb:ffff/ffff/ffff\x1b\\", "\x1b]11;rgb:0000/0000/0000\x07"
QUESTION = "\x1b]11;?"


@pytest.fixture
def keys() -> Iterator[PipeInput]:
    with create_pipe_input() as keys:
        read_large_pastes(keys)
        yield keys


def probed(keys: PipeInput, answer: str, *, asks_width: bool = True) -> tuple[TerminalTraits, str]:
    """What a terminal with this answer is taken for, and what was typed meanwhile."""

    def write(text: str) -> None:
        if QUESTION in text:
            keys.send_text(answer)

    keyboard = Keyboard(keys, write)
    with keyboard, keyboard.listening() as ahead:
        traits = probe(keyboard, asks_width=asks_width)
    return traits, "".join(press.data for press in ahead.keys)


@pytest.mark.parametrize(
    ("answer", "light"),
    [
        ("\x1b]11;rgb:ffff/ffff/ffff\x07", True),
        ("rgb:fd/f6/e3", True),
        ("rgba:f0f0/f0f0/f0f0/ffff", True),
        ("rgb:0/2b/36", False),
        ("rgb:1e1e/1e1e/1e1e", False),
        ("rgb:0/0/f", False),  # blue looks dark
        ("", False),
        ("\x1b]11;white\x07", False),
    ],
)
def test_backgrounds_are_light_or_dark(answer: str, light: bool) -> None:
    assert is_light(answer) is light


def test_answers_say_light_and_wide(keys: PipeInput) -> None:
    traits, typed = probed(keys, f"{WHITE}\x1b[3;5R\x1b[3;7R")
    assert (traits, typed) == (TerminalTraits(has_light_ground=True, has_wide_blocks=True), "")


def test_a_dark_terminal_with_narrow_blocks(keys: PipeInput) -> None:
    traits, typed = probed(keys, f"{BLACK}\x1b[3;1R\x1b[3;2R")
    assert (traits, typed) == (TerminalTraits(), "")


def test_the_width_is_not_asked_where_it_does_not_matter(keys: PipeInput) -> None:
    traits, _ = probed(keys, f"{WHITE}\x1b[3;1R", asks_width=False)
    assert traits == TerminalTraits(has_light_ground=True)


def test_silence_means_dark_and_narrow(keys: PipeInput) -> None:
    assert probed(keys, "") == (TerminalTraits(), "")


def test_what_is_typed_meanwhile_is_kept(keys: PipeInput) -> None:
    traits, typed = probed(keys, f"why {WHITE}is \x1b[1;1Rthe\x1b[1;3R sky")
    assert traits == TerminalTraits(has_light_ground=True, has_wide_blocks=True)
    assert "why is the" in typed


def test_an_answer_in_pieces_is_no_typed_text(keys: PipeInput) -> None:
    draw = random.Random(1)
    for _ in range(50):
        text = f"a{WHITE}b{BLACK}c"
        cuts = sorted(draw.sample([*range(7, 26), *range(33, 52)], 3))
        for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
            keys.vt100_parser.feed(text[start:end])  # type: ignore[attr-defined]
    presses = [press for press in keys.read_keys() if press.key is not Keys.Ignore]
    assert "".join(press.data for press in presses) == "abc" * 50


def test_what_begins_like_an_answer_is_not_kept_for_ever(keys: PipeInput) -> None:
    keys.vt100_parser.feed("\x1b]11;" + "x" * 100)  # type: ignore[attr-defined]
    assert [press.data for press in keys.read_keys()][-100:] == ["x"] * 100


def test_nothing_of_it_is_seen_and_a_late_answer_is_no_text(zoo: Path, user_folders: Path) -> None:
    with zoo_chat(zoo) as terminal:
        terminal.wait_for("›")
        assert terminal.raw.count(QUESTION) == 1
        assert terminal.raw.count("\x1b[6n") == 2
        terminal.send(WHITE + "Count from 5 to 16." + ENTER)
        terminal.wait_for("tok/s")
        lines = [line for line in terminal.lines() if line]
        terminal.wait(lambda: bool(saved_turns(user_folders)), "the turn")
    assert re.match(r"outrider \S+   zoo target-llama", lines[0])
    assert lines[3] == "› Count from 5 to 16."
    [turn] = saved_turns(user_folders)
    assert turn["message"] == "Count from 5 to 16."


@pytest.mark.parametrize("term", ["dumb", "linux"])
def test_terminals_that_would_print_the_question_are_not_asked(zoo: Path, term: str) -> None:
    with zoo_chat(zoo, env={"TERM": term}) as terminal:
        terminal.wait_for("\n>")
        assert QUESTION not in terminal.raw


def test_glyphs_can_be_chosen_and_changed(zoo: Path) -> None:
    with zoo_chat(zoo, "--glyphs", "ascii") as terminal:
        terminal.wait_for("\n>")
        terminal.wait_for("base |")
        terminal.send("/set glyphs=unicode" + ENTER)
        terminal.wait_for("\n›")
        terminal.wait_for("base ·")
