"""Eagle3Drafter: one decoder layer that reads three layers of the target (``draft-eagle3``)."""

from __future__ import annotations

from outrider.speculative.drafters.draft_context import Part
from outrider.speculative.drafters.open_draft import OpenDraft
from outrider.speculative.drafters.seeded_drafter import SeededDrafter


class Eagle3Drafter(SeededDrafter):
    """EAGLE-3 (arXiv 2503.01840; llama.cpp: common/speculative.cpp, models/eagle3.cpp).

    The encoder turns the three tapped rows of position P into one feature g; the cell of P
    holds the token *after* it and g. Unlike in llama.cpp no cell of a rejected token ever
    stays.
    """

    name = "draft-eagle3"

    def _num_true(self, num_shared: int, num_read: int) -> int:
        return max(0, min(num_shared, num_read) - 1)

    def _missing(self, draft: OpenDraft) -> Part:
        seq_id, committed = draft.request.seq_id, draft.request.token_ids
        start, end = self._start(draft), len(committed) - 1
        features = self._context.encode(self._mirror(seq_id).ring.read(start, end))
        return Part(seq_id, start, committed[start + 1 : end + 1], features)
