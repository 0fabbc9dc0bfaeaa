from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.input.typeahead import get_typeahead
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import DummyOutput
from tools.terminal import ALT_ENTER, CTRL_C, CTRL_D, CTRL_J, ENTER, paste

from outrider.cli.errors import UsageError
from outrider.cli.glyphs import UNICODE
from outrider.cli.prompt.history import MessageHistory, history_path
from outrider.cli.prompt.keyboard import Keyboard, TypeAhead
from outrider.cli.prompt.keys import clean_paste
from outrider.cli.prompt.paste_chips import PasteChips
from outrider.cli.prompt.prompt import Prompt, PromptLine
from outrider.cli.screen.panel import Row


class Reader:
    """A prompt and the keys pressed at it; ``toolbars`` are the texts it was asked for."""

    def __init__(self, keys: PipeInput) -> None:
        self.keys = keys
        self.history = InMemoryHistory()
        self.toolbars: list[str] = []
        self.edited = ""
        self.edit: Callable[[str], str] = str
        self.prompt = Prompt(
            keys=keys,
            output=DummyOutput(),
            history=self.history,
            chips=PasteChips(),
            completer=WordCompleter(["/help", "/history"], WORD=True),
            toolbar=self._toolbar,
            suspend=lambda: None,
            edit=self._edit,
            glyphs=UNICODE,
        )

    def _edit(self, text: str) -> str:
        self.edited = text
        return self.edit(text)

    def _toolbar(self, typed: str, width: int) -> Row:
        self.toolbars.append(typed)
        return [("toolbar", "dim")]

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


@pytest.mark.parametrize("wanted", ["quokka", "see", "see log 0"])
def test_ctrl_r_finds_words_of_a_large_paste(reader: Reader, wanted: str) -> None:
    log = "".join(f"log {number} of a quokka\n" for number in range(20))
    reader.read("see " + paste(log) + " now" + ENTER)
    reader.read("the sun" + ENTER)
    assert reader.read(f"\x12{wanted}" + ENTER + ENTER).text == f"see {log} now"


def test_a_search_goes_on_through_pastes_and_typed_text_both_ways(reader: Reader) -> None:
    log = "a quokka\n" * 20
    for message in ("quokka one", paste(log), "the sea", "quokka two"):
        reader.read(message + ENTER)
    back = "\x12"
    assert reader.read(f"{back}quokka{back}{back}" + ENTER + ENTER).text == "quokka one"
    assert reader.read(f"{back}quokka{back}{back}" + ENTER + ENTER).text == log


def test_a_search_goes_on_inside_a_message(reader: Reader) -> None:
    reader.read("sea, quokka, sea" + ENTER)
    assert reader.read("\x12sea" + ENTER + "X" + ENTER).text == "sea, quokka, Xsea"
    assert reader.read("\x12sea\x12" + ENTER + "X" + ENTER).text == "Xsea, quokka, Xsea"


def test_a_search_that_is_left_takes_nothing(reader: Reader) -> None:
    reader.read("the sky" + ENTER)
    assert reader.read("draft\x12sk\x12\x07s" + ENTER).text == "drafts"
    assert reader.read("draft\x12sk\x12" + CTRL_C + "s" + ENTER).text == "drafts"


def test_ctrl_p_and_ctrl_n_are_history_inside_a_text_of_lines(reader: Reader) -> None:
    reader.read("before" + ENTER)
    assert reader.read("one\ntwo\x10" + ENTER).text == "before"
    assert reader.read("one\ntwo\x10\x0e" + ENTER).text == "one\ntwo"


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ("/hel\t" + ENTER, "/help"),
        ("/hi\t now" + ENTER, "/history now"),
        ("/h\t" + CTRL_C + "a\tb" + ENTER, "a   b"),
        (paste("/h") + "\t." + ENTER, "/h  ."),
    ],
)
def test_tab_takes_the_only_completion(reader: Reader, keys: str, text: str) -> None:
    assert reader.read(keys).text == text


# large pastes

LOG = "".join(f"line {number}\n" for number in range(9))
DUMP = "x" * 900
UNDO = "\x1f"


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ("a" + paste(LOG) + "b" + ENTER, f"a{LOG}b"),
        (paste(LOG) + " and " + paste(DUMP) + ENTER, f"{LOG} and {DUMP}"),
        (paste(LOG) + "\x7fa" + ENTER, "a"),
        (paste(LOG) + paste(DUMP) + "\x02\x02b" + ENTER, f"b{LOG}{DUMP}"),
        (paste(LOG) + "\x01\x04a" + ENTER, "a"),
        (paste(LOG) + "\x7f" + UNDO + ENTER, LOG),
        ("a" + paste(LOG) + "\x01\x0bb\x19\x19" + ENTER, f"ba{LOG}a{LOG}"),
        ("\U00100000" + paste(LOG) + "\U00100001" + ENTER, f"\U00100000{LOG}\U00100001"),
        (paste(LOG) + paste("\U00100000") + ENTER, f"{LOG}\U00100000"),
        # upper-casing what follows must not lose it
        (paste(LOG) + "word\x01\x1bu" + ENTER, f"{LOG}WORD"),
    ],
)
def test_a_large_paste_is_edited_as_one_character(reader: Reader, keys: str, text: str) -> None:
    assert reader.read(keys).text == text


def test_a_large_paste_is_never_a_command(reader: Reader) -> None:
    command = "/exit" + LOG
    assert reader.read(paste(command) + ENTER) == PromptLine(command, True)
    assert reader.read("\x10" + ENTER) == PromptLine(command, True)


def test_the_editor_has_the_whole_text_and_it_is_folded_after(reader: Reader) -> None:
    reader.edit = lambda text: f"{text}, in short"
    reader.read("see " + paste(LOG) + "\x07" + ENTER)
    assert reader.edited == f"see {LOG}"
    [line] = reader.history.get_strings()
    assert line.startswith("see ")
    assert line.endswith(", in short")
    assert len(line) == len("see ?, in short")


def test_an_editor_that_fails_changes_nothing(reader: Reader) -> None:
    def fail(text: str) -> str:
        raise UsageError("EDITOR=nano: no such file")

    reader.edit = fail
    assert reader.read("text\x07s" + ENTER).text == "texts"


def test_a_message_that_waits_again_is_folded_again(reader: Reader) -> None:
    reader.read("see " + paste(LOG) + ENTER)
    assert reader.read("\x7f." + ENTER, default=f"see {LOG}").text == "see ."


def test_the_toolbar_counts_the_whole_paste(reader: Reader) -> None:
    reader.read("a" + paste(LOG) + ENTER)
    reader.keys.send_text(ENTER)
    reader.prompt.read(f"a{LOG}")
    assert f"a{LOG}" in reader.toolbars


def test_the_toolbar_is_told_what_is_typed(reader: Reader) -> None:
    reader.read("abc" + ENTER)
    assert reader.toolbars[0] in ("", "abc")


@pytest.mark.parametrize(
    ("text", "clean"),
    [("a\r\nb", "a\nb"), ("a\rb", "a\nb"), ("a\tb\x1b[201~\x9b", "a\tb"), ("é\n", "é\n")],
)
def test_pastes_are_cleaned(text: str, clean: str) -> None:
    assert clean_paste(text) == clean


# history


def tell_nothing(text: str) -> None:
    raise AssertionError(text)


def test_history_is_kept_in_the_state_folder_for_the_user_alone(user_folders: Path) -> None:
    path = history_path()
    assert user_folders in path.parents
    history = MessageHistory(path, tell_nothing, PasteChips())
    history.append_string("one\ntwo")
    history.append_string("three")
    assert path.stat().st_mode & 0o077 == 0
    again = MessageHistory(path, tell_nothing, PasteChips())
    assert list(again.load_history_strings()) == ["three", "one\ntwo"]


def test_history_brings_pastes_back_folded(user_folders: Path) -> None:
    chips = PasteChips()
    history = MessageHistory(history_path(), tell_nothing, chips)
    line = chips.escape("\U00100003 ") + f"é\n+ see {chips.fold(LOG)} and {chips.fold(DUMP)}"
    history.append_string(line)
    history.append_string("# pasted 0-4")
    later = PasteChips()
    again = MessageHistory(history_path(), tell_nothing, later)
    typed, folded = again.load_history_strings()
    assert typed == "# pasted 0-4"
    assert later.unfold(folded) == f"\U00100003 é\n+ see {LOG} and {DUMP}"
    assert later.show(folded) == chips.show(line)


def test_a_history_of_another_program_and_half_an_entry_are_read(user_folders: Path) -> None:
    path = history_path()
    path.parent.mkdir(parents=True)
    stock = FileHistory(path)
    stock.store_string("one\n\n+two")
    path.write_bytes(b"+half\n" + path.read_bytes() + b"\n# now\n+cut")
    again = MessageHistory(path, tell_nothing, PasteChips())
    assert list(again.load_history_strings()) == ["cut", "one\n\n+two"]
    stock.store_string("three")
    again.store_string("four\nlines")
    assert list(FileHistory(path).load_history_strings())[:2] == ["four\nlines", "three"]


def test_a_huge_paste_does_not_crowd_out_the_history(user_folders: Path) -> None:
    chips = PasteChips()
    history = MessageHistory(history_path(), tell_nothing, chips)
    for message in ("one", chips.fold("x" * 2**20), "two"):
        history.append_string(message)
    assert len(history.get_strings()) == 3
    again = MessageHistory(history_path(), tell_nothing, PasteChips())
    assert list(again.load_history_strings()) == ["two", "one"]


def test_a_history_that_cannot_be_used_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told: list[str] = []
    history = MessageHistory(tmp_path / "file" / "history", told.append, PasteChips())
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


def test_type_ahead_shows_a_large_paste_as_a_chip() -> None:
    pasted = KeyPress(Keys.BracketedPaste, "line\r\n" * 9)
    erase = KeyPress(Keys.ControlH, "\x7f")
    assert typed("a", pasted, "b").preview == "a[pasted 9 lines, 45 B]b"
    assert typed("a", pasted, erase, "b").preview == "ab"


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
