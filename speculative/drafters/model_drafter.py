"""ModelDrafter: a small language model that drafts token by token (``draft-simple``)."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.batch_outputs import BatchOutputs, Block
from outrider.speculative.calibration import timed_decode
from outrider.speculative.drafters.drafter import DrafterDefaults
from outrider.speculative.drafters.open_draft import OpenDraft
from outrider.speculative.proposal import NO_DRAFT, DraftRequest, Proposal
from outrider.speculative.runner import Runner
from outrider.speculative.token_sequence import TokenSequence, common_prefix_length

I32 = NDArray[np.int32]

_ORDINARY_CATCH_UP = 4  # tokens; a longer one is not the price of a draft


class ModelDrafter(DrafterDefaults):
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
            going = [b for b in blocks if drafts[b.seq_id].extend(outputs.logits(b)[0])]
            blocks = [self._next_block(drafts[block.seq_id]) for block in going]
        return [
            drafts[r.seq_id].proposal(catch_up_s) if r.seq_id in drafts else NO_DRAFT
            for r in requests
        ]

    def settle(self, seq_id: int, token_ids: I32) -> None:
        cached = self._cached.get(seq_id)
        if cached is not None:
            self._cut(seq_id, cached, common_prefix_length(cached.ids, token_ids))

    def forget(self, seq_id: int) -> None:
        self._cached.pop(seq_id, None)
        self._runner.truncate(seq_id, 0)

    def time_token(self) -> float | None:
        return None if self._cached else min(timed_decode(self._runner, 1) for _ in range(3))

    def close(self) -> None:
        self._runner.close()

    def _begin(self, request: DraftRequest) -> OpenDraft | None:
        """Align the cache to the committed tokens; None if this model cannot draft for them."""
        committed = request.token_ids
        # the last draft token is never decoded
        room = self._max_length - len(committed) + 1
        if room < 1 or int(committed.max()) >= self._runner.vocab_size:
            return None
        cached = self._cached.setdefault(request.seq_id, TokenSequence())
        # a decode that was broken off may have emptied it
        cached.truncate(min(len(cached), self._runner.cached_length(request.seq_id)))
        # the last committed token is decoded again if it must be: its row starts the draft
        shared = min(common_prefix_length(cached.ids, committed), len(committed) - 1)
        self._cut(request.seq_id, cached, shared)
        return OpenDraft(request, min(request.max_tokens, room), self._vocab_size)

    def _cut(self, seq_id: int, cached: TokenSequence, length: int) -> None:
        cached.truncate(length if self._runner.truncate(seq_id, length) else 0)

    def _num_missing(self, draft: OpenDraft) -> int:
        return len(draft.request.token_ids) - len(self._cached[draft.request.seq_id])

    def _catch_up(self, drafts: Sequence[OpenDraft]) -> list[Block]:
        """Read what is missing but the last part, which all sequences read in one batch."""
        if not drafts:
            return []
        share = self._runner.n_batch // len(drafts)
        for draft in drafts:
            while self._num_missing(draft) > share:
                self._decode([self._block(draft, share, num_outputs=0)])
        return [self._block(draft, self._num_missing(draft), num_outputs=1) for draft in drafts]

    def _block(self, draft: OpenDraft, count: int, num_outputs: int) -> Block:
        seq_id = draft.request.seq_id
        start = len(self._cached[seq_id])
        return Block(seq_id, draft.tokens.ids[start : start + count], start, num_outputs)

    def _next_block(self, draft: OpenDraft) -> Block:
        return self._block(draft, 1, num_outputs=1)

    def _decode(self, blocks: Sequence[Block]) -> BatchOutputs:
        outputs = self._runner.decode(blocks)
        for block in blocks:
            self._cached[block.seq_id].extend(block.token_ids)
        return outputs
