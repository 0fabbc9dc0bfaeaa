"""TokenSequence: the committed tokens of one conversation."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

I32 = NDArray[np.int32]

_revisions = itertools.count()


class TokenSequence:
    """Token ids in one growing int32 array; :attr:`ids` is a view, not a copy.

    ``revision`` is another number after each truncation, and no two sequences ever have the
    same: where it is the same as before, tokens were only added. ``length`` is the number of
    tokens, for those who ask in every step.
    """

    def __init__(self, token_ids: Sequence[int] | I32 = ()) -> None:
        self.revision = next(_revisions)
        self._buffer: I32 = np.empty(max(256, 2 * len(token_ids)), np.int32)
        self.length = 0
        self.extend(token_ids)

    def __len__(self) -> int:
        return self.length

    @property
    def ids(self) -> I32:
        """The tokens [n]; do not keep it across an append."""
        return self._buffer[: self.length]

    def extend(self, token_ids: Sequence[int] | I32) -> None:
        end = self.length + len(token_ids)
        if end > len(self._buffer):
            grown = np.empty(2 * end, np.int32)
            grown[: self.length] = self.ids
            self._buffer = grown
        self._buffer[self.length : end] = token_ids
        self.length = end

    def append(self, token_id: int) -> None:
        if self.length == len(self._buffer):
            self.extend((token_id,))
        else:
            self._buffer[self.length] = token_id
            self.length += 1

    def last_and(self, draft: Sequence[int]) -> I32:
        """The newest token and ``draft``, which is not added; do not keep it across an append."""
        start, end = self.length, self.length + len(draft)
        if end > len(self._buffer):
            self.extend(draft)
            self.length = start
        else:
            for place, token_id in enumerate(draft, start):  # few: cheaper than an array of them
                self._buffer[place] = token_id
        return self._buffer[start - 1 : end]

    def truncate(self, length: int) -> None:
        assert 0 <= length <= self.length
        self.length = length
        self.revision = next(_revisions)


def common_prefix_length(a: I32, b: I32) -> int:
    """How many tokens two sequences share from the start."""
    length = min(len(a), len(b))
    differing = np.flatnonzero(a[:length] != b[:length])
    return int(differing[0]) if len(differing) else length
