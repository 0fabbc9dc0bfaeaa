"""Markdown that is still being written: what is finished, and the tail that may change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markdown_it.token import Token
from rich.text import Text

from outrider.cli.screen.markdown import Block, MarkdownRows, highlight, inline_text, parse

_KEPT_ROWS = 2
_TRIES = 4
_MOST_CONTEXT = 60  # lines of code that are read again to highlight the next
_CAN_OPEN = re.compile(r"\*\*|`|~~|(?<!\w)[*_](?=\w)")
_LISTS = ("bullet_list_open", "ordered_list_open")
_ENDS_AT_BLANK = ("paragraph_open", "table_open", "blockquote_open")


@dataclass(frozen=True, slots=True)
class _Fence:
    """An open code block: what closes it, its language, the indent that is not code."""

    markup: str
    language: str
    indent: int

    def closes(self, line: str) -> bool:
        text = line.strip()
        indent = len(line) - len(line.lstrip(" "))
        return indent < 4 and text.startswith(self.markup) and not text.strip(self.markup[0])


class MarkdownStream:
    """Takes text as it comes and gives each finished row once.

    A block is finished when the next begins; code goes line by line, lists item by item, and
    a paragraph longer than the tail gives up its rows but the last two.
    """

    def __init__(self, markdown: MarkdownRows) -> None:
        self._markdown = markdown
        self._pending = ""
        self._fence: _Fence | None = None
        self._code: list[str] = []
        self._gap = False
        self._long_from = 0  # length at which a long paragraph is looked at again

    def feed(self, text: str) -> None:
        self._pending += text

    def take(self, width: int, max_rows: int) -> list[Text]:
        """The rows that became final since the last call, for a tail of ``max_rows``."""
        rows: list[Text] = []
        while self._take_code(rows) if self._fence else self._take_blocks(rows, width):
            pass
        self._take_long_paragraph(rows, width, max_rows)
        return rows

    def tail(self, width: int) -> list[Text]:
        """The rows that may still change."""
        if self._fence:
            lines = [*self._code, self._pending]
            return self._spaced([highlight(lines, self._fence.language)[-1]])
        lines = self._pending.split("\n")
        rows: list[Text] = []
        for block in parse(self._pending):
            if rows:
                rows.append(Text())
            rows += self._markdown.rows(block, lines, width)
        return self._spaced(rows)

    def close(self, width: int) -> list[Text]:
        """The text has ended: all that is left."""
        if self._pending and not self._pending.endswith("\n"):
            self._pending += "\n"
        rows = self.take(width, max_rows=0)
        lines = self._pending.split("\n")
        for block in parse(self._pending):
            self._emit(rows, self._markdown.rows(block, lines, width))
        self._pending = ""
        return rows

    def _spaced(self, rows: list[Text]) -> list[Text]:
        return [Text(), *rows] if self._gap and any(row.plain for row in rows) else rows

    def _emit(self, rows: list[Text], block: list[Text], *, gap_after: bool = True) -> None:
        if self._gap:
            rows.append(Text())
        rows += block
        self._gap = gap_after
        self._long_from = 0

    def _take_blocks(self, rows: list[Text], width: int) -> bool:
        """Move finished blocks of the complete lines to ``rows``; False if there are none."""
        complete, _, partial = self._pending.rpartition("\n")
        lines = complete.split("\n") if complete else []
        blocks = parse(complete)
        if not blocks:
            self._pending = partial if lines else self._pending
            return False
        for block in blocks[:-1]:
            self._emit(rows, self._markdown.rows(block, lines, width))
        taken = self._take_part_of(rows, blocks[-1], lines, width)
        self._pending = "\n".join([*lines[taken:], partial])
        return taken > 0

    def _take_part_of(self, rows: list[Text], block: Block, lines: list[str], width: int) -> int:
        """Take what is finished of the last block; returns the first line that is not."""
        token = block.tokens[0]
        if block.kind == "fence":
            opening = lines[block.start]
            indent = len(opening) - len(opening.lstrip(" "))
            self._fence = _Fence(token.markup, token.info, indent)
            return block.start + 1
        if block.kind in _LISTS:
            return self._take_items(rows, block, lines, width)
        is_closed = block.kind in ("heading_open", "hr")
        ends_here = block.kind in _ENDS_AT_BLANK and block.end < len(lines)
        if is_closed or ends_here:
            self._emit(rows, self._markdown.rows(block, lines, width))
            return block.end
        return block.start

    def _take_items(self, rows: list[Text], block: Block, lines: list[str], width: int) -> int:
        items = block.children()
        for item in items[:-1]:
            ends_blank = not lines[item.end - 1].strip()
            self._emit(rows, self._markdown.rows(item, lines, width), gap_after=ends_blank)
        return items[-1].start

    def _take_code(self, rows: list[Text]) -> bool:
        """Move the complete lines of the open code block to ``rows``."""
        assert self._fence
        *lines, self._pending = self._pending.split("\n")
        closing = next((i for i, line in enumerate(lines) if self._fence.closes(line)), None)
        code = [self._without_indent(line) for line in lines[:closing]]
        if code:
            context = len(self._code)
            shown = highlight([*self._code, *code], self._fence.language)[context:]
            self._emit(rows, shown, gap_after=False)
            self._remember(code)
        if closing is None:
            return False
        self._pending = "\n".join([*lines[closing + 1 :], self._pending])
        self._fence, self._code, self._gap = None, [], True
        return True

    def _without_indent(self, line: str) -> str:
        assert self._fence
        return re.sub(rf"^ {{0,{self._fence.indent}}}", "", line)

    def _remember(self, code: Sequence[str]) -> None:
        """Keep the lines since the last one that begins in column 0, to highlight the next."""
        self._code += code
        for index in range(len(self._code) - 1, -1, -1):
            if self._code[index][:1].strip():
                del self._code[:index]
                break
        del self._code[:-_MOST_CONTEXT]

    def _take_long_paragraph(self, rows: list[Text], width: int, max_rows: int) -> None:
        if self._fence or len(self._pending) < self._long_from:
            return
        blocks = parse(self._pending) if max_rows else []
        if len(blocks) != 1 or blocks[0].kind != "paragraph_open":
            return
        shown = self._markdown.rows(blocks[0], [], width)
        if len(shown) <= max_rows:
            return
        # a mark that stands as text can still become emphasis or code
        is_open = (bool(_CAN_OPEN.search(row.plain)) for row in shown)
        safe = next((number for number, mark in enumerate(is_open) if mark), len(shown))
        most = min(safe, len(shown) - _KEPT_ROWS)
        for count in range(most, max(0, most - _TRIES), -1):
            end = self._end_of_rows(blocks[0].tokens[1], shown[:count])
            if end is not None:
                self._emit(rows, shown[:count], gap_after=False)
                self._pending = self._pending[end:].lstrip()
                return
        self._long_from = len(self._pending) + width

    def _end_of_rows(self, inline: Token, shown: list[Text]) -> int | None:
        """Where in the source exactly these rows of a paragraph end.

        None if the source cannot be cut there: within markup, or before what would be read as
        another kind of block.
        """
        unmarked: list[tuple[int, str]] = []
        plain = inline_text(inline, unmarked=unmarked).plain
        wanted = _visible(row.plain for row in shown)
        visible = [place for place, character in enumerate(plain) if not character.isspace()]
        place, end = visible[len(wanted) - 1] + 1, 0
        for start, piece in unmarked:
            end = self._pending.find(piece, end)
            if end < 0 or start > place:
                return None
            if place < start + len(piece):
                end += place - start
                return end if self._can_be_cut(end, wanted) else None
            end += len(piece)
        return None

    def _can_be_cut(self, end: int, wanted: str) -> bool:
        before, after = parse(self._pending[:end]), parse(self._pending[end:].lstrip())
        inlines = (token for block in before for token in block.tokens if token.type == "inline")
        if _visible(inline_text(token).plain for token in inlines) != wanted:
            return False
        return bool(after) and after[0].kind == "paragraph_open"


def _visible(texts: Iterable[str]) -> str:
    """The characters that are no space."""
    return "".join("".join(text.split()) for text in texts)
