from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.input.typeahead import get_typeahead
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import DummyOutput
from tools.terminal import ALT_ENTER, CTRL_C, CTRL_D, CTRL_J, ENTER, paste

from outrider.cli.glyphs import UNICODE
from outrider.cli.history import MessageHistory, history_path
from outrider.cli.keyboard import Keyboard, TypeAhead
from outrider.cli.prompt import Prompt, PromptLine
from outrider.cli.prompt_keys import clean_paste


class Reader:
    """A prompt and the keys pressed at it; ``toolbars`` are the texts it was asked for."""

    def __init__(self, keys: PipeInput) -> None:
        self.keys = keys
        self.history = InMemoryHistory()
        self.toolbars: list[str] = []
        self.prompt = Prompt(
            keys=keys,
            output=DummyOutput(),
            history=self.history,
            completer=WordCompleter(["/help", "/history"]),
            toolbar=self._toolbar,
            suspend=lambda: None,
            glyphs=UNICODE,
        )

    def _toolbar(self, typed: str, width: int) -> str:
        self.toolbars.append(typed)
        return "toolbar"

    def read(self, keys: str, default: str = "") -> PromptLine:
        self.keys.send_text(keys)
        return self.prompt.read(default)


@pytest.fixture
def reader() -> Iterator[Reader]:
    def too_late(number: int, frame: object) -> None:
        raise TimeoutError("the prompt still waits for keys")

    former = signal.signal(signal.SIGALRM, too_late)
    signal.alarm(60)
    try:
        with create_pipe_input() as keys:
            yield Reader(keys)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, former)


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ("hello" + ENTER, "hello"),
        ("one" + CTRL_J + "two" + ENTER, "one\ntwo"),
        ("one" + ALT_ENTER + "two" + ENTER, "one\ntwo"),
        ("one\\" + ENTER + "two" + ENTER, "one\ntwo"),
        (ENTER + "  " + ENTER + "x" + ENTER, "  x"),
        ("a\tb" + ENTER, "a   b"),
        ("日本語" + "\x7f" + ENTER, "日本"),
        (paste("one\r\ntwo\rthree\n") + ENTER, "one\ntwo\nthree\n"),
        (paste("tabs\tstay \x1b[31mred\x07") + ENTER, "tabs\tstay [31mred"),
        # an unbracketed paste with line feeds is one message too
        ("def f():\n    return 1\n" + ENTER, "def f():\n    return 1\n"),
    ],
)
def test_what_is_entered_is_what_is_sent(reader: Reader, keys: str, text: str) -> None:
    assert reader.read(keys).text == text


@pytest.mark.parametrize(
    ("keys", "is_pasted"),
    [
        ("/exit" + ENTER, False),
        (paste("/exit") + ENTER, True),
        (paste("/exit\nnow") + " please" + ENTER, True),
        ("/load " + paste("name") + ENTER, False),
        (paste("/x") + "\x7f\x7f" + "/exit" + ENTER, False),
    ],
)
def test_a_paste_at_the_front_is_known_as_one(reader: Reader, keys: str, is_pasted: bool) -> None:
    assert reader.read(keys).is_pasted is is_pasted


def test_a_message_that_waits_can_be_edited_and_is_no_command(reader: Reader) -> None:
    assert reader.read(" more" + ENTER, default="/precious") == PromptLine("/precious more", True)


def test_bytes_that_are_no_text_do_not_reach_the_tokenizer(reader: Reader) -> None:
    reader.keys.send_bytes(b"a\xffb\r")
    assert reader.prompt.read().text.encode("utf-8") == b"a?b"


def test_ctrl_c_clears_the_line_and_the_history_keeps_it(reader: Reader) -> None:
    assert reader.read("precious" + CTRL_C + "x" + ENTER).text == "x"
    assert reader.history.get_strings() == ["precious", "x"]


def test_ctrl_c_twice_on_an_empty_line_leaves(reader: Reader) -> None:
    with pytest.raises(EOFError):
        reader.read(CTRL_C + CTRL_C)


def test_one_ctrl_c_does_not_leave_nor_does_one_that_cleared_the_line(reader: Reader) -> None:
    assert reader.read(CTRL_C + "x" + ENTER).text == "x"
    assert reader.read("text" + CTRL_C + CTRL_C + "y" + ENTER).text == "y"


def test_right_after_a_stop_ctrl_c_does_not_count_towards_leaving(reader: Reader) -> None:
    reader.prompt.stopped()
    assert reader.read(CTRL_C * 5 + "still here" + ENTER).text == "still here"


def test_ctrl_d_leaves_an_empty_line_only(reader: Reader) -> None:
    assert reader.read("ab\x02" + CTRL_D + ENTER).text == "a"
    with pytest.raises(EOFError):
        reader.read(CTRL_D)


def test_a_closed_terminal_ends_the_chat(reader: Reader) -> None:
    reader.keys.close()
    with pytest.raises(EOFError):
        reader.prompt.read()


def test_ctrl_r_searches_the_history(reader: Reader) -> None:
    for message in ("the sky", "the sea", "the sun"):
        reader.read(message + ENTER)
    assert reader.read("\x12sk" + ENTER + ENTER).text == "the sky"


def test_the_toolbar_is_told_what_is_typed(reader: Reader) -> None:
    reader.read("abc" + ENTER)
    assert reader.toolbars[0] in ("", "abc")


@pytest.mark.parametrize(
    ("text", "clean"),
    [("a\r\nb", "a\nb"), ("a\rb", "a\nb"), ("a\tb\x1b[201~\x9b", "a\tb[201~"), ("é\n", "é\n")],
)
def test_pastes_are_cleaned(text: str, clean: str) -> None:
    assert clean_paste(text) == clean


# history


def tell_nothing(text: str) -> None:
    raise AssertionError(text)


def test_history_is_kept_in_the_state_folder_for_the_user_alone(user_folders: Path) -> None:
    path = history_path()
    assert user_folders in path.parents
    history = MessageHistory(path, tell_nothing)
    history.append_string("one\ntwo")
    history.append_string("three")
    assert path.stat().st_mode & 0o077 == 0
    again = MessageHistory(path, tell_nothing)
    assert list(again.load_history_strings()) == ["three", "one\ntwo"]


def test_a_history_that_cannot_be_used_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told: list[str] = []
    history = MessageHistory(tmp_path / "file" / "history", told.append)
    for message in ("one", "two"):
        history.append_string(message)
    assert list(history.load_history_strings()) == []
    assert len(told) == 1
    assert "history not kept" in told[0]


# keys typed while an answer is written


def typed(*keys: KeyPress | str) -> TypeAhead:
    ahead = TypeAhead()
    for key in keys:
        ahead.add(key if isinstance(key, KeyPress) else KeyPress(key, key))
    return ahead


ENTER_KEY = KeyPress(Keys.ControlM, "\r")


def test_type_ahead_shows_what_it_will_have_written() -> None:
    ahead = typed("a", "b", KeyPress(Keys.ControlH, "\x7f"), "c", KeyPress(Keys.ControlD, "\x04"))
    assert ahead.preview == "ac"
    assert not ahead.is_sent
    ahead.add(ENTER_KEY)
    assert ahead.is_sent


def test_unsent_type_ahead_keeps_its_text_without_enter() -> None:
    ahead = typed("a", ENTER_KEY, "b", ENTER_KEY, ENTER_KEY)
    ahead.unsend()
    assert [key.key for key in ahead.keys] == ["a", Keys.ControlJ, "b"]


def wait_until(is_true: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_keys_pressed_while_listening_come_to_the_next_prompt(reader: Reader) -> None:
    keyboard = Keyboard(reader.keys, lambda text: None)
    with keyboard, keyboard.listening() as ahead:
        reader.keys.send_text("first" + ENTER + paste("/exit\nx") + "seco")
        wait_until(lambda: ahead.preview.endswith("seco"))
    assert reader.prompt.read().text == "first"
    assert reader.read("nd" + ENTER) == PromptLine("/exit\nxsecond", True)


def test_keys_that_came_with_enter_count_as_pressed_during_the_answer(reader: Reader) -> None:
    keyboard = Keyboard(reader.keys, lambda text: None)

    def answer() -> None:
        with keyboard, keyboard.listening():
            pass

    assert reader.read("message" + ENTER + "next" + CTRL_C).text == "message"
    with pytest.raises(KeyboardInterrupt):
        answer()


def test_an_answer_that_fails_loses_no_key(reader: Reader) -> None:
    keyboard = Keyboard(reader.keys, lambda text: None)

    def fail() -> None:
        with keyboard, keyboard.listening() as ahead:
            reader.keys.send_text("kept")
            wait_until(lambda: ahead.preview == "kept")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert "".join(key.data for key in get_typeahead(reader.keys)) == "kept"


def test_ctrl_c_while_listening_interrupts(reader: Reader) -> None:
    keyboard = Keyboard(reader.keys, lambda text: None)

    def listen() -> None:
        with keyboard, keyboard.listening():
            reader.keys.send_text(CTRL_C)
            wait_until(lambda: False)

    with pytest.raises(KeyboardInterrupt):
        listen()


def test_cursor_reports_are_answers_and_not_keys(reader: Reader) -> None:
    def write(text: str) -> None:
        if text == "\x1b[6n":
            reader.keys.send_text("\x1b[12;43R")

    keyboard = Keyboard(reader.keys, write)
    with keyboard, keyboard.listening() as ahead:
        assert keyboard.cursor_column(timeout_s=20) == 42
    assert ahead.keys == []


def test_a_terminal_that_does_not_say_is_none(reader: Reader) -> None:
    keyboard = Keyboard(reader.keys, lambda text: None)
    with keyboard, keyboard.listening():
        assert keyboard.cursor_column(timeout_s=0.01) is None


def test_the_reader_leaves_no_descriptor_behind(reader: Reader) -> None:
    keyboard = Keyboard(reader.keys, lambda text: None)
    with keyboard:
        before = len(os.listdir("/dev/fd"))
        for _ in range(20):
            with keyboard.listening():
                pass
        assert len(os.listdir("/dev/fd")) == before
