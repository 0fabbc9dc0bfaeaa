"""StateDrafter: what drafters that read the target's hidden states have in common."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.batch_outputs import BatchOutputs, Block
from outrider.speculative.drafters.draft_context import DraftContext, Part
from outrider.speculative.drafters.drafter import DrafterDefaults
from outrider.speculative.drafters.open_draft import OpenDraft
from outrider.speculative.drafters.state_ring import StateRing
from outrider.speculative.proposal import NO_DRAFT, DraftRequest, Proposal
from outrider.speculative.token_sequence import TokenSequence, common_prefix_length

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]

_ORDINARY_CATCH_UP = 16  # cells; a longer one is not the price of a draft


@dataclass(slots=True, eq=False)
class Mirror:
    """What the draft context holds of one sequence: true cells for a prefix of ``tokens``."""

    ring: StateRing
    tokens: TokenSequence = field(default_factory=TokenSequence)
    num_cells: int = 0


class StateDrafter(DrafterDefaults, ABC):
    """Copies the tapped rows of every target decode into a ring, and catches up when asked.

    A cell of the draft context is *true* when it was made from a row of the target. It stays
    true as long as the tokens it came from are committed; all others are cut off at the next
    request. If the ring no longer reaches back to the first missing cell, the sequence starts
    anew where the ring begins.
    """

    name: str
    first_row_of_cell = 0
    """The row a cell was made from, relative to its own position."""

    def __init__(
        self,
        context: DraftContext,
        taps: Sequence[int],
        width: int,
        target_vocab_size: int,
        n_max: int,
    ) -> None:
        """``taps`` are what is read of the target (see Runner.taps), ``width`` floats in all."""
        self.n_max = n_max
        self.taps = tuple(taps)
        self._context = context
        self._width = width
        self._vocab_size = target_vocab_size
        self._mirrors: dict[int, Mirror] = {}

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        started = time.perf_counter()
        drafts = {r.seq_id: d for r in requests if (d := self._open(r)) is not None}
        if not drafts:
            return [NO_DRAFT] * len(requests)
        missing = max(len(d.request.token_ids) - self._start(d) for d in drafts.values())
        self._catch_up(list(drafts.values()))
        catch_up_s = time.perf_counter() - started if missing > _ORDINARY_CATCH_UP else 0.0
        self._draft(list(drafts.values()))
        return [
            drafts[r.seq_id].proposal(catch_up_s) if r.seq_id in drafts else NO_DRAFT
            for r in requests
        ]

    def observe_batch(self, blocks: Sequence[Block], outputs: BatchOutputs) -> None:
        for block in blocks:
            taps = [outputs.states(block, tap) for tap in self.taps]
            self._mirror(block.seq_id).ring.write(block.start_pos, taps)

    def settle(self, seq_id: int, token_ids: I32) -> None:
        mirror = self._mirrors.get(seq_id)
        if mirror is not None:
            shared = common_prefix_length(mirror.tokens.ids, token_ids)
            mirror.num_cells = min(mirror.num_cells, self._num_true(shared, len(token_ids) - 1))
            self._context.truncate(seq_id, mirror.num_cells)

    def forget(self, seq_id: int) -> None:
        self._mirrors.pop(seq_id, None)
        self._context.truncate(seq_id, 0)

    def close(self) -> None:
        self._context.close()

    @abstractmethod
    def _num_true(self, num_shared: int, num_read: int) -> int:
        """Cells that stay, given how many tokens are still the same and were read."""

    @abstractmethod
    def _catch_up(self, drafts: Sequence[OpenDraft]) -> None:
        """Write the true cells that are missing."""

    @abstractmethod
    def _draft(self, drafts: Sequence[OpenDraft]) -> None:
        """Fill the drafts."""

    def _mirror(self, seq_id: int) -> Mirror:
        mirror = self._mirrors.get(seq_id)
        if mirror is None:
            mirror = self._mirrors[seq_id] = Mirror(StateRing(self._width))
        return mirror

    def _start(self, draft: OpenDraft) -> int:
        """The position of the first missing cell."""
        return self._mirror(draft.request.seq_id).num_cells

    def _open(self, request: DraftRequest) -> OpenDraft | None:
        """Cut the cells that are no longer true; None if no draft can be made."""
        committed, seq_id = request.token_ids, request.seq_id
        num_read = len(committed) - 1  # positions the target has decoded
        room = self._context.max_length - len(committed)
        mirror = self._mirror(seq_id)
        ring = mirror.ring
        if ring.end < num_read or ring.first >= num_read or room < 1:
            return None  # the target was decoded without taps, or the text is too long
        shared = common_prefix_length(mirror.tokens.ids, committed)
        mirror.num_cells = min(mirror.num_cells, self._num_true(shared, num_read))
        first = ring.first - self.first_row_of_cell if ring.first else 0
        if mirror.num_cells < first:
            # longer ago than the ring remembers: an empty sequence may begin anywhere
            self._context.truncate(seq_id, 0)
            mirror.num_cells = first
        else:
            self._context.truncate(seq_id, mirror.num_cells)
        mirror.tokens.truncate(0)
        mirror.tokens.extend(committed)
        return OpenDraft(request, min(request.max_tokens, self.n_max, room), self._vocab_size)

    def _write(self, part: Part) -> None:
        """Decode a part without outputs, in pieces that a batch takes."""
        size = self._context.n_batch
        for start in range(0, len(part), size):
            self._context.decode([part.slice(start, start + size)], outputs=False)
