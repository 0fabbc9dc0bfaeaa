"""Turns and branches in the real program: like a fresh process, killed, edited."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tools.program import COMMAND
from tools.shell_editor import Editor, shell_editor
from tools.terminal import CTRL_C, CTRL_D, ENTER, Terminal

from outrider.cli.chat.transcript import Transcript


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Editor:
    return shell_editor(tmp_path, monkeypatch)


COUNT = "Count from 5 to 16."
FOX = "Tell me a story about a fox."
Start = Callable[..., Terminal]


@pytest.fixture
def start(zoo: Path) -> Iterator[Start]:
    with ExitStack() as stack:

        def start(**env: str) -> Terminal:
            model = str(zoo / "target-llama.gguf")
            command = [*COMMAND, "chat", "-m", model, "-t", "1", "--temp", "0"]
            terminal = stack.enter_context(
                Terminal(command, columns=100, rows=40, env=env, deadline_s=60)
            )
            terminal.wait_for("›")
            return terminal

        yield start


def ask(terminal: Terminal, line: str, count: int) -> None:
    """Send a message or command that gives answer number ``count``, and wait for the prompt."""
    terminal.send(line + ENTER)
    wait_answer(terminal, count)


def wait_answer(terminal: Terminal, count: int) -> None:
    def is_there() -> bool:
        lines = terminal.text().splitlines()
        summaries = [line for line in lines if re.match(r"\d+ tokens · ", line)]
        return len(summaries) == count and lines[-1].startswith("base · ")

    terminal.wait(is_there, f"answer {count} and the prompt after it")


def newest(folders: Path) -> Transcript:
    files = (folders / "data" / "outrider" / "sessions").glob("*.json")
    return Transcript.load(max(files, key=os.path.getmtime))


def answers_of_a_fresh_process(start: Start, folders: Path, *messages: str) -> list[str | None]:
    terminal = start()
    for count, message in enumerate(messages, 1):
        ask(terminal, message, count)
    terminal.send(CTRL_D)
    assert terminal.wait_exit() == 0
    return [turn.answer for turn in newest(folders).turns]


def test_edit_branch_and_back_answer_like_a_fresh_process(
    start: Start, editor: Editor, user_folders: Path
) -> None:
    path = editor('stty -a < /dev/tty > modes; sed -i "s/16/12/" "$1"')
    terminal = start(EDITOR=f"'{path}'")
    ask(terminal, COUNT, 1)
    ask(terminal, FOX, 2)
    terminal.send("/edit 1" + ENTER)
    wait_answer(terminal, 3)
    assert "› Count from 5 to 12." in terminal.text()
    modes = Path("modes").read_text().split()
    assert "icanon" in modes  # the editor had the terminal as the shell left it
    assert "echo" in modes
    assert (terminal.raw.count("\x1b[?2004h"), terminal.raw.count("\x1b[?2004l")) >= (2, 1)
    assert terminal.bracketed_paste
    assert not terminal.echo
    terminal.send("/branch" + ENTER)
    terminal.wait_for("   1      2  message 1  Count from 5 to 16.")
    terminal.wait_for(">  2      1  –          Count from 5 to 12.")
    terminal.send("/branch 1" + ENTER)
    terminal.wait_for("note: branch 1: 2 turns")
    ask(terminal, COUNT, 4)
    terminal.send(CTRL_D)
    assert terminal.wait_exit() == 0
    first, second = newest(user_folders).branches
    assert [turn.answer for turn in first.turns] == answers_of_a_fresh_process(
        start, user_folders, COUNT, FOX, COUNT
    )
    assert [turn.answer for turn in second.turns] == answers_of_a_fresh_process(
        start, user_folders, "Count from 5 to 12."
    )


def test_retry_gives_the_same_text_and_shows_what_a_setting_changes(
    start: Start, user_folders: Path
) -> None:
    terminal = start()
    terminal.send("/set temp=1" + ENTER + "/set seed=3" + ENTER)
    ask(terminal, FOX, 1)
    ask(terminal, "/retry", 2)
    assert "note: the same text as before" in terminal.text()
    ask(terminal, "/regen", 3)
    ask(terminal, "/retry temp=0", 4)
    drawn, again, greedy = (branch.turns[0] for branch in newest(user_folders).branches)
    assert [turn.details["seed"] for turn in (drawn, again, greedy)] == [3, 4, 4]
    assert len({drawn.answer, again.answer, greedy.answer}) == 3
    terminal.send("/clear" + ENTER + "/set temp=0" + ENTER)
    ask(terminal, FOX, 5)
    assert newest(user_folders).turns[0].answer == greedy.answer


def test_an_editor_that_fails_gives_the_keys_back(start: Start, editor: Editor) -> None:
    path = editor("exit 3")
    terminal = start(EDITOR=f"'{path}'")
    ask(terminal, COUNT, 1)
    terminal.send("/edit" + ENTER)
    # the path in front of it has any length: the row may break anywhere
    told = "exitcode3;nothingwaschanged"
    terminal.wait(lambda: told in "".join(terminal.text().split()), told)
    assert terminal.bracketed_paste
    assert not terminal.echo
    ask(terminal, COUNT, 2)


def test_ctrl_c_in_the_editor_is_the_editors(start: Start, editor: Editor) -> None:
    path = editor('trap "echo Count from 5 to 12. > $1; exit 0" INT; echo waiting; read line')
    terminal = start(EDITOR=f"'{path}'")
    ask(terminal, COUNT, 1)
    terminal.send("/edit" + ENTER)
    terminal.wait_for("waiting")
    terminal.send(CTRL_C)
    wait_answer(terminal, 2)
    assert "› Count from 5 to 12." in terminal.text()


def test_killed_at_once_every_branch_is_there(
    start: Start, editor: Editor, user_folders: Path
) -> None:
    path = editor('sed -i "s/16/12/" "$1"')
    terminal = start(EDITOR=f"'{path}'")
    ask(terminal, COUNT, 1)
    ask(terminal, "/edit", 2)
    os.kill(terminal.pid, 9)
    assert terminal.wait_exit() == -9
    branches = newest(user_folders).branches
    assert [turn.message for branch in branches for turn in branch.turns] == [
        COUNT,
        "Count from 5 to 12.",
    ]
