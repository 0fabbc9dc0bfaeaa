"""Large pastes in the input line: one character each there, shown as a chip.

The input line edits characters, so a chip that is one character is passed over, erased, killed and
undone as a whole for free. The characters are taken from the last private-use plane; those that
the user enters become chips of their own, so that none is mistaken for another.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate

from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput

_MOST_LINES, _MOST_CHARACTERS = 8, 800
_FIRST, _COUNT = 0x100000, 0x10000
_CHIP = re.compile("([\U00100000-\U0010ffff])")

Span = tuple[int, int]


def is_large(text: str) -> bool:
    """Whether a paste of ``text`` is shown as a chip."""
    return len(text) > _MOST_CHARACTERS or text.count("\n") + 1 > _MOST_LINES


def paste_label(text: str) -> str:
    """What stands on the screen for a large paste."""
    lines = text.count("\n") + (not text.endswith("\n"))
    size = len(text.encode("utf-8", "replace"))
    amount = f"{size / 1e3:.1f} kB" if size < 1e6 else f"{size / 1e6:.1f} MB"
    if size < 1e3:
        amount = f"{size} B"
    return f"[pasted {lines:,} {'line' if lines == 1 else 'lines'}, {amount}]"


class PasteChips:
    """The chips of a chat, and the text that each one stands for."""

    def __init__(self) -> None:
        self._wholes: dict[str, str] = {}
        self._chips: dict[str, str] = {}
        self._labels: dict[str, str] = {}

    def fold(self, text: str) -> str:
        """A paste as the input line holds it: a chip, or its text if that is short."""
        return self._chip(text, paste_label(text)) if is_large(text) else self.escape(text)

    def escape(self, text: str) -> str:
        """Entered text as the input line holds it: nothing in it is taken for a paste."""
        return _CHIP.sub(lambda found: self._chip(found[0], found[0]), text)

    def unfold(self, line: str) -> str:
        """The whole text of an input line."""
        return _CHIP.sub(lambda found: self._wholes.get(found[0], found[0]), line)

    def refold(self, text: str) -> str:
        """Whole text as the input line holds it, with the pastes that are in it as chips again."""
        for chip, whole in self._wholes.items():
            before, found, after = text.partition(whole) if len(whole) > 1 else (text, "", "")
            if found:
                return self.refold(before) + chip + self.refold(after)
        return self.escape(text)

    def show(self, line: str) -> str:
        """An input line as the screen has it."""
        return _CHIP.sub(lambda found: self.label(found[0]), line)

    def label(self, chip: str) -> str:
        """What is shown in place of ``chip``."""
        return self._labels.get(chip, chip)

    def spans(self, line: str) -> list[Span]:
        """Where the large pastes of an input line begin and end in its whole text."""
        spans, end = [], 0
        for piece in _CHIP.split(line):
            start, end = end, end + len(self._wholes.get(piece, piece))
            if end - start > 1 and piece in self._wholes:
                spans.append((start, end))
        return spans

    def fold_spans(self, text: str, spans: Iterable[Span]) -> str:
        """The input line whose whole text is ``text``, with large pastes at ``spans``."""
        pieces, done = [], 0
        for start, end in spans:
            pieces += [self.escape(text[done:start]), self.fold(text[start:end])]
            done = end
        return "".join(pieces) + self.escape(text[done:])

    def holds(self, line: str, wanted: str) -> bool:
        """Whether ``wanted`` is in the whole text of an input line."""
        may_have_chips = not line.isascii()  # known without looking: a history has many lines
        return wanted in line or (may_have_chips and wanted in self.unfold(line))

    def find(self, line: str, wanted: str) -> list[int]:
        """Where in an input line ``wanted`` begins: at a character, or inside a paste."""
        if not wanted or not self.holds(line, wanted):
            return []
        starts = [0, *accumulate(len(self._wholes.get(char, char)) for char in line)]
        found = re.finditer(re.escape(wanted), self.unfold(line))
        return [*dict.fromkeys(bisect_right(starts, match.start()) - 1 for match in found)]

    def _chip(self, whole: str, label: str) -> str:
        chip = self._chips.get(whole)
        if chip is None:
            if len(self._chips) == _COUNT:
                return whole
            chip = self._chips[whole] = chr(_FIRST + len(self._chips))
            self._wholes[chip], self._labels[chip] = whole, label
        return chip


class ShowChips(Processor):
    """Draws the chips of an input line as their labels."""

    def __init__(self, chips: PasteChips) -> None:
        self._chips = chips

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        fragments = transformation_input.fragments
        text = "".join(fragment[1] for fragment in fragments)
        if not _CHIP.search(text):
            return Transformation(fragments)
        labels = [self._chips.label(c) if _CHIP.match(c) else c for c in text]
        shown = [
            (f"{style} class:chip" if _CHIP.match(piece) else style, self._chips.label(piece))
            for style, text, *_ in fragments
            for piece in _CHIP.split(text)
            if piece
        ]
        columns = [0]
        for label in labels:
            columns.append(columns[-1] + len(label))
        return Transformation(
            list(shown),
            source_to_display=lambda index: columns[min(index, len(labels))],
            display_to_source=lambda column: bisect_right(columns, column) - 1,
        )
