"""Block and BatchOutputs: what goes into one target decode and what comes out of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]


@dataclass(slots=True, eq=False)  # not frozen, which would cost: one is made in every step
class Block:
    """Consecutive tokens of one sequence, part of one decode.

    ``token_ids`` [n] stand at positions ``start_pos .. start_pos + n - 1``. The last
    ``num_outputs`` tokens get a row of logits: row i predicts the token after the i-th of them.
    """

    seq_id: int
    token_ids: I32
    start_pos: int
    num_outputs: int


class DecodeCounter(Protocol):
    """Whatever counts its decodes, so that outputs know when they are stale."""

    @property
    def num_decodes(self) -> int: ...


class BatchOutputs:
    """All output rows of one decode: one array, one synchronisation, no copies.

    Valid until the runner decodes again; any use after that raises instead of reading memory
    that llama.cpp has recycled.
    """

    __slots__ = (
        "_blocks",
        "_embeddings",
        "_generation",
        "_logits",
        "_owner",
        "_read_tap",
        "_taps",
    )

    def __init__(
        self,
        owner: DecodeCounter,
        blocks: Sequence[Block],
        logits: F32,
        embeddings: F32 | None = None,
        read_tap: Callable[[int], F32] | None = None,
    ) -> None:
        """``logits`` [rows, vocab] holds the rows of ``blocks`` in their order.

        ``read_tap`` gives the hidden states [tokens, width] of all tokens at a tap.
        """
        self._owner = owner
        self._blocks = blocks
        self._generation = owner.num_decodes
        self._logits = logits
        self._embeddings = embeddings
        self._read_tap = read_tap
        self._taps: dict[int, F32] = {}

    def __len__(self) -> int:
        return len(self._logits)

    def logits(self, block: Block) -> F32:
        """Rows [block.num_outputs, vocab], read-only.

        Raises:
            RuntimeError: the runner has decoded again since.
        """
        return self._rows(self._logits, block)

    def embeddings(self, block: Block) -> F32:
        """Rows [block.num_outputs, width] of the final hidden state, read-only.

        Raises:
            RuntimeError: stale, or the runner was made without embeddings.
        """
        if self._embeddings is None:
            raise RuntimeError("this runner was made without embeddings")
        return self._rows(self._embeddings, block)

    def states(self, block: Block, tap: int) -> F32:
        """Hidden states [tokens of the block, width] at a tap of the runner, read-only.

        Raises:
            RuntimeError: stale, or the runner has no taps.
        """
        if self._generation != self._owner.num_decodes:
            raise _stale()
        if self._read_tap is None:
            raise RuntimeError("this runner was made without taps")
        rows = self._taps.get(tap)
        if rows is None:
            rows = self._taps[tap] = self._read_tap(tap)
        if len(self._blocks) == 1:
            return rows
        first = sum(len(one.token_ids) for one in self._before(block))
        return rows[first : first + len(block.token_ids)]

    def _rows(self, array: F32, block: Block) -> F32:
        if self._generation != self._owner.num_decodes:
            raise _stale()
        if len(self._blocks) == 1:
            return array
        first = sum(one.num_outputs for one in self._before(block))
        return array[first : first + block.num_outputs]

    def _before(self, block: Block) -> Sequence[Block]:
        """The blocks in front of one."""
        return self._blocks[: self._blocks.index(block)]


def _stale() -> RuntimeError:
    return RuntimeError("stale outputs: the runner has decoded again")
