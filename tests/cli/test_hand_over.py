"""From prompt to answer to prompt: nothing typed is lost or echoed, no panel row stays behind."""

from __future__ import annotations

import random
import shlex
import sys
from pathlib import Path

import pytest
from tools.program import COMMAND
from tools.terminal import CTRL_C, CTRL_D, CTRL_Z, ENTER, Terminal, paste
from tools.zoo_chat import ENDLESS, saved_turns, zoo_chat, zoo_command

FOX = "Tell me a story about a fox."
CTRL_BACKSLASH = "\x1c"
PANEL = "first token"  # stands in the full panel, and nowhere else
FIRST_WORD = rf"{PANEL} +\d"  # there is something to keep: a stop does not give the message back
FAULTY = (
    "import sys; from outrider.cli.chat.chat import Chat; "
    "from outrider.cli.program import run_program; "
    "Chat.ask = lambda *given: 1 / 0; sys.exit(run_program(sys.argv[1:]))"
)


def wait_turns(terminal: Terminal, home: Path, number: int) -> list[dict[str, object]]:
    terminal.wait(lambda: len(saved_turns(home)) >= number, f"turn number {number}")
    return saved_turns(home)


@pytest.mark.parametrize("seed", range(2))
def test_messages_typed_across_hand_overs_arrive_in_order(
    zoo: Path, user_folders: Path, seed: int
) -> None:
    draw = random.Random(seed)
    messages = [f"message {number:02}" for number in range(1, 15)]
    with zoo_chat(zoo, "--ignore-eos", "-n", "200", "-c", "16384") as terminal:
        terminal.wait_for("›")
        for message in messages:
            for part in (message[:5], message[5:], ENTER):
                terminal.send(part)
                terminal.read(draw.choice([0.0, 0.02, 0.2]))
        turns = wait_turns(terminal, user_folders, 14)
        terminal.send(CTRL_D)
        assert terminal.wait_exit() == 0
        assert [turn["message"] for turn in turns] == messages
        shown = [line for line in terminal.lines() if "message" in line]
        assert shown == [f"› {message}" for message in messages]
        assert PANEL not in terminal.text()
        assert "next ›" not in terminal.text()


def test_a_paste_during_an_answer_is_one_message(zoo: Path, user_folders: Path) -> None:
    pasted = "/exit\nsecond line\nthird line"
    with zoo_chat(zoo, "--ignore-eos", "-n", "2000", "-c", "65536") as terminal:
        terminal.wait_for("›")
        terminal.send(FOX + ENTER)
        terminal.wait_for(PANEL)
        terminal.send(paste(pasted) + ENTER)
        turns = wait_turns(terminal, user_folders, 2)
        assert [turn["message"] for turn in turns] == [FOX, pasted]


def test_text_typed_during_an_answer_outlives_ctrl_c(zoo: Path, user_folders: Path) -> None:
    with zoo_chat(zoo, *ENDLESS) as terminal:
        terminal.wait_for("›")
        terminal.send(FOX + ENTER)
        terminal.wait_for("Once upon")
        terminal.send("half a thou" + CTRL_C)
        terminal.wait_for("› half a thou")
        assert PANEL not in terminal.text()
        terminal.send("ght" + ENTER)
        terminal.wait_match(FIRST_WORD)
        terminal.send(CTRL_C)
        assert wait_turns(terminal, user_folders, 2)[1]["message"] == "half a thought"


@pytest.mark.parametrize("when", ["at the prompt", "in an answer"])
def test_suspended_the_terminal_is_the_shells(zoo: Path, user_folders: Path, when: str) -> None:
    shell = ["bash", "--norc", "-i"]
    program = shlex.join(zoo_command(zoo, *ENDLESS))
    with Terminal(shell, columns=100, rows=30, env={"PS1": "shell% "}, deadline_s=60) as terminal:
        terminal.wait_for("shell%")
        terminal.send(program + ENTER)
        terminal.wait_for("›")
        seen = "› half a mess"
        if when == "in an answer":
            terminal.send(FOX + ENTER)
            terminal.wait_for("Once upon")
            seen = PANEL
        else:
            terminal.send("half a mess")
        terminal.wait_for(seen)
        terminal.send(CTRL_Z)
        terminal.wait_for("Stopped")
        terminal.wait_for("shell%", count=2)
        assert terminal.cursor_visible
        assert PANEL not in terminal.text()
        terminal.send("stty -a | grep -o ' icanon iexten echo '; echo end$((1))" + ENTER)
        terminal.wait_for("end1")
        assert "\n icanon iexten echo" in terminal.text()
        before = terminal.text().count(seen)
        terminal.send("fg" + ENTER)
        terminal.wait_for(seen, count=before + 1)
        if when == "in an answer":
            terminal.send(CTRL_C)
            terminal.wait_for("stopped at ")
            assert PANEL not in terminal.text()
        else:
            terminal.send("age" + ENTER)
            terminal.wait_match(FIRST_WORD)
            terminal.send(CTRL_C)
            assert wait_turns(terminal, user_folders, 1)[0]["message"] == "half a message"


def assert_given_back(terminal: Terminal) -> None:
    modes = (terminal.echo, terminal.cursor_visible, terminal.bracketed_paste)
    assert modes == (True, True, False)


@pytest.mark.parametrize("when", ["at the prompt", "in an answer"])
def test_ctrl_backslash_leaves_at_once(zoo: Path, when: str) -> None:
    with zoo_chat(zoo, *ENDLESS) as terminal:
        terminal.wait_for("›")
        if when == "in an answer":
            terminal.send(FOX + ENTER)
            terminal.wait_for("Once upon")
        terminal.send(CTRL_BACKSLASH)
        assert terminal.wait_exit() == (131 if when == "in an answer" else 0)
        assert_given_back(terminal)


def test_a_fault_of_the_program_gives_the_terminal_back(zoo: Path) -> None:
    command = [sys.executable, "-c", FAULTY, *zoo_command(zoo)[len(COMMAND) :]]
    with Terminal(command, columns=100, rows=30, deadline_s=60) as terminal:
        terminal.wait_for("›")
        terminal.send(FOX + ENTER)
        assert terminal.wait_exit() == 1
        assert "outrider: error: ZeroDivisionError" in terminal.text()
        assert_given_back(terminal)
