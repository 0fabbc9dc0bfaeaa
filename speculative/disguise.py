"""Disguise: what messages spell is hidden while a template is rendered, so that it stays text."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

Tokenize = Callable[[str, bool], list[int]]
"""(text, whether control tokens written in it count) -> token ids."""

# rare ideographs: they have no case, and print as they are where a template prints a dict
_LAST_MARK = 0x2A6D6


class SpecialTexts:
    """Texts that a tokenizer reads as one token each, wherever they stand."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = frozenset(filter(None, texts))
        self._longest = max(map(len, self._texts), default=0)
        lengths: dict[str, set[int]] = {}
        for text in self._texts:
            lengths.setdefault(text[0], set()).add(len(text))
        self._lengths = {first: sorted(some) for first, some in lengths.items()}
        self._firsts = re.compile(f"[{re.escape(''.join(lengths))}]") if lengths else None
        splits = [(text, n) for text in self._texts for n in range(1, len(text))]
        self._beginnings = {text[:n] for text, n in splits}
        self._endings = {text[n:] for text, n in splits}

    def starts(self, text: str) -> set[int]:
        """Where one of them begins in ``text``, inside another one too."""
        return {start for start, _ in self._occurrences(text)}

    def spans(self, text: str) -> list[tuple[int, int]]:
        """What llama.cpp's tokenizer takes for them in ``text``: the longest first."""
        found = sorted(self._occurrences(text), key=lambda span: (span[0] - span[1], span[0]))
        taken: list[tuple[int, int]] = []
        free = bytearray(b"\1" * len(text)) if found else bytearray()
        for start, end in found:
            if all(free[start:end]):
                free[start:end] = bytes(end - start)
                taken.append((start, end))
        return sorted(taken)

    def edges(self, text: str) -> set[int]:
        """Where ``text`` could be completed to one of them by what comes to stand beside it.

        A template may trim white space from it first.
        """
        places = set()
        trimmed = (len(text) - len(text.lstrip()), len(text.rstrip()))
        for begin, end in ((0, len(text)), trimmed):
            inner = text[begin:end]
            for count in range(1, min(len(inner) + 1, self._longest)):
                if inner[-count:] in self._beginnings:
                    places.add(end - count)
                if inner[:count] in self._endings:
                    places.add(begin)
            if 0 < len(inner) < self._longest and any(inner in one for one in self._texts):
                places.add(begin)
        return places

    def _occurrences(self, text: str) -> Iterator[tuple[int, int]]:
        for match in self._firsts.finditer(text) if self._firsts else ():
            start = match.start()
            for length in self._lengths[match.group()]:
                if text[start : start + length] in self._texts:
                    yield start, start + length


@dataclass(frozen=True, slots=True)
class Spellings:
    """The special texts of a model; the tokenizer never leaves a user-defined one as text."""

    control: SpecialTexts
    user_defined: SpecialTexts
    either: SpecialTexts

    @classmethod
    def of(cls, control: Collection[str], user_defined: Collection[str]) -> Spellings:
        either = SpecialTexts([*control, *user_defined])
        return cls(SpecialTexts(control), SpecialTexts(user_defined), either)


class Disguise:
    """Marks in a conversation, each for one character, that no text of it contains.

    The first character of every spelling of a special text is replaced by its mark. So the
    lengths stay, and a template may trim, cut, split or quote a message: what is left of a
    spelling shows its mark, or is no whole one.
    """

    def __init__(self, spellings: Spellings, used: Collection[str]) -> None:
        """``used`` are all characters of the conversation and of its template."""
        self._spellings = spellings
        self._marks: dict[str, str] = {}
        codes = range(_LAST_MARK, 0, -1)
        self._free = (mark for code in codes if (mark := chr(code)) not in used)

    def hide(self, text: str, special: SpecialTexts, *, edges: bool) -> str:
        """``text`` with marks; ``edges`` also where something beside it could complete it."""
        places = special.starts(text)
        if edges:
            places |= special.edges(text)
        characters = list(text)
        for place in places:
            characters[place] = self._mark(text[place])
        return "".join(characters)

    def encode(self, text: str, tokenize: Tokenize) -> list[int]:
        """Token ids of a rendered ``text``: special texts without a mark become tokens."""
        plain = text.translate({ord(mark): own for own, mark in self._marks.items()})
        special = self._spellings.either
        visible = special.spans(text)
        if special.spans(plain) == visible:
            return tokenize(plain, True)
        token_ids: list[int] = []
        begin = cursor = 0
        for start, end in [*visible, (len(text), len(text))]:
            # a tokenizer begins anew after a special token: so the parts are those of the whole
            if text[cursor:start] != plain[cursor:start]:
                token_ids += tokenize(plain[begin:cursor], True)
                token_ids += self._as_text(plain[cursor:start], tokenize)
                begin = start
            cursor = end
        return token_ids + tokenize(plain[begin:], True)

    def _as_text(self, text: str, tokenize: Tokenize) -> list[int]:
        cuts = sorted(start + 1 for start in self._spellings.user_defined.starts(text))
        first, *others = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        token_ids = tokenize(first, False)
        for part in others:
            token_ids += _continued(part, tokenize)
        return token_ids

    def _mark(self, character: str) -> str:
        if character not in self._marks:
            self._marks[character] = next(self._free)
        return self._marks[character]


def _continued(text: str, tokenize: Tokenize) -> list[int]:
    """Token ids of ``text`` in the middle of a line, where no space is put in front of it."""
    line, whole = tokenize("\n", False), tokenize(f"\n{text}", False)
    return whole[len(line) :] if whole[: len(line)] == line else tokenize(text, False)
