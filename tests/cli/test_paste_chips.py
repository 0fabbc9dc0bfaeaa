from __future__ import annotations

import pytest
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys
from tools.terminal import paste

from outrider.cli.prompt.paste_chips import PasteChips, paste_label
from outrider.cli.prompt.paste_parser import PASTE_END, PasteParser

NINE = "".join(f"line {number}\n" for number in range(8)) + "line 8"
LONG = "x" * 801


@pytest.mark.parametrize("text", [NINE, LONG, "\n" * 8, "/exit " + LONG])
def test_a_large_paste_is_one_character(text: str) -> None:
    chips = PasteChips()
    assert len(chips.fold(text)) == 1
    assert chips.unfold(f"a {chips.fold(text)} b") == f"a {text} b"


@pytest.mark.parametrize("text", ["", "word", NINE.partition("\n")[2], LONG[1:], "\n" * 7])
def test_a_short_paste_is_its_text(text: str) -> None:
    assert PasteChips().fold(text) == text


@pytest.mark.parametrize(
    ("text", "label"),
    [
        (NINE, "[pasted 9 lines, 62 B]"),
        (NINE + "\n", "[pasted 9 lines, 63 B]"),
        (LONG, "[pasted 1 line, 801 B]"),
        ("é" * 801, "[pasted 1 line, 1.6 kB]"),
        ("x" * 1999 + "\n" + "y" * 1_248_000, "[pasted 2 lines, 1.2 MB]"),
    ],
)
def test_labels_say_how_much(text: str, label: str) -> None:
    assert paste_label(text) == label


def test_entered_private_characters_are_not_pastes() -> None:
    chips = PasteChips()
    chip = chips.fold(NINE)
    typed = chips.escape(f"{chip}\U0010fffd\ue000")
    assert chip not in typed
    assert chips.unfold(typed) == f"{chip}\U0010fffd\ue000"
    assert chips.show(typed) == f"{chip}\U0010fffd\ue000"
    assert chips.spans(typed) == []


def test_a_message_that_comes_back_is_folded_again() -> None:
    chips = PasteChips()
    line = f"first {chips.fold(NINE)}, then {chips.fold(LONG)}{chips.fold(NINE)}."
    assert chips.refold(chips.unfold(line)) == line
    assert chips.show(line) == (
        f"first {paste_label(NINE)}, then {paste_label(LONG)}{paste_label(NINE)}."
    )
    edited = chips.unfold(line).replace("line 8,", "line eight,")
    assert chips.show(chips.refold(edited)).startswith("first line 0\nline 1")
    assert chips.unfold(chips.refold(edited)) == edited


def test_spans_carry_pastes_to_another_chat() -> None:
    chips = PasteChips()
    line = chips.escape("\U00100007 a") + chips.fold(NINE) + "é\n" + chips.fold(LONG)
    text = chips.unfold(line)
    assert [text[start:end] for start, end in chips.spans(line)] == [NINE, LONG]
    other = PasteChips()
    again = other.fold_spans(text, chips.spans(line))
    assert other.unfold(again) == text
    assert other.show(again) == chips.show(line)


def keys_of(*chunks: str) -> list[KeyPress]:
    keys: list[KeyPress] = []
    parser = PasteParser(keys.append)
    for chunk in chunks:
        parser.feed(chunk)
    return keys


@pytest.mark.parametrize("at", range(1, len(paste("ab\x1b[201")) + 1))
def test_a_paste_may_be_cut_anywhere(at: int) -> None:
    sent = "x" + paste("ab\x1b[201") + "y" + paste("c")
    pressed = [(key.key, key.data) for key in keys_of(sent[:at], sent[at:])]
    assert pressed == [
        ("x", "x"),
        (Keys.BracketedPaste, "ab\x1b[201"),
        ("y", "y"),
        (Keys.BracketedPaste, "c"),
    ]


def test_every_character_in_a_chunk_of_its_own() -> None:
    assert keys_of(*paste(NINE)) == [KeyPress(Keys.BracketedPaste, NINE)]


def test_an_end_mark_without_a_paste_is_nothing() -> None:
    pressed = [key.key for key in keys_of("a" + PASTE_END + "b\x1b[A")]
    assert pressed == ["a", Keys.Ignore, "b", Keys.Up]
