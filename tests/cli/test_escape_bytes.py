"""Escape sequences in what a model, a file or an error says never reach the terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.program import COMMAND
from tools.terminal import ENTER, Terminal
from tools.zoo_chat import zoo_chat

ESCAPES = "a\x1b]0;evil\x07b\x1b[2Jc\x9b3;5Hd\x7fe\x08f"
SHOWN = "a]0;evilb[2Jc3;5Hdef"
GRAMMAR = (
    r'root ::= "a\x1b]0;evil\x07b\x1b[2Jc\u009b3;5Hd\x7fe\x08f\n\n'
    r'```\nin code \x1b]0;evil\x07\n```"'
)


def assert_harmless(terminal: Terminal) -> None:
    assert terminal.title == ""
    for harm in ("\x1b]0;", "evil\x07", "\x1b[2J", "\x9b", "\x7f", "e\x08f"):
        assert harm not in terminal.raw, repr(harm)


def test_in_the_text_of_a_model_in_the_chat(zoo: Path) -> None:
    with zoo_chat(zoo, "--grammar", GRAMMAR) as terminal:
        terminal.wait_for("›")
        terminal.send("Hello!" + ENTER)
        terminal.wait_for("tok/s ·")
        assert SHOWN in terminal.lines()
        assert "in code ]0;evil" in terminal.lines()
        assert_harmless(terminal)


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_in_the_text_of_a_model_in_run(zoo: Path, flags: tuple[str, ...]) -> None:
    model = str(zoo / "target-llama.gguf")
    asked = ("-t", "1", "--no-stdin", "--grammar", GRAMMAR, *flags, "Hello!")
    command = [*COMMAND, "run", "-m", model, *asked]
    with Terminal(command, columns=200, deadline_s=60) as terminal:
        assert terminal.wait_exit() == 0
        assert SHOWN in terminal.text() or flags
        assert_harmless(terminal)


def test_in_the_names_of_files(zoo: Path, user_folders: Path) -> None:
    folder = user_folders / "data" / "outrider" / "sessions"
    folder.mkdir(parents=True)
    (folder / f"{ESCAPES}.json").write_text("no conversation")
    with zoo_chat(zoo, columns=200) as terminal:
        terminal.wait_for("›")
        terminal.send("/load a")
        terminal.wait_for("evil")
        terminal.send("\t" + ENTER)
        terminal.send(ENTER)
        terminal.wait_for("error: ")
        assert_harmless(terminal)


def test_in_errors(zoo: Path, tmp_path: Path) -> None:
    template = tmp_path / "template.jinja"
    template.write_text("{{ raise_exception('" + ESCAPES + "') }}")
    with zoo_chat(zoo, "--chat-template-file", str(template), columns=200) as terminal:
        terminal.wait_for("›")
        terminal.send("Hello!" + ENTER)
        terminal.wait_for("error: ")
        terminal.wait_for(SHOWN)
        assert_harmless(terminal)


@pytest.mark.parametrize("flag", ["-m", "-P", "-f", "--grammar-file"])
def test_in_arguments(zoo: Path, flag: str) -> None:
    command = [*COMMAND, "chat", "-m", str(zoo / "target-llama.gguf"), flag, ESCAPES]
    with Terminal(command, columns=200, deadline_s=60) as terminal:
        assert terminal.wait_exit() == 2
        assert "evil" in terminal.text()
        assert_harmless(terminal)
