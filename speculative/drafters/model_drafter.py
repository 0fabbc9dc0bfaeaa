"""ModelDrafter: a small language model that drafts token by token (``draft-simple``)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.batch_outputs import BatchOutputs, Block
from outrider.speculative.candidates import best
from outrider.speculative.distribution import Distribution
from outrider.speculative.proposal import DraftRequest, Proposal, Verdict
from outrider.speculative.runner import Runner
from outrider.speculative.token_sequence import TokenSequence, common_prefix_length

F32 = NDArray[np.float32]

_CONFIDENCE_CANDIDATES = 10
_ORDINARY_CATCH_UP = 4  # tokens; a longer one is not the price of a draft


@dataclass(slots=True, eq=False)
class _Draft:
    """A draft under way; ``tokens`` are the committed and the drafted tokens."""

    request: DraftRequest
    tokens: TokenSequence
    max_tokens: int
    laws: list[Distribution] = field(default_factory=list)

    @property
    def num_drafted(self) -> int:
        return len(self.tokens) - len(self.request.token_ids)


class ModelDrafter:
    """Drafts with a model of the target's vocabulary (llama.cpp: common/speculative.cpp).

    Unlike llama.cpp it keeps its cache: rejected tokens are cut off at the next request and
    accepted ones are not evaluated twice.
    """

    name = "draft-simple"
    gives_law = True

    def __init__(
        self, runner: Runner, target_vocab_size: int, n_max: int, max_length: int | None = None
    ) -> None:
        """``max_length``: no drafts for longer texts; None as far as the context goes."""
        self.n_max = n_max
        self._runner = runner
        self._max_length = runner.n_ctx if max_length is None else min(max_length, runner.n_ctx)
        # a vocabulary may be padded: ids the target does not have are never drafted
        self._vocab_size = min(target_vocab_size, runner.vocab_size)
        self._cached: dict[int, TokenSequence] = {}

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        started = time.perf_counter()
        drafts = {r.seq_id: d for r in requests if (d := self._begin(r)) is not None}
        longest = max((self._num_missing(draft) for draft in drafts.values()), default=0)
        blocks = self._catch_up(list(drafts.values()))
        catch_up_s = time.perf_counter() - started if longest > _ORDINARY_CATCH_UP else 0.0
        while blocks:
            outputs = self._decode(blocks)
            going = [b for b in blocks if self._extend(drafts[b.seq_id], outputs.logits(b)[0])]
            blocks = [self._next_block(drafts[block.seq_id]) for block in going]
        return [self._proposal(r, drafts.get(r.seq_id), catch_up_s) for r in requests]

    def observe_batch(self, blocks: Sequence[Block], outputs: BatchOutputs) -> None:
        pass

    def observe_verdict(self, seq_id: int, verdict: Verdict) -> None:
        pass

    def forget(self, seq_id: int) -> None:
        self._cached.pop(seq_id, None)
        self._runner.truncate(seq_id, 0)

    def close(self) -> None:
        self._runner.close()

    def _begin(self, request: DraftRequest) -> _Draft | None:
        """Align the cache to the committed tokens; None if this model cannot draft for them."""
        committed = request.token_ids
        # the last draft token is never decoded
        room = self._max_length - len(committed) + 1
        if room < 1 or int(committed.max()) >= self._runner.vocab_size:
            return None
        cached = self._cached.setdefault(request.seq_id, TokenSequence())
        # the last committed token is decoded again if it must be: its row starts the draft
        shared = min(common_prefix_length(cached.ids, committed), len(committed) - 1)
        if not self._runner.truncate(request.seq_id, shared):
            shared = 0
        cached.truncate(shared)
        return _Draft(request, TokenSequence(committed), min(request.max_tokens, room))

    def _num_missing(self, draft: _Draft) -> int:
        return len(draft.request.token_ids) - len(self._cached[draft.request.seq_id])

    def _catch_up(self, drafts: Sequence[_Draft]) -> list[Block]:
        """Read what is missing but the last part, which all sequences read in one batch."""
        if not drafts:
            return []
        share = self._runner.n_batch // len(drafts)
        for draft in drafts:
            while self._num_missing(draft) > share:
                self._decode([self._block(draft, share, num_outputs=0)])
        return [self._block(draft, self._num_missing(draft), num_outputs=1) for draft in drafts]

    def _block(self, draft: _Draft, count: int, num_outputs: int) -> Block:
        seq_id = draft.request.seq_id
        start = len(self._cached[seq_id])
        return Block(seq_id, draft.tokens.ids[start : start + count], start, num_outputs)

    def _next_block(self, draft: _Draft) -> Block:
        return self._block(draft, 1, num_outputs=1)

    def _decode(self, blocks: Sequence[Block]) -> BatchOutputs:
        outputs = self._runner.decode(blocks)
        for block in blocks:
            self._cached[block.seq_id].extend(block.token_ids)
        return outputs

    def _extend(self, draft: _Draft, row: F32) -> bool:
        """Add one token to a draft; False when it is complete."""
        request, row = draft.request, row[: self._vocab_size]
        history = draft.tokens.ids
        if request.uniform is None:
            if request.min_prob > 0 and _confidence(row) < request.min_prob:
                return False
            token = request.sampler.argmax(row, history)
        else:
            law = request.sampler.distribution(row, history)
            # decided before the draw: dropping a drawn token would bias the law
            if request.min_prob > 0 and law.probs.max() < request.min_prob:
                return False
            token = law.draw(request.uniform())
            draft.laws.append(law)
        draft.tokens.extend([token])
        return draft.num_drafted < draft.max_tokens

    def _proposal(self, request: DraftRequest, draft: _Draft | None, catch_up_s: float) -> Proposal:
        if draft is None:
            return Proposal()
        token_ids = tuple(draft.tokens.ids[len(request.token_ids) :].tolist())
        laws = None if request.uniform is None else tuple(draft.laws)
        return Proposal(token_ids, laws, catch_up_s=catch_up_s)


def _confidence(row: F32) -> float:
    """Probability of the best token among the ten best, as llama.cpp measures ``p_min``."""
    ids, logits = best(row, _CONFIDENCE_CANDIDATES)
    return float(Distribution.softmax(ids, logits).probs[0])
