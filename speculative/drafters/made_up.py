"""Drafters for tests and benchmarks: they make acceptance and cost exact."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence

from outrider.speculative.drafters.drafter import DrafterDefaults
from outrider.speculative.proposal import DraftRequest, Proposal, judged


class ScriptDrafter(DrafterDefaults):
    """Proposes the given drafts one after another, then nothing."""

    name = "script"

    def __init__(self, drafts: Iterable[Sequence[int]], n_max: int = 64) -> None:
        self.n_max = n_max
        self._drafts = iter(drafts)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        proposals = []
        for request in requests:
            proposal = Proposal(tuple(next(self._drafts, ())))
            proposals.append(judged(request, proposal, self.name) if request.gate else proposal)
        return proposals


class OracleDrafter(DrafterDefaults):
    """Proposes the target's own tokens, known beforehand, with errors where it is told.

    ``answer`` are the tokens plain decoding emits after a prompt of ``prompt_length`` tokens;
    ``wrong`` are indexes of the answer at which another token is proposed.
    """

    name = "oracle"

    def __init__(
        self,
        answer: Sequence[int],
        prompt_length: int,
        wrong: Collection[int] = (),
        n_max: int = 64,
    ) -> None:
        self.n_max = n_max
        self._answer = tuple(answer)
        self._prompt_length = prompt_length
        self._wrong = frozenset(wrong)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        return [self._propose(request) for request in requests]

    def _propose(self, request: DraftRequest) -> Proposal:
        begin = len(request.token_ids) - self._prompt_length
        end = min(begin + request.max_tokens, len(self._answer))
        tokens = tuple(self._token(i) for i in range(begin, end))
        return judged(request, Proposal(tokens), self.name)

    def _token(self, index: int) -> int:
        token = self._answer[index]
        return token if index not in self._wrong else max(token - 1, 0) if token else 1


class FillerDrafter(DrafterDefaults):
    """Always proposes as many tokens as it may, at a stated cost a token (seconds)."""

    name = "filler"

    def __init__(self, token_id: int, n_max: int, cost_s: float = 0.0) -> None:
        self.n_max = n_max
        self._token_id = token_id
        self._cost_s = cost_s

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        if self._cost_s:
            time.sleep(self._cost_s * max(request.max_tokens for request in requests))
        return [
            judged(request, Proposal((self._token_id,) * request.max_tokens), self.name)
            for request in requests
        ]
