"""MtpDrafter: the target's own NextN heads (``draft-mtp``)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from outrider.speculative.drafters.draft_context import DraftContext, Part
from outrider.speculative.drafters.open_draft import OpenDraft
from outrider.speculative.drafters.seeded_drafter import SeededDrafter


class MtpDrafter(SeededDrafter):
    """Multi-token prediction (llama.cpp: common/speculative.cpp).

    The cell of position p holds its token and the target's hidden state *before* it, zeros at
    the beginning. With several heads each draft step runs under its own one, which has layers
    of its own in the same cells: every head writes them all.
    """

    name = "draft-mtp"
    first_row_of_cell = -1

    def __init__(
        self,
        context: DraftContext,
        taps: Sequence[int],
        width: int,
        target_vocab_size: int,
        n_max: int,
        num_heads: int = 1,
    ) -> None:
        super().__init__(context, taps, width, target_vocab_size, n_max)
        self._num_heads = num_heads
        self.row_before = np.zeros((1, width), np.float32)
        """The state before position 0. There is none: zeros; llama.cpp takes what the request
        before left."""
        if num_heads > 1:
            self.n_max = min(n_max, num_heads)

    def _num_true(self, num_shared: int, num_read: int) -> int:
        return min(num_shared, num_read)

    def _missing(self, draft: OpenDraft) -> Part:
        seq_id, committed = draft.request.seq_id, draft.request.token_ids
        start, end = self._start(draft), len(committed)
        ring = self._mirror(seq_id).ring
        rows = ring.read(max(start - 1, 0), end - 1)
        if start == 0:
            rows = np.concatenate((self.row_before, rows))
        return Part(seq_id, start, committed[start:end], rows)

    def _catch_up(self, drafts: Sequence[OpenDraft]) -> None:
        if self._num_heads == 1:
            super()._catch_up(drafts)
            return
        for draft in drafts:
            part = self._missing(draft)
            true = part.slice(0, len(part) - 1)  # the seed is drafted from, head by head
            for start in range(0, len(true), self._context.n_batch):
                self._write_heads(true.slice(start, start + self._context.n_batch))
            self._mirror(part.seq_id).num_cells = part.start_pos + len(true)

    def _write_heads(self, part: Part) -> None:
        for head in range(self._num_heads):
            self._context.truncate(part.seq_id, part.start_pos)
            self._context.set_head(head)
            self._context.decode([part], outputs=False)
        self._context.set_head(0)

    def _draft(self, drafts: Sequence[OpenDraft]) -> None:
        if self._num_heads == 1:
            super()._draft(drafts)
            return
        for draft in drafts:
            self._draft_heads(draft)

    def _draft_heads(self, draft: OpenDraft) -> None:
        """Head i reads the pending token and the i draft tokens before its own."""
        seq_id = draft.request.seq_id
        start = len(draft.request.token_ids) - 1
        rows = self._mirror(seq_id).ring.read(start - 1, start)
        for head in range(self._num_heads):
            self._context.truncate(seq_id, start)
            self._context.set_head(head)
            tokens = draft.tokens.ids[start:]
            self._context.decode([Part(seq_id, start, tokens, rows)], outputs=True)
            logits = self._context.logits(len(tokens))
            hidden = self._context.hidden(len(tokens))
            rows = np.concatenate((rows, hidden[-1:]))
            if not draft.extend(logits[-1]):
                break
        self._context.set_head(0)
