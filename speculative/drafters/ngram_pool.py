"""NgramPool: which token followed an n-gram last, for all texts together."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

I32 = NDArray[np.int32]
U32 = NDArray[np.uint32]

_FACTOR = 6364136223846793005  # llama.cpp's


class NgramPool:
    """A hash table that keeps no n-grams (common/ngram-mod.cpp): a collision answers wrong.

    ``size`` is a power of two: only the low bits of a hash choose an entry. ``num_cleared``
    tells whose text has to be added again.
    """

    def __init__(self, match: int, size: int = 4 * 1024 * 1024) -> None:
        assert size.bit_count() == 1
        self.match = match
        self.num_cleared = 0
        self._mask = size - 1
        self._followers = np.zeros(size, np.int32)  # a token plus 1; 0 is empty
        powers = [pow(_FACTOR, match - 1 - i, size) for i in range(match)]
        self._powers: U32 = np.array(powers, np.uint32)
        self._factor = _FACTOR % size
        self._leaving_factor = pow(_FACTOR, match, size)
        self._most_used = 0  # entries in use, or more than that

    def is_fuller_than(self, part: float) -> bool:
        """True if more than ``part`` of the table is in use."""
        limit = part * len(self._followers)
        if self._most_used > limit:
            self._most_used = int(np.count_nonzero(self._followers))
        return self._most_used > limit

    def add(self, token_ids: I32) -> None:
        """Add every n-gram of a text that a token follows; the latest one counts."""
        if len(token_ids) <= self.match:
            return
        windows = sliding_window_view(token_ids[:-1].view(np.uint32), self.match)
        entries = (windows @ self._powers) & np.uint32(self._mask)
        # of several values for one entry numpy keeps the last
        self._followers[entries] = token_ids[self.match :] + 1
        self._most_used += len(entries)

    def clear(self) -> None:
        """Forget everything."""
        self._followers[:] = 0
        self._most_used = 0
        self.num_cleared += 1

    def continuation(self, ngram: list[int], max_tokens: int) -> list[int]:
        """What followed ``ngram``, what followed that, and so on, up to an empty entry."""
        tokens, factor, mask = list(ngram), self._factor, self._mask
        entry = 0
        for token in ngram:
            entry = (entry * factor + token) & mask
        for leaving in range(max_tokens):
            token = self._followers.item(entry) - 1
            if token < 0:
                break
            left = tokens[leaving] * self._leaving_factor
            entry = (entry * factor + token - left) & mask
            tokens.append(token)
        return tokens[self.match :]
