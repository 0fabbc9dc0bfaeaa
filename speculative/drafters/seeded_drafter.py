"""SeededDrafter: drafts token by token from the target's newest hidden state."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from outrider.speculative.drafters.draft_context import Part
from outrider.speculative.drafters.open_draft import OpenDraft
from outrider.speculative.drafters.state_drafter import StateDrafter


class SeededDrafter(StateDrafter):
    """The last missing cell is the seed: it holds the pending token, and its row is the first
    draft token's. Every further draft token is fed with the drafter's own hidden state."""

    gives_law = True

    @abstractmethod
    def _missing(self, draft: OpenDraft) -> Part:
        """The missing cells up to the seed."""

    def _catch_up(self, drafts: Sequence[OpenDraft]) -> None:
        """The last batch has all its entries as outputs, so that the seed's row is one."""
        parts = [self._missing(draft) for draft in drafts]
        share = self._context.n_batch // len(parts)
        last = []
        for part in parts:
            split = max(0, len(part) - share)
            self._write(part.slice(0, split))
            last.append(part.slice(split, len(part)))
            self._mirror(part.seq_id).num_cells = part.start_pos + split
        self._context.decode(last, outputs=True)
        for part in parts:
            self._mirror(part.seq_id).num_cells = part.start_pos + len(part)
        self._seed_rows = np.cumsum([len(part) for part in last]) - 1

    def _draft(self, drafts: Sequence[OpenDraft]) -> None:
        rows = [int(row) for row in self._seed_rows]
        going = list(drafts)
        while going:
            num_rows = rows[-1] + 1
            logits, hidden = self._context.logits(num_rows), self._context.hidden(num_rows)
            unfinished = [
                (draft, row)
                for draft, row in zip(going, rows, strict=True)
                if draft.extend(logits[row])
            ]
            parts = [
                Part(
                    draft.request.seq_id,
                    self._context.end(draft.request.seq_id),
                    np.array([draft.last_token], np.int32),
                    hidden[row : row + 1],
                )
                for draft, row in unfinished
            ]
            if parts:
                self._context.decode(parts, outputs=True)
            going = [draft for draft, _ in unfinished]
            rows = list(range(len(parts)))
