"""A Drafter that writes down what another one proposes, and what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.batch_outputs import BatchOutputs, Block
from outrider.speculative.drafters.drafter import Drafter
from outrider.speculative.engine import Engine
from outrider.speculative.proposal import DraftRequest, Proposal, Verdict

I32 = NDArray[np.int32]


@dataclass(slots=True)
class Draft:
    """What was proposed after which tokens (the pending one is the last of them)."""

    seq_id: int
    text: tuple[int, ...]
    token_ids: tuple[int, ...]
    verdict: Verdict | None = None

    @property
    def num_cached(self) -> int:
        """Tokens in the target's cache before the step."""
        return len(self.text) - 1

    @property
    def num_accepted(self) -> int:
        """As llama-server counts: an end token only if it is the last one of the draft."""
        assert self.verdict is not None
        accepted = self.verdict.num_accepted
        ended = self.verdict.next_token is None
        return accepted - (ended and accepted < len(self.token_ids))


class RecordingDrafter:
    """Passes everything on to ``drafter``; ``drafts`` has what was proposed, in order."""

    def __init__(self, drafter: Drafter) -> None:
        self.drafter = drafter
        self.drafts: list[Draft] = []

    @classmethod
    def watch(cls, engine: Engine) -> RecordingDrafter:
        """Watch the only drafter of ``engine``, until it is configured anew."""
        [member] = engine._running.drafter.members
        recorder = cls(member)
        engine._running.drafter.members[0] = recorder
        return recorder

    @property
    def name(self) -> str:
        return self.drafter.name

    @property
    def n_max(self) -> int:
        return self.drafter.n_max

    @property
    def gives_law(self) -> bool:
        return self.drafter.gives_law

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        texts = [tuple(request.token_ids.tolist()) for request in requests]
        proposals = self.drafter.propose(requests)
        for request, text, proposal in zip(requests, texts, proposals, strict=True):
            self.drafts.append(Draft(request.seq_id, text, proposal.token_ids))
        return proposals

    def observe_batch(self, blocks: Sequence[Block], outputs: BatchOutputs) -> None:
        self.drafter.observe_batch(blocks, outputs)

    def observe_verdict(self, seq_id: int, verdict: Verdict) -> None:
        last = next(draft for draft in reversed(self.drafts) if draft.seq_id == seq_id)
        last.verdict = verdict
        self.drafter.observe_verdict(seq_id, verdict)

    def settle(self, seq_id: int, token_ids: I32) -> None:
        self.drafter.settle(seq_id, token_ids)

    def forget(self, seq_id: int) -> None:
        self.drafter.forget(seq_id)

    def time_token(self) -> float | None:
        return self.drafter.time_token()

    def close(self) -> None:
        self.drafter.close()

    def made(self) -> list[Draft]:
        """The drafts that were not empty, and forget them all."""
        drafts = [draft for draft in self.drafts if draft.token_ids]
        self.drafts = []
        return drafts
