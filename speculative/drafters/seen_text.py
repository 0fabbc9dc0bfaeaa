"""SeenText: the committed tokens of a sequence as its drafter last saw them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.proposal import DraftRequest
from outrider.speculative.token_sequence import TokenSequence, common_prefix_length

I32 = NDArray[np.int32]

_MAX_MATCHED = 256


@dataclass(frozen=True, slots=True)
class Change:
    """What became of a text: its first ``num_kept`` tokens still stand.

    ``is_new_answer`` is true at the first request of an answer (where the request does not
    say, at one that takes tokens back).
    """

    num_kept: int
    is_new_answer: bool


class SeenText:
    """Follows a sequence without comparing all of it at each step."""

    def __init__(self) -> None:
        self._tokens = TokenSequence()
        self._revision: int | None = None

    def __len__(self) -> int:
        return len(self._tokens)

    @property
    def ids(self) -> I32:
        """The tokens [n], the pending one included; a view, not to be kept."""
        return self._tokens.ids

    def compare(self, request: DraftRequest) -> Change:
        """Say what :meth:`follow` will do."""
        known = len(self._tokens)
        if request.revision is not None and request.revision == self._revision:
            return Change(known, is_new_answer=False)
        kept = common_prefix_length(self._tokens.ids, request.token_ids)
        is_new = request.revision is not None or not known or kept < known
        return Change(kept, is_new)

    def follow(self, request: DraftRequest) -> Change:
        """Become the text of ``request``."""
        change = self.compare(request)
        self._tokens.truncate(change.num_kept)
        self._tokens.extend(request.token_ids[change.num_kept :])
        self._revision = request.revision
        return change


def num_matched(ids: I32, begin: int) -> int:
    """How many tokens before ``begin`` stand there as at the end of ``ids``, at most 256."""
    most = min(begin, _MAX_MATCHED)
    differing = np.flatnonzero(ids[begin - most : begin] != ids[len(ids) - most :])
    return most if not len(differing) else most - 1 - int(differing[-1])
