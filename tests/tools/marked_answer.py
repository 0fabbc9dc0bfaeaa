"""A program for tests of the screen: a marked Markdown answer in the chat's terminal, no model.

    python tests/tools/marked_answer.py SECONDS

The answer takes that many seconds, or as long as it must. Each row that must appear begins with
a mark of its own (``M001`` and so on). Then it writes ``all written`` and waits for a key.
"""

from __future__ import annotations

import os
import re
import sys
import time
from itertools import count

from outrider.cli.chat.terminal import ChatTerminal
from outrider.cli.screen.panel import Row
from outrider.profiles.schema import Chat

LAST = "all written"
_BLOCKS = 36
_PIECE = 9  # characters
_PROSE = (
    "prose with **bold** words, `code`, a wide 日本語の文章 and 🙂 that goes on over the edge of "
    "any terminal, so that it takes more rows than one, wherever it is cut"
)


def document() -> str:
    """Blocks of every kind, one after the other, longer than any screen."""
    numbers = count(1)

    def mark() -> str:
        return f"M{next(numbers):03}"

    kinds = (
        lambda: f"{mark()} {_PROSE}.\n\n",
        lambda: f"## {mark()} 見出し heading\n\n",
        lambda: f"```python\n{mark()} = 1  # 注釈\nif {mark()}:\n    {mark()} = 'x' * 3\n\n```\n\n",
        lambda: f"- {mark()} one\n- {mark()} 二つ目\n  - {mark()} nested\n- {mark()} three\n\n",
        lambda: f"| a | 表 |\n|---|---|\n| {mark()} | 値 |\n| {mark()} | two |\n\n",
        lambda: f"> {mark()} quoted 引用\n\n",
        lambda: f"1. {mark()} {_PROSE}\n2. {mark()} two\n\n",
        lambda: f"{mark()} " + f"{_PROSE}, " * 8 + "and that is all.\n\n",
    )
    return "".join(kinds[number % len(kinds)]() for number in range(_BLOCKS))


def marks(text: str) -> list[str]:
    """The marks in ``text``, in their order."""
    return re.findall(r"M\d{3}", text)


def panel(columns: int, rows: int) -> list[Row]:
    """Five rows up to the last column but one, as the full panel has."""
    size = f"{columns} x {rows}"
    return [
        [(f" panel row {number} at {size} ".ljust(columns - 1, "="), "dim")]
        for number in range(1, 6)
    ]


def main() -> None:
    with ChatTerminal(Chat()) as terminal:
        with terminal.keyboard.listening():
            # as in a terminal that was in use: an almost empty one files rows away when it narrows
            terminal.renderer.show([f"before {number}" for number in range(40)])
            terminal.renderer.begin(panel)
            text = document()
            starts = range(0, len(text), _PIECE)
            for start in starts:
                terminal.renderer.write(text[start : start + _PIECE])
                time.sleep(float(sys.argv[1]) / len(starts))
            terminal.renderer.end(LAST)
        os.read(sys.stdin.fileno(), 1)


if __name__ == "__main__":
    main()
