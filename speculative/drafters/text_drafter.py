"""TextDrafter: what the drafters that read nothing but the text have in common."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from outrider.speculative.acceptance import after_streak
from outrider.speculative.drafters.drafter import DrafterDefaults
from outrider.speculative.proposal import DraftRequest, Proposal, Verdict, judged


class TextReader(Protocol):
    """Reads along with one sequence and says how it may go on.

    ``num_matched`` tokens stood before the last draft's source as they stand at the end of the
    text; None if that is not known.
    """

    @property
    def num_matched(self) -> int | None: ...

    def read(self, request: DraftRequest) -> None:
        """Catch up with the committed tokens, whatever has become of those seen before."""
        ...

    def draft(self, max_tokens: int) -> Sequence[int]:
        """The tokens that may follow, at most ``max_tokens``; none if there is no telling."""
        ...

    def observe(self, num_accepted: int, num_drafted: int) -> None:
        """Learn how many of the tokens of the last draft that were verified were accepted."""
        ...


R = TypeVar("R", bound=TextReader)


class TextDrafter(DrafterDefaults, Generic[R]):
    """Drafts with a reader for each sequence; ``open_reader`` makes one."""

    name: str

    def __init__(self, n_max: int, open_reader: Callable[[], R]) -> None:
        self.n_max = n_max
        self._open_reader = open_reader
        self._readers: dict[int, R] = {}
        self._num_drafted: dict[int, int] = {}

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        return [self._propose(request) for request in requests]

    def observe_verdict(self, seq_id: int, verdict: Verdict) -> None:
        self._readers[seq_id].observe(verdict.num_accepted, self._num_drafted[seq_id])

    def forget(self, seq_id: int) -> None:
        self._readers.pop(seq_id, None)

    def _propose(self, request: DraftRequest) -> Proposal:
        reader = self._readers.get(request.seq_id)
        if reader is None:
            reader = self._readers[request.seq_id] = self._open_reader()
        started = time.perf_counter()
        reader.read(request)
        read_s = time.perf_counter() - started
        tokens = tuple(reader.draft(min(request.max_tokens, self.n_max)))
        sure = None
        if request.gate is not None and reader.num_matched is not None:
            sure = after_streak(reader.num_matched, len(tokens))
        proposal = Proposal(tokens, catch_up_s=read_s, confidences=sure)
        proposal = judged(request, proposal, self.name)
        self._num_drafted[request.seq_id] = len(proposal)
        return proposal
