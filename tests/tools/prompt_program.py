"""The prompt of the chat and nothing else: what is entered goes to a file, a JSON line each."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tools.scripted_chat import scripted_chat

from outrider.cli.chat.terminal import ChatTerminal
from outrider.cli.screen.status_lines import toolbar
from outrider.profiles.schema import Chat

_TESTS = Path(__file__).parents[1]
COMMAND = ("env", f"PYTHONPATH={_TESTS}", sys.executable, "-m", "tools.prompt_program")


def marks(count: int) -> list[str]:
    """The rows that the program prints above its prompt."""
    return [f"mark {number}." for number in range(1, count + 1)]


def main(entered: str, rows_above: str = "0") -> None:
    chat = scripted_chat(model=Path(__file__)).chat
    for mark in marks(int(rows_above)):
        print(mark)
    with ChatTerminal(Chat()) as terminal:
        prompt = terminal.prompt(
            chat, lambda typed, width: toolbar(chat.models, typed, width, terminal.glyphs), print
        )
        while True:
            try:
                line = prompt.read()
            except EOFError:
                return
            with Path(entered).open("a") as file:
                file.write(json.dumps([line.text, line.is_pasted]) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
