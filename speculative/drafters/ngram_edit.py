"""NgramEditDrafter: go on copying a text through the edits that are made to it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

from outrider.speculative.drafters.ngram_index import NgramIndex
from outrider.speculative.drafters.seen_text import num_matched
from outrider.speculative.drafters.text_drafter import TextDrafter
from outrider.speculative.proposal import DraftRequest

_MOST_EDITED = 8  # tokens that one edit leaves out or puts in; what changes more is another text
# the end of a prompt is read as if it had been an answer, and is one if so many tokens were copied
# for each edit: parts of a program are alike by themselves
_REREAD, _COPIED_PER_EDIT = 256, 16


class _Edit(NamedTuple):
    """The copy has ``new`` where the source has ``old``."""

    old: tuple[int, ...]
    new: tuple[int, ...]


_Expected = tuple[int, int, _Edit | None]
"""A token to come, the place in the source behind it or the edit it is part of, and that."""


class _Reader:
    """Where the text is copied from, token by token, and how the copy differs.

    ``_place`` is the next token of the source, None where nothing is copied; ``_written`` are
    the tokens since the copy left the source there.
    """

    def __init__(self, match: int) -> None:
        self._match = match
        self._far = 2 * match  # so many tokens since an edit, or elsewhere, tell the source
        self._index = NgramIndex(match)
        self._lose()

    def read(self, request: DraftRequest) -> None:
        first = len(self._index)
        is_new_answer = self._index.follow(request).is_new_answer
        if is_new_answer:
            self._lose()
            first = max(len(self._index) - _REREAD, self._match)
        for at, token in enumerate(self._index.ids[first:].tolist(), first):
            self._follow(token, at)
        if is_new_answer and self._num_copied < _COPIED_PER_EDIT * (1 + self._num_edits):
            self._lose()
            self._find(len(self._index))

    def draft(self, max_tokens: int) -> Sequence[int]:
        if self._place is None or len(self._written) > 1:
            return ()
        if self._written:  # one token for another, it may be
            expected = self._ahead(self._place + 1, max_tokens)
        else:
            expected = self._expect(max_tokens)
        return [token for token, _, _ in expected[:max_tokens]]

    def observe(self, num_accepted: int, num_drafted: int) -> None:
        pass

    def _lose(self) -> None:
        """Nothing is copied, and what was edited in it does not matter any more."""
        self._place: int | None = None
        self._written: list[int] = []
        self._expected: list[_Expected] = []
        self._edits: dict[int, _Edit] = {}  # by their first old token
        # behind this one the last token has found the source again; the next one tells
        self._unsure: _Edit | None = None
        self._num_copied = self._num_edits = 0
        self.num_matched = 0

    def _find(self, length: int) -> None:
        """Copy what followed where the last tokens of the first ``length`` stood before.

        A source that is lately left again is given up for one where many more tokens match.
        """
        start = length - self._match
        found = next(self._index.earlier(start), None) if start > 0 else None
        if found is None:
            return
        place = found + self._match
        matched = num_matched(self._index.ids[:length], place)
        if place == self._place:
            self.num_matched = matched
        elif self._place is None or matched >= self._far:
            self._lose()
            self._place, self.num_matched = place, matched

    def _expect(self, count: int) -> list[_Expected]:
        """The rest of an edit that is being made, and ``count`` tokens or a few more."""
        assert self._place is not None
        rest = list(takewhile(lambda one: one[1] == self._place, self._expected))
        begun = [token for token, _, _ in rest]
        self._expected = [*rest, *self._ahead(self._place, count, begun)]
        return self._expected

    def _ahead(self, place: int, count: int, begun: Sequence[int] = ()) -> list[_Expected]:
        """A copy from ``place`` on, with the edits seen so far: about ``count`` tokens.

        Where the text ends it goes on with the copy itself, of which ``begun`` comes before:
        it repeats itself.
        """
        source = self._index.ids[place : place + 2 * count + _MOST_EDITED].tolist()
        if not self._edits and len(source) >= count:
            return [(token, at, None) for at, token in enumerate(source[:count], place + 1)]
        is_end = place + len(source) == len(self._index)
        if is_end:
            source += begun
        ahead: list[_Expected] = []
        at = 0
        while len(ahead) < count and at < len(source):
            edit = self._edits.get(source[at])
            if edit is not None and tuple(source[at : at + len(edit.old)]) == edit.old:
                at += len(edit.old)
                tokens = edit.new
            else:
                edit, tokens = None, (source[at],)
                at += 1
            ahead.extend((token, place + at, edit) for token in tokens)
            if is_end:
                source.extend(tokens)
        return ahead

    def _follow(self, token: int, at: int) -> None:
        """Learn the token at ``at``."""
        if self._place is not None and (self._written or not self._is_expected(token)):
            self._written.append(token)
            self._rejoin(at)
        if self.num_matched < self._far:
            self._find(at + 1)

    def _is_expected(self, token: int) -> bool:
        """Go on in the source if it has ``token`` next; leave it if not."""
        assert self._place is not None
        expected, place, edit = (self._expected or self._expect(_MOST_EDITED)).pop(0)
        if token == expected:
            self._place = place
            self._num_copied += 1
            self.num_matched += 1
            self._confirm()
            return True
        self.num_matched = 0
        self._expected.clear()
        if edit is not None:
            self._edits.pop(edit.old[0], None)
        return False

    def _rejoin(self, at: int) -> None:
        """Go on where the source has the last token, if that is near."""
        assert self._place is not None
        near = self._index.ids[self._place : min(self._place + _MOST_EDITED, at)].tolist()
        if self._written[-1] in near:
            count = near.index(self._written[-1])
            self._unsure = _Edit(tuple(near[:count]), tuple(self._written[:-1]))
            self._place += count + 1
            self._written = []
            self._num_edits += 1
            self.num_matched = 1
        elif len(self._written) > _MOST_EDITED:
            self._lose()

    def _confirm(self) -> None:
        """The source was found again behind an edit: it is made wherever it can be."""
        edit, self._unsure = self._unsure, None
        if edit is not None and edit.old and edit.new:
            self._edits[edit.old[0]] = edit
            self._expect(_MOST_EDITED)


class NgramEditDrafter(TextDrafter[_Reader]):
    """Copies what followed the last ``match`` tokens before, and stays with it through edits.

    Where the text goes another way, the source is found again by the first token that stands in
    both within eight tokens; until then one token is taken to stand for another. What was
    replaced by what is remembered as long as the source is, so a name that is changed
    throughout is missed once: the next draft has the new one. A replacement that was wrong is
    forgotten; what is only put in or left out says less of other places, and is not remembered.
    (llama.cpp has no such drafter; its n-gram drafters wait after each edit until a whole n-gram
    of the new text stood before.)
    """

    name = "ngram-edit"

    def __init__(self, match: int, n_max: int) -> None:
        super().__init__(n_max, lambda: _Reader(match))
