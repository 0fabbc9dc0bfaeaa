"""Saved chats with the real program in a pseudo-terminal."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tools.program import COMMAND, outrider
from tools.terminal import CTRL_D, ENTER, Terminal

COUNT = "Count from 5 to 16."
COUNTED = "5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16."
COLOURS = "List three colours."
FOX = "Tell me a story about a fox."
DEADLINE_S = 60.0

Start = Callable[..., Terminal]


@pytest.fixture
def start(zoo: Path) -> Iterator[Start]:
    """Start a chat with a tiny target in a terminal."""
    with ExitStack() as stack:

        def start(*flags: str, model: str = "target-llama.gguf", **terminal: object) -> Terminal:
            command = [*COMMAND, "chat", "-m", str(zoo / model), "-t", "1", "--temp", "0", *flags]
            options = {"columns": 100, "rows": 30, "deadline_s": DEADLINE_S} | terminal
            return stack.enter_context(Terminal(command, **options))  # type: ignore[arg-type]

        yield start


def sessions(folders: Path) -> Path:
    return folders / "data" / "outrider" / "sessions"


def turns(path: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(path.read_text())["turns"]
    return found


def prompts(terminal: Terminal) -> int:
    return sum(line.startswith("›") for line in terminal.lines())


def wait_prompt(terminal: Terminal, number: int = 1) -> None:
    terminal.wait(lambda: prompts(terminal) >= number, f"prompt number {number}")


def ask(terminal: Terminal, *messages: str) -> None:
    """Ask, each when the answer before it has ended."""
    for message in messages:
        before = prompts(terminal)
        terminal.send(message + ENTER)
        wait_prompt(terminal, before + 1)


def leave(terminal: Terminal) -> None:
    terminal.send(CTRL_D)
    assert terminal.wait_exit() == 0


def test_killed_in_an_answer_the_chat_goes_on_as_a_fresh_one_would(
    start: Start, user_folders: Path, tmp_path: Path
) -> None:
    killed = start("-c", "65536")
    wait_prompt(killed)
    ask(killed, COUNT, COLOURS, "/set ignore_eos=true")
    killed.send(FOX + ENTER)
    killed.wait_for("Once upon a time")
    os.kill(killed.pid, signal.SIGKILL)
    assert killed.wait_exit() == -signal.SIGKILL
    [path] = sessions(user_folders).glob("*.json")
    assert [turn["message"] for turn in turns(path)] == [COUNT, COLOURS]

    continued = start("--continue")
    wait_prompt(continued, 2)
    ask(continued, FOX)
    leave(continued)
    elsewhere = {"XDG_DATA_HOME": str(tmp_path / "elsewhere")}
    fresh = start(env=elsewhere)
    wait_prompt(fresh)
    ask(fresh, COUNT, COLOURS, FOX)
    leave(fresh)
    [other] = (tmp_path / "elsewhere" / "outrider" / "sessions").glob("*.json")
    answers = [turn["answer"] for turn in turns(path)]
    assert answers == [turn["answer"] for turn in turns(other)]
    assert len(answers) == 3
    assert answers[0] == COUNTED
    assert str(answers[2]).startswith("Once upon a time")


def test_continued_it_shows_where_the_conversation_stands(start: Start, user_folders: Path) -> None:
    first = start("--session", "holiday")
    wait_prompt(first)
    ask(first, COLOURS, COUNT)
    shown = first.lines()
    leave(first)
    assert [path.name for path in sessions(user_folders).iterdir()] == ["holiday.json"]
    second = start("--continue")
    wait_prompt(second, 2)
    lines = [line for line in second.lines() if line]
    assert lines[3:6] == ["note: holiday goes on after 2 turns", f"› {COUNT}", COUNTED]
    # with the same space between them as when it was asked
    apart = shown.index(COUNTED) - shown.index(f"› {COUNT}")
    assert second.lines().index(COUNTED) - second.lines().index(f"› {COUNT}") == apart
    ask(second, "/sessions")
    second.wait_for(">  1  now            2  base         List three colours.")
    leave(second)


def test_another_model_goes_on_with_one_note(start: Start) -> None:
    first = start("--session", "holiday")
    wait_prompt(first)
    ask(first, COUNT)
    leave(first)
    second = start("--session", "holiday", model="target-swa-gemma3.gguf")
    wait_prompt(second, 2)
    assert second.text().count("zoo target-llama; ") == 1
    ask(second, COUNT)


def test_a_system_message_given_as_a_flag_wins(start: Start, user_folders: Path) -> None:
    first = start("--session", "holiday", "-sys", "be terse")
    wait_prompt(first)
    ask(first, COUNT)
    leave(first)
    for flags, system in (([], "be terse"), (["-sys", "be blunt"], "be blunt")):
        again = start("--session", "holiday", *flags)
        wait_prompt(again, 2)
        ask(again, "/system")
        again.wait_for(system)
        leave(again)


def test_what_could_not_be_saved_is_saved_on_leaving(start: Start, user_folders: Path) -> None:
    sessions(user_folders).parent.mkdir(parents=True)
    sessions(user_folders).write_text("a file where the folder should be")
    terminal = start("--session", "holiday", columns=200)
    wait_prompt(terminal)
    ask(terminal, COUNT, COLOURS)
    assert terminal.text().count("note: not saved") == 1
    sessions(user_folders).unlink()
    leave(terminal)
    assert len(turns(sessions(user_folders) / "holiday.json")) == 2


def test_forty_columns(start: Start) -> None:
    terminal = start("--session", "holiday", columns=40, rows=20)
    wait_prompt(terminal)
    ask(terminal, COUNT, "/sessions")
    lines = terminal.lines()
    row = lines.index(">  1")
    assert lines[row + 1 : row + 5] == [
        "when    now",
        "turns   1",
        "profile base",
        f"begins  {COUNT}",
    ]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--continue", "--session", "x"), "--continue and --session: give one of them"),
        (("--continue",), "--continue: no saved chat yet"),
        (("--session", "./broken.json"), "broken.json: not a saved conversation"),
        (("--session", "./folder.json"), "--session ./folder.json: Is a directory"),
        (("--session", "7"), "--session 7: allowed: a name that is not a number, or a path"),
    ],
)
def test_what_is_no_saved_chat_is_one_line_and_exit_2(
    start: Start, flags: tuple[str, ...], words: str
) -> None:
    Path("broken.json").write_text('{"schema": 1')
    Path("folder.json").mkdir()
    terminal = start(*flags, columns=200)
    assert terminal.wait_exit() == 2
    [line] = [line for line in terminal.lines() if line]
    assert line.startswith("outrider: error: ")
    assert words in line


def test_both_flags_are_refused_without_a_terminal_too() -> None:
    done = outrider("chat", "--continue", "--session", "x")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"--continue and --session" in done.stderr
