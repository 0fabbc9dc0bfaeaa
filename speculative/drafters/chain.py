"""ChainDrafter: several drafters, asked in the order they were written."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.batch_outputs import BatchOutputs, Block
from outrider.speculative.drafters.drafter import Drafter
from outrider.speculative.errors import CacheFullError, DecodeStoppedError, EngineError
from outrider.speculative.proposal import NO_DRAFT, DraftRequest, Proposal, Verdict, judged

I32 = NDArray[np.int32]

_log = logging.getLogger(__name__)


@dataclass(slots=True)  # not frozen, which would cost: one is made in every step
class Spent:
    """What one drafter took in the last round: seconds for tokens, reading up apart.

    ``is_look`` is true if nothing it made is sent to the target.
    """

    drafter: str
    num_tokens: int
    seconds: float
    catch_up_s: float
    is_look: bool = False


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
        proposals = [NO_DRAFT] * len(requests)
        self._winner.clear()
        self.spent.clear()
        for member in list(self.members):
            places, asked = [], []
            for place, request in enumerate(requests):
                own = None if proposals[place].token_ids else _for(member, request)
                if own is not None:
                    places.append(place)
                    asked.append(own)
            if not asked:
                continue
            made = self._ask(member, asked)
            for index, proposal in enumerate(made):
                place, request = places[index], asked[index]
                kept = proposal.num_within(request)
                if kept:
                    self._winner[request.seq_id] = member
                proposals[place] = _after(proposals[place], proposal, kept, member.name)
        return proposals

    def observe_batch(self, blocks: Sequence[Block], outputs: BatchOutputs) -> None:
        for member in list(self.members):
            try:
                member.observe_batch(blocks, outputs)
            except EngineError as error:
                self._drop(member, error)

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
            for place, request in enumerate(requests):
                if request.gate is not None and request.gate.is_look:
                    proposals[place] = judged(request, proposals[place], member.name)
        except DecodeStoppedError:
            raise
        except EngineError as error:
            if not isinstance(error, CacheFullError):  # there is room again when a slot ends
                self._drop(member, error)
            proposals = [NO_DRAFT] * len(requests)
        seconds = time.perf_counter() - started
        catch_up_s, num_drafted, num_looked = 0.0, 0, 0
        for proposal in proposals:
            catch_up_s = max(catch_up_s, proposal.catch_up_s)
            num_drafted += len(proposal.token_ids)
            for look in proposal.looks:
                num_looked += len(look.token_ids)
        self.spent.append(
            Spent(member.name, num_drafted + num_looked, seconds, catch_up_s, not num_drafted)
        )
        return proposals

    def _drop(self, member: Drafter, error: EngineError) -> None:
        _log.warning("drafter %s dropped: %s", member.name, error)
        self.dropped[member.name] = str(error)
        self.members.remove(member)
        member.close()


def _after(before: Proposal, proposal: Proposal, kept: int, drafter: str) -> Proposal:
    """The first ``kept`` tokens of a proposal, with what came of the drafters before."""
    discarded, length = before.discarded, len(proposal.token_ids)
    if kept < length:
        discarded += ((drafter, length - kept),)
        proposal = proposal.cut(kept)
    if not proposal.token_ids:
        return Proposal(discarded=discarded, looks=before.looks + proposal.looks)
    proposal.drafter, proposal.discarded = drafter, discarded
    proposal.looks = before.looks + proposal.looks
    return proposal


def _for(member: Drafter, request: DraftRequest) -> DraftRequest | None:
    """The request within the member's own bounds; None: it is not asked."""
    bound, gate = min(request.max_tokens, member.n_max), None
    uniform = request.uniform if member.gives_law else None
    if request.gates is not None:
        gate = request.gates.get(member.name)
        bound = 0 if gate is None else min(bound, gate.max_tokens)
        if gate is not None and gate.is_look:
            uniform = None  # what is only compared is the best guess, and draws nothing
    if bound == 0:
        return None
    if gate is not None:
        gate.was_asked = True
    if gate is None and bound == request.max_tokens and uniform is request.uniform:
        return request
    return request.within(bound, uniform, gate)
