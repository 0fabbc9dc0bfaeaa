"""GBNF written in llguidance's own notation, a dialect of Lark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count

from outrider.speculative.gbnf import (
    Alt,
    Chars,
    GbnfError,
    Lexeme,
    Node,
    Ref,
    Repeat,
    Seq,
    children,
    parse_gbnf,
    reached,
    references,
)
from outrider.speculative.lexemes import with_lexemes


def gbnf_to_lark(text: str) -> str:
    """A Lark grammar with exactly the language of the GBNF grammar ``text``.

    Raises:
        GbnfError: the grammar is wrong, and where.
    """
    rules = reached(parse_gbnf(text))
    _check_ends(rules)
    return _Writer(rules).write(with_lexemes(rules))


def _check_ends(rules: Mapping[str, Node]) -> None:
    """Refuse rules that no text can satisfy because they always need themselves again."""
    ending: set[str] = set()
    while more := {name for name in rules if name not in ending and _can_end(rules[name], ending)}:
        ending |= more
    for name in rules:
        if name not in ending:
            raise GbnfError(f"rule {name!r} never ends: each of its alternatives needs it again")


def _can_end(node: Node, ending: set[str]) -> bool:
    if isinstance(node, Ref):
        return node.name in ending
    if isinstance(node, Repeat) and node.low == 0:
        return True
    combine = any if isinstance(node, Alt) else all
    return combine(_can_end(child, ending) for child in children(node))


class _Writer:
    """Rules become rules, lexemes and the rules inside them become terminals."""

    def __init__(self, rules: Mapping[str, Node]) -> None:
        self._rules = rules
        self._numbers: Iterator[int] = count()
        self._terminals: dict[Node, str] = {}
        self._names: dict[str, str] = {"root": "start"}
        self._lines: list[str] = []

    def write(self, planned: Mapping[str, Node]) -> str:
        self._names |= {name: f"r{i}" for i, name in enumerate(planned) if name != "root"}
        lines = [f"{self._names[name]}: {self._rule(body)}" for name, body in planned.items()]
        return "\n".join([*lines, *self._lines]) + "\n"

    def _rule(self, node: Node) -> str:
        if isinstance(node, Lexeme):
            return self._terminal(node.node)
        if isinstance(node, Ref):
            return self._names[node.name]
        return _combined(node, [self._rule(child) for child in children(node)])

    def _terminal(self, node: Node) -> str:
        """The name of the terminal for ``node``; its line is written once."""
        name = self._terminals.get(node)
        if name is None:
            name = self._terminals[node] = f"T{next(self._numbers)}"
            self._lines.append(f"{name}: {self._expression(node)}")
        return name

    def _expression(self, node: Node) -> str:
        if isinstance(node, Ref):
            return self._terminal(self._rules[node.name])
        if not references(node):
            regex = _regex(node)
            return f"/{regex}/" if regex else '""'
        return _combined(node, [self._expression(child) for child in children(node)])


def _combined(node: Node, parts: list[str]) -> str:
    if isinstance(node, Repeat):
        return f"({parts[0]}){_times(node)}"
    if isinstance(node, Alt):
        return "(" + " | ".join(part or '""' for part in parts) + ")"
    return " ".join(parts) or '""'


def _times(node: Repeat) -> str:
    short = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((node.low, node.high))
    high = "" if node.high is None else node.high
    return short or f"{{{node.low},{high}}}"


def _regex(node: Node) -> str:
    if isinstance(node, Chars):
        return _class(node)
    if isinstance(node, Repeat):
        return f"(?:{_regex(node.node)}){_times(node)}"
    if isinstance(node, Alt):
        return "(?:" + "|".join(map(_regex, node.options)) + ")"
    assert isinstance(node, Seq)
    return "".join(map(_regex, node.parts))


def _class(node: Chars) -> str:
    if len(node.ranges) == 1 and node.ranges[0][0] == node.ranges[0][1]:
        return _escaped(node.ranges[0][0])
    spans = [
        _escaped(low) if low == high else f"{_escaped(low)}-{_escaped(high)}"
        for low, high in node.ranges
    ]
    return f"[{''.join(spans)}]"


def _escaped(code: int) -> str:
    char = chr(code)
    return char if char.isascii() and char.isalnum() else f"\\x{{{code:x}}}"
