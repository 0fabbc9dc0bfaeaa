"""Which parts of a GBNF grammar may be read as lexemes without changing its language.

GBNF has no lexer: every way to read a text counts. llguidance has one, and it is greedy: at
each place it goes on with any lexeme that can go on. That loses nothing as long as no lexeme
can end where another one possible at the same place could go on with a byte that may also
follow the first. Lexemes are made as large as they can be (a mask is quick where the text is
inside one), then those that go on too far are split until the condition holds. It always
holds for single characters.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from outrider.speculative.gbnf import (
    EMPTY,
    Alt,
    Chars,
    GbnfError,
    Lexeme,
    Node,
    Ref,
    Repeat,
    Seq,
    children,
    reached,
    references,
)

_TOO_LARGE = "is too large; use fewer rules or fewer alternatives"
Rules = Mapping[str, Node]
_MAX_UNROLLED = 8  # larger repetitions are treated as unlimited when lexemes are compared
_MAX_CHARACTERS = 600  # larger lexemes are split rather than compared
_MAX_LEXEMES = 1500
_MAX_COMPARISONS = 5_000_000  # of two characters: a second or two


def with_lexemes(rules: Rules) -> dict[str, Node]:
    """The rules that are needed, their leaves lexemes. A recursive rule is never inside one.

    Raises:
        GbnfError: the grammar is too large to find out.
    """
    comparison = _Comparison(rules)
    planner = _Planner(rules)
    while True:
        planned = planner.planned()
        too_long = comparison.too_long(planned)
        if not too_long:
            return planned
        planner.split |= too_long


class _Planner:
    """Cuts rules into lexemes, as large as possible, but never a node of ``split``."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._recursive = recursive_rules(rules)
        self.split: set[Node] = set()

    def planned(self) -> dict[str, Node]:
        return reached({name: self._plan(body) for name, body in self._rules.items()})

    def _plan(self, node: Node) -> Node:
        if node == EMPTY:
            return node
        if self._is_regular(node):
            if node not in self.split:
                return Lexeme(node)
            parts = tuple(map(self._plan, children(node)))
        else:
            parts = tuple(map(self._plan, self._grouped(node)))
        if isinstance(node, Seq):
            return Seq(parts)
        if isinstance(node, Alt):
            return Alt(parts)
        return Repeat(parts[0], node.low, node.high) if isinstance(node, Repeat) else node

    def _grouped(self, node: Node) -> list[Node]:
        """The children, neighbours (of an Alt: all) that can be one lexeme taken together."""
        if not isinstance(node, Seq | Alt):
            return list(children(node))
        parts = list(children(node))
        if isinstance(node, Alt):
            parts.sort(key=self._is_regular)
        groups: list[list[Node]] = []
        for part in parts:
            if groups and self._is_regular(part) and self._is_regular(groups[-1][-1]):
                groups[-1].append(part)
            else:
                groups.append([part])
        return [group[0] if len(group) == 1 else type(node)(tuple(group)) for group in groups]

    def _is_regular(self, node: Node) -> bool:
        return not any(ref.name in self._recursive for ref in references(node))


def recursive_rules(rules: Rules) -> set[str]:
    """The rules that need themselves, and those that need such a rule."""
    needs = {name: {ref.name for ref in references(body)} for name, body in rules.items()}
    plain: set[str] = set()
    while more := {name for name in needs if name not in plain and needs[name] <= plain}:
        plain |= more
    return set(rules) - plain


@dataclass(frozen=True, slots=True)
class _Ends:
    """Where the strings of a node begin and end."""

    is_nullable: bool
    first: frozenset[Lexeme]
    last: frozenset[Lexeme]


_NOTHING = _Ends(False, frozenset(), frozenset())


@dataclass(slots=True)
class _Links:
    """Which lexeme can come after which, without regard to how they nest."""

    rules: Rules
    nullable: set[Node]
    follow: dict[Lexeme, set[Lexeme]] = field(default_factory=dict)
    ends: dict[str, _Ends] = field(default_factory=dict)

    def __post_init__(self) -> None:
        before: dict[str, _Ends] | None = None
        while before != self.ends:
            before = dict(self.ends)
            for name, body in self.rules.items():
                self.ends[name] = self._walk(body)

    def _walk(self, node: Node) -> _Ends:
        if isinstance(node, Lexeme):
            self.follow.setdefault(node, set())
            here = frozenset((node,))
            return _Ends(node.node in self.nullable, here, here)
        if isinstance(node, Ref):
            return self.ends.get(node.name, _NOTHING)
        parts = [self._walk(child) for child in children(node)]
        if isinstance(node, Alt):
            return _Ends(
                any(part.is_nullable for part in parts),
                frozenset().union(*(part.first for part in parts)),
                frozenset().union(*(part.last for part in parts)),
            )
        if isinstance(node, Repeat):
            (part,) = parts
            if node.high != 1:
                self._join(part, part)
            return _Ends(part.is_nullable or node.low == 0, part.first, part.last)
        whole = _Ends(True, frozenset(), frozenset())
        for part in parts:
            self._join(whole, part)
            whole = _Ends(
                whole.is_nullable and part.is_nullable,
                whole.first | part.first if whole.is_nullable else whole.first,
                whole.last | part.last if part.is_nullable else part.last,
            )
        return whole

    def _join(self, before: _Ends, after: _Ends) -> None:
        for lexeme in before.last:
            self.follow[lexeme] |= after.first


class _Automaton:
    """One lexeme taken apart: its characters in their places, and which follow which."""

    def __init__(self, node: Node) -> None:
        links = _Links({"": node}, set())
        ends = links.ends[""]
        self.is_nullable = ends.is_nullable
        self.first, self.last, self.follow = ends.first, ends.last, links.follow


class _Comparison:
    """Finds lexemes that read too far."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._atoms = _atoms(rules)
        self._automata: dict[Node, _Automaton] = {}
        self._overlaps: dict[tuple[Node, Node], tuple[bool, int]] = {}
        self._masks: dict[Node, tuple[int, int]] = {}
        self._sizes: dict[str, int] = {}
        self._left = _MAX_COMPARISONS

    def too_long(self, planned: Rules) -> set[Node]:
        """The nodes to split."""
        lexemes = {lexeme for body in planned.values() for lexeme in _lexemes(body)}
        if isinstance(planned["root"], Lexeme):
            return set()
        if len(lexemes) > _MAX_LEXEMES:
            raise GbnfError(_TOO_LARGE)
        sizes = {node: self._size(node) for node in {lexeme.node for lexeme in lexemes}}
        if too_large := {node for node, size in sizes.items() if size > _MAX_CHARACTERS}:
            return too_large
        nullable = {node for node in sizes if self._automaton(node).is_nullable}
        links = _Links(planned, nullable)
        return self._conflicts(links)

    def _conflicts(self, links: _Links) -> set[Node]:
        after = {lexeme: self._leads(follow) for lexeme, follow in links.follow.items()}
        first = links.ends["root"].first
        self._count(len(first) ** 2)
        todo = [(one, two) for one in first for two in first]
        seen = set(todo)
        found: set[Node] = set()
        while todo:
            one, two = todo.pop()
            is_same, goes_on = self._overlap(one.node, two.node)
            if goes_on & after[one]:
                found.add(two.node)
            if is_same:
                self._count(len(links.follow[one]) * len(links.follow[two]))
                pairs = {(x, y) for x in links.follow[one] for y in links.follow[two]} - seen
                seen |= pairs
                todo += pairs
        return found

    def _overlap(self, one: Node, two: Node) -> tuple[bool, int]:
        """Whether both have a string in common; the bytes by which two goes on after one."""
        known = self._overlaps.get((one, two))
        if known is None:
            known = self._overlaps[one, two] = self._find_overlap(one, two)
        return known

    def _find_overlap(self, one: Node, two: Node) -> tuple[bool, int]:
        a, b = self._automaton(one), self._automaton(two)
        is_same, goes_on = False, 0
        todo = self._matching(a.first, b.first)
        seen = set(todo)
        while todo:
            x, y = todo.pop()
            if x in a.last:
                is_same = is_same or y in b.last
                goes_on |= self._lead(b.follow[y])
            pairs = [pair for pair in self._matching(a.follow[x], b.follow[y]) if pair not in seen]
            seen.update(pairs)
            todo += pairs
        return is_same, goes_on

    def _matching(
        self, one: Collection[Lexeme], two: Collection[Lexeme]
    ) -> list[tuple[Lexeme, Lexeme]]:
        self._count(len(one) * len(two))
        mask = self._mask
        return [(x, y) for x in one for y in two if mask(x.node)[0] & mask(y.node)[0]]

    def _count(self, comparisons: int) -> None:
        self._left -= comparisons
        if self._left < 0:
            raise GbnfError(_TOO_LARGE)

    def _automaton(self, node: Node) -> _Automaton:
        automaton = self._automata.get(node)
        if automaton is None:
            automaton = self._automata[node] = _Automaton(self._spelled_out(node))
        return automaton

    def _spelled_out(self, node: Node) -> Node:
        """The node without references; every character a place of its own."""
        if isinstance(node, Chars):
            return Lexeme(node)
        if isinstance(node, Ref):
            return self._spelled_out(self._rules[node.name])
        if isinstance(node, Alt):
            return Alt(tuple(map(self._spelled_out, node.options)))
        if isinstance(node, Repeat):
            copies = _copies(node)
            if copies == 1:
                return Repeat(self._spelled_out(node.node), node.low, node.high)
            part = node.node
            must = [self._spelled_out(part) for _ in range(node.low)]
            may = [Repeat(self._spelled_out(part), 0, 1) for _ in range(copies - node.low)]
            return Seq((*must, *may))
        return Seq(tuple(map(self._spelled_out, children(node))))

    def _size(self, node: Node) -> int:
        """How many characters it has when spelled out."""
        if isinstance(node, Chars):
            return 1
        if isinstance(node, Ref):
            if node.name not in self._sizes:
                self._sizes[node.name] = self._size(self._rules[node.name])
            return self._sizes[node.name]
        copies = _copies(node) if isinstance(node, Repeat) else 1
        return copies * sum(map(self._size, children(node)))

    def _leads(self, lexemes: Iterable[Lexeme]) -> int:
        mask = 0
        for lexeme in lexemes:
            mask |= self._lead(self._automaton(lexeme.node).first)
        return mask

    def _lead(self, characters: Iterable[Lexeme]) -> int:
        mask = 0
        for place in characters:
            mask |= self._mask(place.node)[1]
        return mask

    def _mask(self, node: Node) -> tuple[int, int]:
        """The atoms of a character class, and its first bytes in UTF-8, as bits."""
        known = self._masks.get(node)
        if known is None:
            assert isinstance(node, Chars)
            atoms = sum(1 << bit for bit, start in enumerate(self._atoms) if _holds(node, start))
            leads = 0
            for low, high in node.ranges:
                leads |= (2 << _lead_byte(high)) - (1 << _lead_byte(low))
            known = self._masks[node] = (atoms, leads)
        return known


def _copies(node: Repeat) -> int:
    if node.high is None or node.high > _MAX_UNROLLED:
        return 1
    return node.high


def _lexemes(node: Node) -> list[Lexeme]:
    if isinstance(node, Lexeme):
        return [node]
    return [lexeme for child in children(node) for lexeme in _lexemes(child)]


def _atoms(rules: Rules) -> list[int]:
    """Where the characters must be divided so that every class is a union of parts."""
    edges = {0}
    todo = list(rules.values())
    while todo:
        node = todo.pop()
        todo += children(node)
        if isinstance(node, Chars):
            edges |= {edge for low, high in node.ranges for edge in (low, high + 1)}
    return sorted(edges)


def _holds(node: Chars, code: int) -> bool:
    return any(low <= code <= high for low, high in node.ranges)


def _lead_byte(code: int) -> int:
    return chr(code).encode()[0]
