"""The prompt as a user sees it, in an emulated terminal."""

from __future__ import annotations

import json
import os
import random
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tools.prompt_program import COMMAND, marks
from tools.terminal import CTRL_C, CTRL_D, CTRL_J, CTRL_Z, ENTER, UP, Terminal, paste
from tools.tmux import Tmux

BACKSPACE = "\x7f"
TOOLBAR = "base · d adaptive · match"
LOG = "".join(f"{number}\tentry\r\n" for number in range(300))
LOG_TEXT = LOG.replace("\r\n", "\n")
LOG_CHIP = "[pasted 300 lines, 2.9 kB]"
LONG = "begin" + "".join(f" word{number}" for number in range(30)) + " end"
REST_S = 1.0

Start = Callable[..., Terminal]


@pytest.fixture
def entered(tmp_path: Path) -> Path:
    """The file that gets what is entered."""
    return tmp_path / "entered"


@pytest.fixture
def start(entered: Path) -> Iterator[Start]:
    """Start a prompt in a terminal and wait for it."""
    with ExitStack() as stack:

        def start(rows_above: int = 0, **terminal: object) -> Terminal:
            command = [*COMMAND, str(entered), str(rows_above)]
            opened = stack.enter_context(Terminal(command, deadline_s=60, **terminal))  # type: ignore[arg-type]
            opened.wait_for(TOOLBAR)
            return opened

        yield start


def messages(entered: Path) -> list[str]:
    lines = entered.read_text().splitlines() if entered.exists() else []
    return [json.loads(line)[0] for line in lines]


def wait_entered(terminal: Terminal, entered: Path, count: int) -> list[str]:
    terminal.wait(lambda: len(messages(entered)) == count, f"message number {count}")
    return messages(entered)


def wait_screen(terminal: Terminal, *rows: str) -> None:
    """Wait until the rows in view begin with ``rows``, blank ones left out."""

    def shown() -> list[str]:
        return [row for row in terminal.screen() if row]

    def is_there() -> bool:
        seen = shown()
        return len(seen) == len(rows) and all(map(str.startswith, seen, rows))

    terminal.wait(is_there, "rows " + repr(rows))


def test_a_long_paste_is_one_message_and_a_chip_on_screen(start: Start, entered: Path) -> None:
    terminal = start()
    terminal.send("see " + paste(LOG) + " and" + CTRL_J + "list the errors")
    wait_screen(terminal, f"› see {LOG_CHIP} and", "list the errors", TOOLBAR)
    terminal.send(ENTER)
    [message] = wait_entered(terminal, entered, 1)
    assert message == f"see {LOG_TEXT} and\nlist the errors"
    wait_screen(terminal, f"› see {LOG_CHIP} and", "list the errors", "›", TOOLBAR)


def test_a_paste_of_60_kb_is_whole(start: Start, entered: Path) -> None:
    terminal = start()
    text = "\n".join(f"{number} " + "日本語 text " * 8 for number in range(500))
    assert len(text.encode()) > 60_000
    terminal.send(paste(text) + "." + ENTER)
    assert wait_entered(terminal, entered, 1) == [f"{text}."]


def test_an_end_of_paste_without_a_paste_is_nothing(start: Start, entered: Path) -> None:
    terminal = start()
    terminal.send("a\x1b[201~b" + paste("c") + "\x1b[201~d" + ENTER)
    assert wait_entered(terminal, entered, 1) == ["abcd"]


def test_a_paste_is_no_command(start: Start, entered: Path) -> None:
    terminal = start()
    terminal.send(paste("/exit") + ENTER + paste("/exit\n" + LOG) + ENTER + "/exit" + ENTER)
    wait_entered(terminal, entered, 3)
    flags = [json.loads(line)[1] for line in entered.read_text().splitlines()]
    assert flags == [True, True, False]


def test_a_chip_is_erased_as_one_character(start: Start) -> None:
    terminal = start()
    terminal.send("a" + paste(LOG) + "b")
    wait_screen(terminal, f"› a{LOG_CHIP}b", TOOLBAR)
    terminal.send(BACKSPACE + BACKSPACE)
    terminal.wait(lambda: terminal.screen()[0] == "› a", "the chip gone")


def test_the_history_of_an_earlier_chat_brings_a_chip_back(start: Start, entered: Path) -> None:
    first = start()
    first.send("see " + paste(LOG) + ENTER)
    wait_entered(first, entered, 1)
    first.send(CTRL_D)
    assert first.wait_exit() == 0
    again = start()
    again.send(UP)
    again.wait_for(f"› see {LOG_CHIP}")
    again.send(BACKSPACE + "it" + ENTER)
    assert wait_entered(again, entered, 2)[1] == "see it"
    again.send("\x12pasted")
    again.wait_for("no match")
    again.send("\x07\x12see")
    again.wait_for("search: see   1 of 2   enter takes it   ctrl-g leaves")
    again.send("\x12")
    again.wait_for("2 of 2")
    again.send(ENTER + ENTER)
    sent = wait_entered(again, entered, 3)
    assert sent[2] == sent[0]


FAMILY = "\N{MAN}\u200d\N{WOMAN}\u200d\N{GIRL}"
HEART_AND_THUMB = "\N{HEAVY BLACK HEART}\ufe0f \N{THUMBS UP SIGN}\U0001f3fd"


@pytest.mark.parametrize(
    "text", ["日本語の文章", FAMILY, HEART_AND_THUMB, "e\u0301a\u0300", "a\U00100000b"]
)
def test_wide_and_joined_characters_are_typed_and_erased(
    start: Start, entered: Path, text: str
) -> None:
    terminal = start()
    terminal.send(text + BACKSPACE * len(text))
    terminal.wait(lambda: terminal.screen()[0] == "›", "an empty line")
    terminal.send(text)
    terminal.wait(lambda: terminal.screen()[0] != "›", "the text")
    terminal.send(BACKSPACE * len(text))
    terminal.wait(lambda: terminal.screen()[0] == "›", "an empty line")
    terminal.send(text + ENTER)
    assert wait_entered(terminal, entered, 1) == [text]


def test_the_menu_stands_below_the_input(start: Start) -> None:
    terminal = start()
    terminal.send("/s")
    terminal.wait_for("  /save      save under a name")
    assert terminal.screen()[0] == "› /s"
    assert TOOLBAR not in terminal.text()
    terminal.send("p\t")
    wait_screen(terminal, "› /spec", TOOLBAR)
    terminal.send(" o")
    terminal.wait_for("  off")
    terminal.send("\t\t" + ENTER)
    terminal.wait(lambda: terminal.screen()[0] in ("› /spec on", "› /spec off"), "a choice")


def test_hints_give_way_again(start: Start) -> None:
    terminal = start()
    terminal.send(CTRL_C)
    wait_screen(terminal, "›", "ctrl-c again or ctrl-d leaves")
    wait_screen(terminal, "›", TOOLBAR)
    terminal.send("text")
    terminal.wait_for("› text")
    terminal.send(CTRL_C)
    wait_screen(terminal, "›", "line cleared, up brings it back")
    wait_screen(terminal, "›", TOOLBAR)
    terminal.send(UP)
    wait_screen(terminal, "› text", TOOLBAR)
    terminal.send(CTRL_C + CTRL_C + CTRL_C)
    assert terminal.wait_exit() == 0
    assert terminal.text() == ""


def test_a_cleared_screen_is_in_the_scrollback(start: Start) -> None:
    terminal = start(rows_above=5)
    terminal.send("typed\x0c")
    wait_screen(terminal, "› typed", TOOLBAR)
    assert [line for line in terminal.lines() if line][:5] == marks(5)
    assert len([line for line in terminal.lines() if line]) == 7


def test_a_message_longer_than_the_screen_is_whole_in_the_scrollback(start: Start) -> None:
    terminal = start(rows=10)
    rows = [f"row {number}" for number in range(20)]
    terminal.send(CTRL_J.join(rows))
    terminal.wait_for("row 19")
    terminal.send(ENTER)
    terminal.wait_for(TOOLBAR)
    whole = ["› row 0", *rows[1:]]
    terminal.wait(lambda: terminal.lines()[: len(rows)] == whole, "the whole message")


def test_suspended_and_continued_at_the_prompt(entered: Path) -> None:
    with Terminal(["bash", "--norc", "-i"], env={"PS1": "shell% "}, deadline_s=60) as terminal:
        terminal.wait_for("shell%")
        terminal.send(shlex.join([*COMMAND, str(entered)]) + ENTER)
        terminal.wait_for(TOOLBAR)
        terminal.send("half" + CTRL_Z)
        terminal.wait_for("Stopped")
        terminal.wait_for("shell%", count=2)
        assert TOOLBAR not in terminal.text()
        terminal.send("echo $((40 + 2))$(stty -a | grep -o ' icanon')" + ENTER)
        terminal.wait_for("42 icanon")
        terminal.send("fg" + ENTER)
        terminal.wait_for("› half")
        terminal.send(" done" + ENTER)
        assert wait_entered(terminal, entered, 1) == ["half done"]


@pytest.mark.parametrize("exit_code", [0, 1])
def test_the_editor_has_the_terminal(start: Start, entered: Path, exit_code: int) -> None:
    editor = entered.with_name("editor.sh")
    editor.write_text(
        "#!/bin/sh\nstty -a | grep -o ' icanon' > $0.mode\nwc -l < $1 > $0.lines\n"
        f"printf ', edited' >> $1\nexit {exit_code}\n"
    )
    editor.chmod(0o755)
    terminal = start(columns=250, env={"VISUAL": str(editor)})
    terminal.send("see " + paste(LOG.rstrip()))
    terminal.wait_for("[pasted 300 lines")
    terminal.send("\x07")
    if exit_code:
        terminal.wait_for("ended with exit code 1")
    else:
        terminal.wait_for(", edited")
    terminal.send(ENTER)
    [message] = wait_entered(terminal, entered, 1)
    pasted = LOG_TEXT.rstrip()
    assert message == (f"see {pasted}" if exit_code else f"see {pasted}\n, edited")
    assert Path(f"{editor}.mode").read_text() == " icanon\n"
    assert Path(f"{editor}.lines").read_text().strip() == "300"
    assert (terminal.bracketed_paste, terminal.echo) == (True, False)


def test_resized_where_rows_are_cut(start: Start) -> None:
    terminal = start(rows_above=40, columns=100, rows=30, env={"TMUX": ""})
    terminal.send(LONG)
    terminal.wait_for(" end")
    for columns, rows in [(60, 30), (90, 24), (45, 24), (100, 30)]:
        terminal.resize(columns, rows)
        wait_rested(terminal)
        assert [line for line in terminal.lines() if line][:40] == marks(40)
        assert ends(terminal) == (1, 1)


def ends(terminal: Terminal) -> tuple[int, int]:
    """How often the beginning and the end of the input are there."""
    text = "".join(terminal.lines())
    return text.count("› begin"), text.count(" end")


def wait_rested(terminal: Terminal) -> None:
    """Wait until the rows were painted again after a resize, down to the last."""
    before = len(terminal.raw)
    terminal.wait(lambda: "begin" in terminal.raw[before:], "a new painting")
    terminal.wait(lambda: not terminal.raw.endswith("\x1b[6n"), "the end of it")
    terminal.wait(lambda: min(ends(terminal)) > 0, "the beginning and the end")
    terminal.read(0.2)


@pytest.mark.parametrize("knows_tmux", [True, False])
def test_resized_where_rows_are_wrapped_anew(
    entered: Path, tmp_path: Path, knows_tmux: bool
) -> None:
    # a caret right of the narrowed terminal tells how it wraps
    text = LONG if knows_tmux else LONG[:81] + " end"
    command = [] if knows_tmux else ["env", "-u", "TMUX"]
    command += [*COMMAND, str(entered), "60"]
    chance = random.Random(7)
    sizes = [(chance.randrange(36, 80), chance.randrange(18, 34)) for _ in range(5)]
    with Tmux(command, tmp_path, columns=100, rows=30) as terminal:
        terminal.wait_for(TOOLBAR)
        terminal.send(text)
        terminal.wait_for(" end")
        for columns, rows in sizes:
            terminal.resize(columns, rows)
            terminal.rest(REST_S)
            shown = terminal.text()
            joined = shown.replace("\n", "")
            assert [shown.count(mark) for mark in marks(60)] == [1] * 60, shown
            assert (joined.count("› begin"), joined.count(" end")) == (1, 1), shown


def test_the_way_to_the_prompt_on_windows() -> None:
    program = textwrap.dedent("""
        import builtins, sys, types

        POSIX = {"termios", "tty", "pty", "fcntl", "resource", "pwd", "grp"}
        POSIX |= {"prompt_toolkit.input.vt100", "prompt_toolkit.input.posix_pipe"}
        imported = builtins.__import__
        windows = {"sys": types.ModuleType("sys"), "msvcrt": types.ModuleType("msvcrt")}
        windows["sys"].__dict__.update(vars(sys), platform="win32")

        def import_as_on_windows(name, globals=None, *rest):
            if (globals or {}).get("__name__", "").startswith("outrider"):
                if name in POSIX:
                    raise ImportError(f"{globals['__name__']} imports {name}")
                if name in windows:
                    return windows[name]
            return imported(name, globals, *rest)

        builtins.__import__ = import_as_on_windows
        import outrider.cli.chat.chat
        from outrider.cli.chat.terminal import is_dumb
        assert not is_dumb()  # TERM is not set, nobody sets it there
        from prompt_toolkit.completion import DummyCompleter
        from prompt_toolkit.history import InMemoryHistory
        from prompt_toolkit.input import DummyInput
        from prompt_toolkit.output import DummyOutput
        from outrider.cli.glyphs import ASCII
        from outrider.cli.prompt.keyboard import Keyboard
        from outrider.cli.prompt.paste_chips import PasteChips
        from outrider.cli.prompt.prompt import Prompt

        Keyboard(DummyInput(), print)
        prompt = Prompt(
            keys=DummyInput(), output=DummyOutput(), history=InMemoryHistory(),
            chips=PasteChips(), completer=DummyCompleter(), toolbar=lambda typed, width: "",
            suspend=print, edit=str, glyphs=ASCII,
        )
        try:
            prompt.read("text")
        except EOFError:
            print("read")
    """)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={name: value for name, value in os.environ.items() if name != "TERM"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout.split()[-1:], done.stderr) == (["read"], "")
