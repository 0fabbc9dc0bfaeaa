"""NgramSimpleDrafter: repeat what followed the latest occurrence of the last n tokens."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.speculative.drafters.ngram_index import NgramIndex
from outrider.speculative.drafters.text_drafter import TextDrafter
from outrider.speculative.proposal import DraftRequest


class _Reader:
    def __init__(self, match: int, size: int) -> None:
        self._match = match
        self._size = size
        self._index = NgramIndex(match)
        self.num_matched: int | None = None

    def read(self, request: DraftRequest) -> None:
        self._index.follow(request)

    def draft(self, max_tokens: int) -> Sequence[int]:
        # the pending token is the end of the pattern, no part of the text that is searched
        length = len(self._index) - 1
        if length <= self._match + self._size + 1:
            return ()
        begin = self._find(length) + self._match
        end = min(begin + self._size, length)
        # llama.cpp never matches at position 0
        if begin == self._match or end - begin < self._match:
            return ()
        self.num_matched = self._index.num_matched(begin)
        found: list[int] = self._index.ids[begin : min(end, begin + max_tokens)].tolist()
        return found

    def observe(self, num_accepted: int, num_drafted: int) -> None:
        pass

    def _find(self, length: int) -> int:
        """Start of the latest earlier occurrence of the last tokens; 0 if there is none."""
        last = length - self._match - 1  # a token of the text must follow
        starts = self._index.earlier(len(self._index) - self._match)
        return next((start for start in starts if start <= last), 0)


class NgramSimpleDrafter(TextDrafter[_Reader]):
    """llama.cpp's ``ngram-simple`` (common/ngram-map.cpp), with an index instead of a search.

    The last ``match`` tokens are looked up; up to ``size`` tokens after their latest earlier
    occurrence are proposed, none if fewer than ``match`` follow it there.
    """

    name = "ngram-simple"

    def __init__(self, match: int, size: int, n_max: int | None = None) -> None:
        super().__init__(min(size, n_max or size), lambda: _Reader(match, size))
