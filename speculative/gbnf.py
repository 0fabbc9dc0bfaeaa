"""GBNF, llama.cpp's grammar notation: text to rules.

The notation is that of llama.cpp's grammars/README.md. Characters are code points; a rule is
a tree of :class:`Chars`, :class:`Ref`, :class:`Seq`, :class:`Alt` and :class:`Repeat`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

MAX_REPETITIONS = 2000  # as llama.cpp
_MAX_DEPTH = 100
_LAST_CHARACTER = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)

_SPACE = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_SPACE_AND_LINES = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_REPETITION = re.compile(r"\{\s*([0-9]+)\s*(?:(,)\s*([0-9]+)?\s*)?\}")
_HEX_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))")
_PLAIN_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", **{char: char for char in '\\"[]-'}}

Range = tuple[int, int]


class GbnfError(ValueError):
    """The grammar is wrong; the message begins with where."""


@dataclass(frozen=True, slots=True)
class Chars:
    """One character out of sorted ranges that do not touch."""

    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Ref:
    name: str


@dataclass(frozen=True, slots=True)
class Seq:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alt:
    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """``low`` to ``high`` times the node; None: without limit."""

    node: Node
    low: int
    high: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Lexeme:
    """A place in a grammar where a string of ``node`` is read as a whole (lexemes.py)."""

    node: Node


Node = Chars | Ref | Seq | Alt | Repeat | Lexeme
EMPTY = Seq(())


def parse_gbnf(text: str) -> dict[str, Node]:
    """The rules by name; all names are defined and ``root`` is among them.

    Raises:
        GbnfError: with line and column.
    """
    return _Parser(text).rules()


def without(ranges: tuple[Range, ...]) -> tuple[Range, ...]:
    """Every character that is not in ``ranges``."""
    gaps, start = [], 0
    for low, high in _merged([*ranges, _SURROGATES]):
        if start < low:
            gaps.append((start, low - 1))
        start = high + 1
    return (*gaps, (start, _LAST_CHARACTER)) if start <= _LAST_CHARACTER else tuple(gaps)


def _merged(ranges: list[Range]) -> tuple[Range, ...]:
    merged: list[Range] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


class _Parser:
    """Recursive descent over ``text``; ``_at`` is the position."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._references: dict[str, int] = {}

    def rules(self) -> dict[str, Node]:
        rules: dict[str, Node] = {}
        defined_at: dict[str, int] = {}
        self._skip(_SPACE_AND_LINES)
        while self._at < len(self._text):
            start = self._at
            if self._peek() == "|":
                self._fail("the line before must end with '|', or all be inside (...)")
            name = self._name()
            if name in rules:
                line, _ = self._place(defined_at[name])
                self._fail(f"rule {name!r} is there a second time (first in line {line})", start)
            defined_at[name] = start
            rules[name] = self._rule_body()
        for name, position in self._references.items():
            if name not in rules:
                self._fail(f"there is no rule {name!r}", position)
        if "root" not in rules:
            raise GbnfError("there is no rule 'root', with which a grammar begins")
        return rules

    def _rule_body(self) -> Node:
        self._skip(_SPACE)
        self._expect("::=")
        self._skip(_SPACE_AND_LINES)
        body = self._alternates(nested=False)
        if self._at < len(self._text) and self._peek() not in "\r\n":
            self._fail("expected a newline, the end of the rule")
        self._skip(_SPACE_AND_LINES)
        return body

    def _alternates(self, *, nested: bool) -> Node:
        options = [self._sequence(nested=nested)]
        while self._peek() == "|":
            self._at += 1
            self._skip(_SPACE_AND_LINES)
            options.append(self._sequence(nested=nested))
        return options[0] if len(options) == 1 else Alt(tuple(options))

    def _sequence(self, *, nested: bool) -> Node:
        space = _SPACE_AND_LINES if nested else _SPACE
        parts: list[Node] = []
        while (char := self._peek()) and char not in "|)\r\n":
            if char in "*+?{":
                if not parts:
                    self._fail(f"nothing before {char!r} that it could repeat")
                parts[-1] = self._repeated(parts[-1])
            else:
                parts.append(self._item())
            self._skip(space)
        return parts[0] if len(parts) == 1 else Seq(tuple(parts))

    def _item(self) -> Node:
        char, start = self._peek(), self._at
        if char == '"':
            return self._literal()
        if char == "[":
            return self._character_class()
        if char == "(":
            return self._group()
        if char == ".":
            self._at += 1
            return Chars(without(()))
        if char in "<!":
            self._fail("tokens (<...>) cannot be used here; write the text they print in quotes")
        name = self._name()
        self._references.setdefault(name, start)
        return Ref(name)

    def _group(self) -> Node:
        start = self._at
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self._fail(f"more than {_MAX_DEPTH} groups inside each other")
        self._at += 1
        self._skip(_SPACE_AND_LINES)
        body = self._alternates(nested=True)
        if self._peek() != ")":
            self._fail("this '(' is never closed" if not self._peek() else "expected ')'", start)
        self._at += 1
        self._depth -= 1
        return body

    def _repeated(self, node: Node) -> Node:
        char = self._peek()
        if char != "{":
            self._at += 1
            return Repeat(node, int(char == "+"), 1 if char == "?" else None)
        match = _REPETITION.match(self._text, self._at)
        if match is None:
            self._fail("expected {m}, {m,} or {m,n}")
        low = int(match[1][:9])
        high = int(match[3][:9]) if match[3] else None if match[2] else low
        if max(low, high or 0) > MAX_REPETITIONS:
            self._fail(
                f"{match[0]}: at most {MAX_REPETITIONS} repetitions, or {{m,}} for any number"
            )
        if high is not None and high < low:
            self._fail(f"{match[0]}: the second number is smaller than the first")
        self._at = match.end()
        return EMPTY if high == 0 else Repeat(node, low, high)

    def _literal(self) -> Node:
        start = self._at
        self._at += 1
        parts: list[Node] = []
        while self._peek() != '"':
            code = self._character(start, "string")
            parts.append(Chars(((code, code),)))
        self._at += 1
        return parts[0] if len(parts) == 1 else Seq(tuple(parts))

    def _character_class(self) -> Node:
        start = self._at
        self._at += 1
        negated = self._peek() == "^"
        self._at += negated
        ranges: list[Range] = []
        while self._peek() != "]":
            range_start = self._at
            low = high = self._character(start, "character class")
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] != "]":
                self._at += 1
                high = self._character(start, "character class")
            if high < low:
                self._fail("the range runs backwards", range_start)
            ranges.append((low, high))
        if not ranges:
            self._fail("the character class is empty", start)
        self._at += 1
        merged = _merged(ranges)
        # twice without: surrogates are no characters
        return Chars(without(merged) if negated else without(without(merged)))

    def _character(self, start: int, inside: str) -> int:
        """The code point here, as it is or escaped."""
        char = self._peek()
        if not char:
            self._fail(f"this {inside} is never closed", start)
        if char != "\\":
            self._at += 1
            return ord(char)
        match = _HEX_ESCAPE.match(self._text, self._at)
        if match is not None:
            code = int(match[1] or match[2] or match[3], 16)
            if code > _LAST_CHARACTER or _SURROGATES[0] <= code <= _SURROGATES[1]:
                self._fail(f"{match[0]} is no character")
            self._at = match.end()
            return code
        escaped = self._text[self._at + 1 : self._at + 2]
        if escaped not in _PLAIN_ESCAPES:
            self._fail(
                f"unknown escape \\{escaped};"
                ' allowed are \\n \\r \\t \\\\ \\" \\[ \\] \\- \\xNN \\uNNNN \\UNNNNNNNN'
            )
        self._at += 2
        return ord(_PLAIN_ESCAPES[escaped])

    def _name(self) -> str:
        match = _NAME.match(self._text, self._at)
        if match is None:
            self._fail(f"unexpected {self._peek()!r}")
        self._at = match.end()
        return match[0]

    def _expect(self, word: str) -> None:
        if not self._text.startswith(word, self._at):
            self._fail(f"expected {word!r}")
        self._at += len(word)

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self._text, self._at)
        assert match is not None
        self._at = match.end()

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _place(self, position: int) -> tuple[int, int]:
        before = self._text[:position]
        return before.count("\n") + 1, position - before.rfind("\n")

    def _fail(self, problem: str, position: int | None = None) -> NoReturn:
        line, column = self._place(self._at if position is None else position)
        raise GbnfError(f"line {line}, column {column}: {problem}")


def reached(rules: Mapping[str, Node], start: str = "root") -> dict[str, Node]:
    """The rules that ``start`` needs, in the order they are met."""
    found: dict[str, Node] = {}
    todo = [start]
    while todo:
        name = todo.pop()
        if name not in found:
            found[name] = rules[name]
            todo += reversed([ref.name for ref in references(rules[name])])
    return found


def references(node: Node) -> list[Ref]:
    """The rules named in ``node``."""
    if isinstance(node, Ref):
        return [node]
    return [ref for child in children(node) for ref in references(child)]


def children(node: Node) -> tuple[Node, ...]:
    """The nodes directly inside ``node``."""
    if isinstance(node, Seq):
        return node.parts
    if isinstance(node, Alt):
        return node.options
    return (node.node,) if isinstance(node, Repeat) else ()
