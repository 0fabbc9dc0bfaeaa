"""Markdown as terminal rows: no boxes and no padding, so that what is copied is what was written.

Line breaks stay where the source has them; HTML stays text.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console
from rich.text import Text

from outrider.cli.glyphs import Glyphs

if TYPE_CHECKING:
    from rich.syntax import Syntax

_STYLES = {"strong_open": "bold", "em_open": "italic", "s_open": "strike"}
_CELL_GAP = 3
_TAB_SIZE = 4


@dataclass(frozen=True, slots=True)
class Block:
    """A top-level block: its tokens and the source lines it covers."""

    tokens: list[Token]
    start: int
    end: int

    @property
    def kind(self) -> str:
        return self.tokens[0].type

    def children(self) -> list[Block]:
        """The items of a list, each as a list of one item."""
        blocks = []
        for item in _groups(self.tokens[1:-1]):
            start, end = item[0].map or [0, 0]
            blocks.append(Block([self.tokens[0], *item, self.tokens[-1]], start, end))
        return blocks


@functools.cache
def _parser() -> MarkdownIt:
    # a reference definition would vanish from the text
    parser = MarkdownIt("commonmark", {"html": False}).disable("reference")
    return parser.enable(["table", "strikethrough"])


@functools.lru_cache(maxsize=4)  # one frame asks for the same text several times
def parse(source: str) -> Sequence[Block]:
    """The top-level blocks of ``source``, in order; not to be changed."""
    blocks: list[Block] = []
    for tokens in _groups(_parser().parse(source)):
        start, end = tokens[0].map or [0, 0]
        blocks.append(Block(tokens, start, end))
    return blocks


def _groups(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    """Each token with all that it encloses."""
    group: list[Token] = []
    depth = 0
    for token in tokens:
        group.append(token)
        depth += token.nesting
        if depth == 0:
            yield group
            group = []


class MarkdownRows:
    """Renders blocks as rows no wider than ``width``; code lines keep the width they have."""

    def __init__(self, console: Console, glyphs: Glyphs) -> None:
        self._console = console
        self._glyphs = glyphs

    def rows(self, block: Block, source: Sequence[str], width: int) -> list[Text]:
        """The rows of one top-level block; ``source`` are the lines it was parsed from."""
        if block.kind == "table_open":
            table = self._table(block.tokens, width)
            return table or [
                Text(line.expandtabs(_TAB_SIZE)) for line in source[block.start : block.end]
            ]
        return self._block(block.tokens, width)

    def _block(self, tokens: list[Token], width: int) -> list[Text]:
        kind, inner = tokens[0].type, tokens[1:-1]
        if kind == "paragraph_open":
            return self._wrap(inline_text(inner[0]), width)
        if kind == "heading_open":
            return self._wrap(inline_text(inner[0], "bold"), width)
        if kind in ("bullet_list_open", "ordered_list_open"):
            return self._list(inner, width)
        if kind == "blockquote_open":
            return [Text("> ").append_text(row) for row in self._blocks(inner, width - 2)]
        if kind in ("fence", "code_block"):
            lines = tokens[0].content.rstrip("\n").split("\n")
            return highlight(lines, tokens[0].info)
        if kind == "hr":
            return [Text(self._glyphs.rule * min(width, 40), "dim")]
        if kind == "table_open":
            return self._table(tokens, width) or [Text(cell) for cell in _cell_texts(tokens)]
        return [Text(token.content) for token in tokens if token.content]

    def _blocks(self, tokens: list[Token], width: int, *, is_tight: bool = False) -> list[Text]:
        rows: list[Text] = []
        for group in _groups(tokens):
            if rows and not is_tight:
                rows.append(Text())
            rows += self._block(group, width)
        return rows

    def _list(self, tokens: list[Token], width: int) -> list[Text]:
        rows: list[Text] = []
        for item in _groups(tokens):
            is_tight = not any(t.type == "paragraph_open" and not t.hidden for t in item)
            if rows and not is_tight:
                rows.append(Text())
            marker = f"{item[0].info}{item[0].markup} "
            body = self._blocks(item[1:-1], width - len(marker), is_tight=is_tight) or [Text()]
            rows.append(Text(marker).append_text(body[0]))
            rows += [Text(" " * len(marker)).append_text(row) if row else row for row in body[1:]]
        return rows

    def _table(self, tokens: list[Token], width: int) -> list[Text]:
        """A table with one rule below its head; empty if it is wider than ``width``."""
        table = [
            list(_groups(row[1:-1]))
            for part in _groups(tokens[1:-1])
            for row in _groups(part[1:-1])
        ]
        cells = [[inline_text(cell[1]) for cell in row] for row in table]
        widths = [max(text.cell_len for text in column) for column in zip(*cells, strict=True)]
        if sum(widths) + _CELL_GAP * (len(widths) - 1) + 2 > width:
            return []
        aligned = [str((cell[0].attrs or {}).get("style", "")) for cell in table[0]]
        rows = [self._table_row(row, widths, aligned) for row in cells]
        rows[0].stylize("bold")
        rule = self._glyphs.rule * (sum(widths) + _CELL_GAP * (len(widths) - 1) + 2)
        rows.insert(1, Text(rule, "dim"))
        return rows

    def _table_row(self, row: list[Text], widths: list[int], aligned: list[str]) -> Text:
        line = Text(" ")
        for index, (cell, width, style) in enumerate(zip(row, widths, aligned, strict=True)):
            space = width - cell.cell_len
            left = space if "right" in style else space // 2 if "center" in style else 0
            line.append(" " * ((_CELL_GAP if index else 0) + left))
            line.append_text(cell).append(" " * (space - left))
        line.rstrip()
        return line

    def _wrap(self, text: Text, width: int) -> list[Text]:
        rows = list(text.wrap(self._console, max(1, width), tab_size=_TAB_SIZE))
        for row in rows:
            row.rstrip()
        return rows


def inline_text(
    token: Token, style: str = "", unmarked: list[tuple[int, str]] | None = None
) -> Text:
    """The text of an inline token; addresses of links are printed after them.

    ``unmarked`` gets the pieces outside any markup, with their places in the text.
    """
    text = Text(style=style)
    styles: list[str] = []
    links: list[tuple[int, str]] = []
    for child in token.children or []:
        content = "\n" if child.type in ("softbreak", "hardbreak") else child.content
        if unmarked is not None and not styles and not links and child.type != "code_inline":
            unmarked.append((len(text), content))
        if child.type == "code_inline":
            text.append(content, "cyan")
        elif child.type == "image":
            text.append(f"![{content}]({child.attrs.get('src', '')})")
        elif child.type == "link_open":
            links.append((len(text), str(child.attrs.get("href", ""))))
        elif child.type == "link_close":
            start, address = links.pop()
            if text.plain[start:] != address:
                text.append(f" ({address})")
        elif child.nesting == 1:
            styles.append(_STYLES.get(child.type, ""))
        elif child.nesting == -1:
            styles.pop()
        else:
            text.append(content, " ".join(filter(None, styles)))
    return text


def highlight(lines: Sequence[str], language: str) -> list[Text]:
    """Code, one row a line, in the terminal's own palette and without background."""
    plain = [Text(line.expandtabs(_TAB_SIZE)) for line in lines]
    syntax = _syntax(language.split()[0]) if language.strip() else None
    if syntax is None:
        return plain
    rows = list(syntax.highlight("\n".join(lines)).split("\n", allow_blank=True))[: len(lines)]
    # a lexer may drop newlines at the ends: the source decides
    if [row.plain for row in rows] != [row.plain for row in plain]:
        return plain
    for row in rows:
        row.style = ""
    return rows


@functools.cache
def _syntax(language: str) -> Syntax | None:
    """The highlighter of a language, None if there is none; finding one takes long."""
    from rich.syntax import Syntax

    lexer = Syntax("", language, tab_size=_TAB_SIZE).lexer
    if lexer is None:
        return None
    return Syntax("", lexer, theme="ansi_dark", background_color="default", tab_size=_TAB_SIZE)


def _cell_texts(tokens: list[Token]) -> list[str]:
    return [token.content for token in tokens if token.type == "inline"]
