"""The tokens of a text, with what each of them prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len

from outrider.cli.glyphs import UNICODE, Glyphs
from outrider.cli.stats_view import plural

if TYPE_CHECKING:
    from outrider.speculative.engine import Engine

_MOST_ROWS = 40


def text_tokens(engine: Engine, text: str) -> list[int]:
    """The tokens of a text inside a message."""
    return engine.encode(text, parse_special=False)[len(engine.encode("")) :]


def token_rows(
    token_ids: Sequence[int], pieces: Sequence[bytes], *, width: int, glyphs: Glyphs = UNICODE
) -> list[str]:
    """The tokens as ``id "piece"``, as many a row as fit; what comes after 40 rows is counted."""
    rows = [""]
    for number, (token_id, piece) in enumerate(zip(token_ids, pieces, strict=True)):
        for cell in _folded(f'{token_id} "{escaped(piece, glyphs)}"', width - 1):
            if rows[-1] and cell_len(rows[-1]) + 2 + cell_len(cell) >= width:
                rows.append("")
            rows[-1] += f"  {cell}" if rows[-1] else cell
        if len(rows) > _MOST_ROWS:
            more = plural(len(token_ids) - number, "token")
            return [*rows[:_MOST_ROWS], f"{glyphs.ellipsis} {more} more"]
    return rows


def escaped(piece: bytes, glyphs: Glyphs = UNICODE) -> str:
    """A piece with everything that cannot be seen, or is half a character, as an escape."""
    text = piece.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")
    return "".join(
        one if one.isprintable() and (one.isascii() or glyphs is UNICODE) else _escape(one)
        for one in text
    )


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _folded(text: str, width: int) -> Iterator[str]:
    """``text`` in parts that fit."""
    part = ""
    for character in text:
        if cell_len(part + character) > width:
            yield part
            part = ""
        part += character
    yield part
