"""The real chat with the tiny target in a terminal, and what it has saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tools.program import COMMAND
from tools.terminal import Terminal

# an answer that goes on until it is stopped
ENDLESS = ("--ignore-eos", "-c", "65536")


def zoo_command(zoo: Path, *flags: str) -> list[str]:
    model = str(zoo / "target-llama.gguf")
    return [*COMMAND, "chat", "-m", model, "-t", "1", "--temp", "0", *flags]


def zoo_chat(zoo: Path, *flags: str, **terminal: Any) -> Terminal:
    """A chat in a terminal of 100 x 30, if ``terminal`` does not say otherwise."""
    size = {"columns": 100, "rows": 30, "deadline_s": 60.0}
    return Terminal(zoo_command(zoo, *flags), **{**size, **terminal})


def saved_turns(home: Path) -> list[dict[str, object]]:
    """The turns of the one saved conversation; none before it is written."""
    files = list((home / "data" / "outrider" / "sessions").glob("*.json"))
    turns: list[dict[str, object]] = json.loads(files[0].read_text())["turns"] if files else []
    return turns
