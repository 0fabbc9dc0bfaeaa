"""NgramModDrafter: llama.cpp's ``ngram-mod``, one pool of n-grams for all sequences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from outrider.speculative.drafters.ngram_pool import NgramPool
from outrider.speculative.drafters.seen_text import SeenText, num_matched
from outrider.speculative.drafters.text_drafter import TextDrafter
from outrider.speculative.proposal import DraftRequest

I32 = NDArray[np.int32]

_CHUNK = 32
_MAX_OCCUPANCY = 0.25
_LOW_ACCEPTANCE = 0.25
_MAX_NUM_LOW = 5


class _Reader:
    """What one sequence has given to the pool, and how its drafts fared."""

    def __init__(self, pool: NgramPool, min_tokens: int) -> None:
        self._pool = pool
        self._min_tokens = min_tokens
        self._text = SeenText()
        self._num_added = 0  # n-grams of the text that are in the pool
        self._num_cleared = pool.num_cleared
        self._num_low = 0
        self.num_matched: int = pool.match

    def read(self, request: DraftRequest) -> None:
        change = self._text.follow(request)
        if self._num_cleared != self._pool.num_cleared:
            self._num_added, self._num_cleared = 0, self._pool.num_cleared
        if change.is_new_answer:
            self._add_all()
            self.num_matched = self._pool.match
            source = _latest(self._text.ids, self._pool.match)
            if source is not None:
                self.num_matched = num_matched(self._text.ids, source)
        elif self._num_added + _CHUNK < len(self._text) - 1:
            self._add(self._num_added)

    def draft(self, max_tokens: int) -> Sequence[int]:
        match = self._pool.match
        if len(self._text) <= match:
            return ()
        # a minimum is asked of what is known, not of what is wanted in this step
        ngram = self._text.ids[-match:].tolist()
        found = self._pool.continuation(ngram, max(max_tokens, self._min_tokens))
        if len(found) < self._min_tokens:
            return ()
        return found[:max_tokens]

    def observe(self, num_accepted: int, num_drafted: int) -> None:
        # the table says what follows, not where: what it was right about is counted
        stood = num_accepted == num_drafted
        self.num_matched = self.num_matched + num_drafted + 1 if stood else self._pool.match
        if num_accepted >= _LOW_ACCEPTANCE * num_drafted:
            self._num_low = 0
            return
        self._num_low += 1
        if self._num_low == _MAX_NUM_LOW:
            self._num_low = 0
            self._pool.clear()

    def _add_all(self) -> None:
        """Add the text, and again to an empty pool if it made the pool too full."""
        self._add(0)
        if len(self._text) > self._pool.match and self._pool.is_fuller_than(_MAX_OCCUPANCY):
            self._pool.clear()
            self._num_cleared = self._pool.num_cleared
            self._add(0)

    def _add(self, begin: int) -> None:
        # the pending token follows nothing yet that is known to stand
        text = self._text.ids[:-1]
        self._pool.add(text[begin:])
        self._num_added = max(len(text) - self._pool.match, 0)


def _latest(ids: I32, match: int) -> int | None:
    """Behind the latest earlier occurrence of the last ``match`` tokens; None if there is none."""
    if len(ids) <= match:
        return None
    equal = (sliding_window_view(ids[:-1], match) == ids[-match:]).all(axis=1)
    starts = np.flatnonzero(equal)
    return int(starts[-1]) + match if len(starts) else None


class NgramModDrafter(TextDrafter[_Reader]):
    """Walks a table from the last tokens to the token that followed them, and on.

    Fewer than ``min_tokens`` are not proposed. Unlike in llama.cpp the text at hand is added
    again when the table is cleared for being too full or wrong too often, that of other
    sequences too, and what counts as wrong is measured on the tokens that were verified.
    """

    name = "ngram-mod"

    def __init__(
        self, pool: NgramPool, min_tokens: int, size: int, n_max: int | None = None
    ) -> None:
        """``size`` is the longest draft, and bounds the minimum too."""
        minimum = min(min_tokens, size)
        super().__init__(min(size, n_max or size), lambda: _Reader(pool, minimum))
