"""What only the terminal itself can say: its background, and how wide it draws a full block."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

_TIMEOUT_S = 0.08
_ASK_BACKGROUND = "\x1b]11;?\x1b\\"
_ASK_CURSOR = "\x1b[6n"
# the cursor comes back to where it was, and the block goes, in the same write
_ASK_WIDTH = f"\x1b7█{_ASK_CURSOR}\x1b8\x1b[K"
_COLOUR = re.compile(r"rgba?:([0-9a-f]+)/([0-9a-f]+)/([0-9a-f]+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TerminalTraits:
    """What a terminal that does not answer is taken for: dark, a block one cell wide."""

    has_light_ground: bool = False
    has_wide_blocks: bool = False


class Asks(Protocol):
    """A keyboard that hears what the terminal answers."""

    @property
    def background(self) -> str: ...
    def cursor_columns(self, query: str, count: int, timeout_s: float) -> list[int]: ...


def probe(keyboard: Asks, *, asks_width: bool) -> TerminalTraits:
    """Ask and wait at most 80 ms; the keyboard has to be listening.

    Terminals answer in order, so one that has said where its cursor is will say no more.
    """
    query = _ASK_BACKGROUND + _ASK_CURSOR + (_ASK_WIDTH if asks_width else "")
    columns = keyboard.cursor_columns(query, 2 if asks_width else 1, _TIMEOUT_S)
    return TerminalTraits(
        has_light_ground=is_light(keyboard.background),
        has_wide_blocks=len(columns) == 2 and columns[1] - columns[0] == 2,
    )


def is_light(answer: str) -> bool:
    """Whether an answer like ``rgb:ffff/ffff/ffff`` names a light colour."""
    found = _COLOUR.search(answer)
    if not found:
        return False
    shares = (int(digits, 16) / int("f" * len(digits), 16) for digits in found.groups())
    red, green, blue = shares
    return 0.299 * red + 0.587 * green + 0.114 * blue > 0.5
