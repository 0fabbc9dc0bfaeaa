"""What kind of text an answer is made of: prose, code, lists, reasoning; counts for each."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from typing import Literal

from outrider.speculative.events import StepEvent
from outrider.speculative.statistics import StepRecord

TextKind = Literal["prose", "code", "list", "reasoning"]
TEXT_KINDS: tuple[TextKind, ...] = ("prose", "code", "list", "reasoning")

_MARKER = r"(?:[-*+]|\d{1,9}[.)])"
_ITEM = re.compile(rf"\s*{_MARKER}\s")
_FENCE = re.compile(rf"\s*(?:{_MARKER}\s+)?(`{{3,}}(?=[^`]*$)|~{{3,}})")
_RULE = re.compile(r"\s*([-*_])(?:\s*\1){2,}\s*$")
_UNDECIDED = re.compile(r"\s*(?:[-*+]|\d{0,9}[.)]?)$")  # may become an item
_LOOKED_AT = 80  # characters of a line: enough to know what it is


class TextReader:
    """Follows streamed Markdown closely enough to say what is being written now.

    Tables, headings and quotes are prose; what is indented below an item belongs to its list.
    """

    def __init__(self) -> None:
        self._line = ""
        self._fence = ""  # what opened the code that is being written
        self._is_in_list = False
        self._ends_block = True  # the line before: blank, or the end of code

    @property
    def kind(self) -> TextKind:
        """The kind of the text at its end; that of the line before while a line is too short."""
        if self._fence or _FENCE.match(self._line):
            return "code"
        return "list" if self._is_list() else "prose"

    @property
    def is_between_blocks(self) -> bool:
        """True where a block can begin: after a blank line or the end of code."""
        return self._ends_block and not self._line and not self._fence

    def feed(self, text: str) -> None:
        """Go on with the text that comes next."""
        for number, part in enumerate(text.split("\n")):
            if number:
                self._end_line()
            if len(self._line) < _LOOKED_AT:
                self._line += part[:_LOOKED_AT]

    def next_block(self, text: str) -> int | None:
        """Where in ``text``, which comes next, the next block begins; None: not in it."""
        ahead, place = copy.copy(self), 0
        while not ahead.is_between_blocks:
            end = text.find("\n", place) + 1
            if not end:
                return None
            ahead.feed(text[place:end])
            place = end
        return place

    def _end_line(self) -> None:
        line, self._line = self._line, ""
        if self._fence:
            self._ends_block = _closes(line, self._fence)
            self._fence = "" if self._ends_block else self._fence
            return
        if line.strip():
            self._is_in_list = self._is_list(line)
        self._ends_block = not line.strip()
        opening = _FENCE.match(line)
        self._fence = opening[1] if opening else ""

    def _is_list(self, line: str | None = None) -> bool:
        """Whether ``line``, the present one, is part of a list."""
        line = self._line if line is None else line
        if _ITEM.match(line) and not _RULE.match(line):
            return True
        if not self._is_in_list or _UNDECIDED.match(line):
            return self._is_in_list
        begins_block = line.startswith("#") or _FENCE.match(line) or _RULE.match(line)
        return line[0].isspace() or not (self._ends_block or begins_block)


def _closes(line: str, fence: str) -> bool:
    text = line.strip()
    return text.startswith(fence) and not text.strip(fence[0])


@dataclass(slots=True)
class TextCounts:
    """Tokens of one kind of text, and what was drafted and accepted where it was written."""

    tokens: int = 0
    drafted: int = 0
    accepted: int = 0

    @property
    def acceptance_rate(self) -> float | None:
        return self.accepted / self.drafted if self.drafted else None

    def add(self, other: TextCounts) -> None:
        self.tokens += other.tokens
        self.drafted += other.drafted
        self.accepted += other.accepted


class TextTally:
    """The counts of one answer by kind of text; a step counts where it began."""

    def __init__(self) -> None:
        self.reader = TextReader()
        self._steps: list[tuple[TextKind, StepRecord]] = []
        self._is_thinking = False

    def observe(self, event: StepEvent) -> None:
        """Count one step and read its text."""
        if event.reasoning or event.text:
            self._is_thinking = bool(event.reasoning)
        if event.token_ids:
            kind = "reasoning" if self._is_thinking else self.reader.kind
            own = len(event.token_ids) - event.num_accepted
            self._steps.append((kind, StepRecord(event.num_drafted, event.num_accepted, own)))
        if event.text:
            self._is_thinking = False
            self.reader.feed(event.text)

    def counts(self, num_emitted: int) -> dict[TextKind, TextCounts]:
        """The counts of ``num_emitted`` tokens; a stop string took back what came after them."""
        surplus = sum(record.emitted for _, record in self._steps) - num_emitted
        counts = {kind: TextCounts() for kind in TEXT_KINDS}
        for kind, record in reversed(self._steps):
            dropped = max(0, min(surplus, record.emitted))
            record.cut(dropped)
            surplus -= dropped
            counts[kind].add(TextCounts(record.emitted, record.drafted, record.accepted))
        return {kind: one for kind, one in counts.items() if one.tokens}
