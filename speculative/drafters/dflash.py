"""DflashDrafter: a block of tokens in one pass (``draft-dflash``, ``draft-dspark``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.drafters.draft_context import DraftContext, Part
from outrider.speculative.drafters.open_draft import OpenDraft
from outrider.speculative.drafters.state_drafter import StateDrafter

F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class BlockShape:
    """How a block drafter was trained.

    Attributes:
        block_size: tokens of a block, the anchor (the pending token) included.
        mask_id: the token that stands for what is to be predicted.
        samples_anchor: the anchor's own row predicts too (DSpark's default layout).
        has_confidence: a head says how sure each row is (DSpark).
        lattice: best tokens a position, scored by predecessor (DFlash2); 0 if there is none.
    """

    block_size: int
    mask_id: int
    samples_anchor: bool = False
    has_confidence: bool = False
    lattice: int = 0

    @property
    def max_draft(self) -> int:
        return self.block_size if self.samples_anchor else self.block_size - 1


class DflashDrafter(StateDrafter):
    """Block diffusion (llama.cpp: common/speculative.cpp, models/dflash.cpp).

    The cell of a position is the target's tapped rows there, projected by the drafter; no
    tokens are read. A draft is one pass over the pending token and masks. DFlash2 chooses among
    the best tokens of each position by their scores after one another; DSpark's rows depend on
    the token chosen before, inside the graph. All blocks of a pass have the same length.
    """

    def __init__(
        self,
        name: str,
        shape: BlockShape,
        context: DraftContext,
        taps: Sequence[int],
        width: int,
        target_vocab_size: int,
        n_max: int,
    ) -> None:
        super().__init__(context, taps, width, target_vocab_size, min(n_max, shape.max_draft))
        self.name = name
        self._shape = shape

    def _num_true(self, num_shared: int, num_read: int) -> int:
        return min(num_shared, num_read)

    def _catch_up(self, drafts: Sequence[OpenDraft]) -> None:
        for draft in drafts:
            seq_id, start = draft.request.seq_id, self._start(draft)
            end = len(draft.request.token_ids) - 1
            if start < end:
                rows = self._mirror(seq_id).ring.read(start, end)
                self._write(Part(seq_id, start, rows=rows))
            self._mirror(seq_id).num_cells = end

    def _draft(self, drafts: Sequence[OpenDraft]) -> None:
        shape = self._shape
        longest = max(draft.max_tokens for draft in drafts)
        # one length for all: that which still fits the longest text
        longest = min(longest, self._context.max_length - max(map(_text_length, drafts)))
        length = longest if shape.samples_anchor else longest + 1
        parts = []
        for draft in drafts:
            tokens = np.full(length, shape.mask_id, np.int32)
            tokens[0] = draft.last_token
            start = len(draft.request.token_ids) - 1
            parts.append(Part(draft.request.seq_id, start, tokens))
        num_rows = length * len(parts)
        self._context.decode(parts, outputs=not shape.lattice)
        hidden = self._context.hidden(num_rows).reshape(len(parts), length, -1)
        if shape.lattice:
            for draft, rows in zip(drafts, hidden, strict=True):
                self._walk(draft, rows)
        else:
            logits = self._context.logits(num_rows).reshape(len(parts), length, -1)
            for draft, rows, extra in zip(drafts, logits, hidden, strict=True):
                self._read(draft, rows, extra)

    def _read(self, draft: OpenDraft, logits: F32, hidden: F32) -> None:
        """Row by row, as far as the drafter is sure."""
        for i in range(0 if self._shape.samples_anchor else 1, len(logits)):
            if self._shape.has_confidence:
                # the head's figure fills the whole row
                if not draft.is_sure(float(hidden[i, 0])):
                    return
                token = draft.best(logits[i])
                going = token is not None and draft.append(token)
            else:
                going = draft.extend(logits[i])
            if not going:
                return

    def _walk(self, draft: OpenDraft, rows: F32) -> None:
        """From position to position, to the best successor.

        Row i: ids of the candidates as floats [k], then their scores by predecessor [k, k].
        """
        k, before = self._shape.lattice, 0
        for row in rows[1:]:
            scores = row[k + before * k : k + before * k + k]
            before = int(scores.argmax())
            sure = 1.0 / np.exp(scores - scores[before]).sum()
            if not draft.is_sure(float(sure)) or not draft.append(int(row[before])):
                return


def _text_length(draft: OpenDraft) -> int:
    return len(draft.request.token_ids)
