"""NgramSimpleDrafter: repeat what followed the latest occurrence of the last n tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.drafters.drafter import StatelessDrafter
from outrider.speculative.proposal import DraftRequest, Proposal
from outrider.speculative.token_sequence import TokenSequence, common_prefix_length

I32 = NDArray[np.int32]


class _Index:
    """Where each n-gram of a sequence begins last; grows with the sequence."""

    def __init__(self, match: int) -> None:
        self._match = match
        self._known = TokenSequence()
        self._latest: dict[bytes, int] = {}
        self._next_start = 1  # llama.cpp never matches at position 0

    def find(self, token_ids: I32) -> int | None:
        """Start of the latest earlier occurrence of the last ``match`` tokens."""
        self._update(token_ids)
        return self._latest.get(token_ids[-self._match :].tobytes())

    def _update(self, token_ids: I32) -> None:
        if common_prefix_length(self._known.ids, token_ids) < len(self._known):
            self.__init__(self._match)  # type: ignore[misc]
        self._known.extend(token_ids[len(self._known) :])
        # the pending token is not part of the text that is searched, and one must follow
        last_start = len(token_ids) - self._match - 2
        for start in range(self._next_start, last_start + 1):
            self._latest[token_ids[start : start + self._match].tobytes()] = start
        self._next_start = max(self._next_start, last_start + 1)


class NgramSimpleDrafter(StatelessDrafter):
    """llama.cpp's ``ngram-simple`` (common/ngram-map.cpp), with an index instead of a search.

    The last ``match`` tokens are looked up; up to ``size`` tokens after their latest earlier
    occurrence are proposed, none if fewer than ``match`` follow it there.
    """

    name = "ngram-simple"

    def __init__(self, match: int, size: int) -> None:
        self.n_max = size
        self._match = match
        self._indexes: dict[int, _Index] = {}

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        return [self._propose(request) for request in requests]

    def forget(self, seq_id: int) -> None:
        self._indexes.pop(seq_id, None)

    def _propose(self, request: DraftRequest) -> Proposal:
        tokens = request.token_ids
        text_length = len(tokens) - 1
        if text_length <= self._match + self.n_max + 1:
            return Proposal()
        index = self._indexes.setdefault(request.seq_id, _Index(self._match))
        start = index.find(tokens)
        if start is None:
            return Proposal()
        begin = start + self._match
        found = tokens[begin : min(begin + self.n_max, text_length)]
        if len(found) < self._match:
            return Proposal()
        return Proposal(tuple(found[: request.max_tokens].tolist()))
