"""ChainDrafter: several drafters, asked in the order they were written."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.batch_outputs import BatchOutputs, Block
from outrider.speculative.drafters.drafter import Drafter
from outrider.speculative.errors import EngineError
from outrider.speculative.proposal import DraftRequest, Proposal, Verdict

I32 = NDArray[np.int32]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Spent:
    """What one drafter took in the last round: seconds for tokens, reading up apart."""

    drafter: str
    num_tokens: int
    seconds: float
    catch_up_s: float


class ChainDrafter:
    """The first drafter that proposes wins the step.

    (llama.cpp's order is fixed; here it is the user's.) A member that fails is dropped with
    its reason in :attr:`dropped`, and the answer goes on.
    """

    name = "chain"

    def __init__(self, members: Sequence[Drafter]) -> None:
        self.members = list(members)
        self.dropped: dict[str, str] = {}
        self.spent: list[Spent] = []
        self._winner: dict[int, Drafter] = {}

    @property
    def n_max(self) -> int:
        return max((member.n_max for member in self.members), default=0)

    @property
    def gives_law(self) -> bool:
        return any(member.gives_law for member in self.members)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        proposals = [Proposal()] * len(requests)
        self._winner.clear()
        self.spent.clear()
        for member in list(self.members):
            bounds = [_bound(member, request) for request in requests]
            open_at = [i for i, bound in enumerate(bounds) if bound and not proposals[i].token_ids]
            if not open_at:
                continue
            asked = [_for(member, requests[i], bounds[i]) for i in open_at]
            for i, request, proposal in zip(open_at, asked, self._ask(member, asked), strict=True):
                kept = proposal.num_within(request)
                discarded = proposals[i].discarded
                if kept < len(proposal):
                    discarded += ((member.name, len(proposal) - kept),)
                proposals[i] = proposal.cut(kept, member.name, discarded)
                if kept:
                    self._winner[request.seq_id] = member
        return proposals

    def observe_batch(self, blocks: Sequence[Block], outputs: BatchOutputs) -> None:
        for member in self.members:
            member.observe_batch(blocks, outputs)

    def observe_verdict(self, seq_id: int, verdict: Verdict) -> None:
        winner = self._winner.pop(seq_id, None)
        if winner is not None:
            winner.observe_verdict(seq_id, verdict)

    def settle(self, seq_id: int, token_ids: I32) -> None:
        for member in self.members:
            member.settle(seq_id, token_ids)

    def forget(self, seq_id: int) -> None:
        for member in self.members:
            member.forget(seq_id)

    def close(self) -> None:
        for member in self.members:
            member.close()

    def _ask(self, member: Drafter, requests: Sequence[DraftRequest]) -> list[Proposal]:
        started = time.perf_counter()
        try:
            proposals = member.propose(requests)
        except EngineError as error:
            _log.warning("drafter %s dropped: %s", member.name, error)
            self.dropped[member.name] = str(error)
            self.members.remove(member)
            member.close()
            proposals = [Proposal()] * len(requests)
        seconds = time.perf_counter() - started
        catch_up_s = max((proposal.catch_up_s for proposal in proposals), default=0.0)
        self.spent.append(Spent(member.name, sum(map(len, proposals)), seconds, catch_up_s))
        return proposals


def _bound(member: Drafter, request: DraftRequest) -> int:
    limits = request.limits
    own = request.max_tokens if limits is None else limits.get(member.name, request.max_tokens)
    return min(request.max_tokens, own, member.n_max)


def _for(member: Drafter, request: DraftRequest, bound: int) -> DraftRequest:
    """The request within the member's own bounds."""
    uniform = request.uniform if member.gives_law else None
    if bound == request.max_tokens and uniform is request.uniform:
        return request
    return replace(
        request,
        max_tokens=bound,
        min_tokens=min(request.min_tokens, bound),
        uniform=uniform,
    )
