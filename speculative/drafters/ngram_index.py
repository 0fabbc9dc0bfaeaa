"""NgramIndex: where the n-grams of one text begin."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.drafters.seen_text import Change, SeenText, num_matched
from outrider.speculative.proposal import DraftRequest

I32 = NDArray[np.int32]

_FACTOR = 2654435761  # llama.cpp's: the table of ngram-map depends on it
_MASK = 2**32 - 1


class NgramIndex:
    """Follows a text token by token, forwards and backwards.

    An n-gram is found by its hash; each one points to the one before it with the same hash, so
    that taking tokens back undoes what adding them did. ``hashes[i]`` is the hash of the n-gram
    that begins at token i.
    """

    def __init__(self, n: int) -> None:
        self.n = n
        self.hashes = array("I")
        self._text = SeenText()
        self._previous = array("i")
        self._latest: dict[int, int] = {}
        self._leaving_factor = pow(_FACTOR, n, _MASK + 1)

    def __len__(self) -> int:
        return len(self._text)

    @property
    def ids(self) -> I32:
        """The tokens of the text; a view, not to be kept."""
        return self._text.ids

    def follow(self, request: DraftRequest) -> Change:
        """Become the index of the text of ``request``."""
        change = self._text.follow(request)
        self._take_back(change.num_kept)
        self._add_new()
        return change

    def is_equal(self, start: int, other: int) -> bool:
        """True if the same n-gram begins at both places."""
        return self.ngram(start) == self.ngram(other)

    def ngram(self, start: int) -> bytes:
        """The n-gram that begins at ``start``, as something to compare and look up."""
        return self.ids[start : start + self.n].tobytes()

    def earlier(self, start: int) -> Iterator[int]:
        """Where the n-gram that begins at ``start`` began before, latest first."""
        ngram = self.ngram(start)
        start = self._previous[start]
        while start >= 0:
            if self.ngram(start) == ngram:
                yield start
            start = self._previous[start]

    def num_matched(self, begin: int) -> int:
        """How many tokens before ``begin`` are the last ones of the text."""
        return num_matched(self.ids, begin)

    def _take_back(self, length: int) -> None:
        while len(self.hashes) > max(length - self.n + 1, 0):
            previous = self._previous.pop()
            if previous < 0:
                del self._latest[self.hashes.pop()]
            else:
                self._latest[self.hashes.pop()] = previous

    def _add_new(self) -> None:
        """Roll the hash over the n-grams that are not in yet."""
        ids, n, latest = self.ids, self.n, self._latest
        if len(ids) < n:
            return
        if not self.hashes:
            self._previous.append(-1)
            self.hashes.append(ngram_hash(ids[:n].tolist()))
            latest[self.hashes[0]] = 0
        start = len(self.hashes)
        value = self.hashes[-1]
        leaving = ids[start - 1 : len(ids) - n].tolist()
        entering = ids[start + n - 1 :].tolist()
        for token_out, token_in in zip(leaving, entering, strict=True):
            value = (value * _FACTOR + token_in - token_out * self._leaving_factor) & _MASK
            self.hashes.append(value)
            self._previous.append(latest.get(value, -1))
            latest[value] = start
            start += 1


def ngram_hash(tokens: list[int]) -> int:
    """llama.cpp's hash of an n-gram (common/ngram-map.cpp)."""
    value = 0
    for token in tokens:
        value = (value * _FACTOR + token) & _MASK
    return value
