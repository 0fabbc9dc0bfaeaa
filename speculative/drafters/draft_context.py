"""DraftContext: a context of a drafter that reads the target's hidden states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.errors import CacheFullError, EngineError
from outrider.speculative.llama import NativeContext, last_error

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]

_NO_SLOT = 1


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Consecutive entries of one sequence: tokens [n], float rows [n, width], or both."""

    seq_id: int
    start_pos: int
    token_ids: I32 | None = None
    rows: F32 | None = None

    def __len__(self) -> int:
        content = self.token_ids if self.token_ids is not None else self.rows
        assert content is not None
        return len(content)

    def slice(self, start: int, end: int) -> Part:
        """The entries ``start`` .. ``end`` - 1."""
        return Part(
            self.seq_id,
            self.start_pos + start,
            None if self.token_ids is None else self.token_ids[start:end],
            None if self.rows is None else self.rows[start:end],
        )


class DraftContext:
    """Decodes parts with all rows as outputs or none.

    These graphs compute logits and hidden states for every entry and llama.cpp then copies the
    first rows that were asked for: a batch of both kinds would give wrong rows. What llama.cpp
    asserts on is checked here.
    """

    def __init__(self, native: NativeContext, hidden_width: int, max_length: int) -> None:
        """``max_length``: no drafts for longer texts."""
        self.max_length = min(max_length, native.n_ctx)
        self._native = native
        self._hidden_width = hidden_width
        self._ends: dict[int, int] = {}

    @property
    def n_batch(self) -> int:
        return self._native.n_batch

    def end(self, seq_id: int) -> int:
        """The position after the last cell of a sequence."""
        return self._ends.get(seq_id, 0)

    def decode(self, parts: Sequence[Part], *, outputs: bool) -> None:
        """Append the parts; with ``outputs`` every entry gets a row of logits.

        Raises:
            EngineError: llama.cpp failed, or the context is full.
        """
        native, end = self._native, 0
        kinds = {(part.token_ids is not None, part.rows is not None) for part in parts}
        assert len(kinds) == 1, "all entries have the same content"
        tokens, rows = kinds.pop()
        for part in parts:
            start, end = end, end + len(part)
            assert end <= native.n_batch, f"{end} entries, a batch takes {native.n_batch}"
            stop = part.start_pos + len(part)
            assert self.end(part.seq_id) in (0, part.start_pos), "an empty sequence, or its end"
            if stop > native.n_ctx:
                raise EngineError(f"the draft context is full ({native.n_ctx:,} tokens)")
            if part.token_ids is not None:
                native.token[start:end] = part.token_ids
            if part.rows is not None:
                native.rows(part.rows.shape[1])[start:end] = part.rows
            native.pos[start:end] = np.arange(part.start_pos, stop, dtype=np.int32)
            native.seq[start:end] = native.seq_pointer(part.seq_id)
        native.output[:end] = outputs
        code = native.decode(end, tokens=tokens, rows=rows)
        if code == _NO_SLOT:
            raise CacheFullError(f"the draft cache has no room for {end} more tokens")
        if code != 0:
            raise EngineError(f"the drafter failed to decode (code {code}): {last_error()}")
        for part in parts:
            self._ends[part.seq_id] = part.start_pos + len(part)

    def logits(self, num_rows: int) -> F32:
        """A view [num_rows, vocab] of the last decode's rows, valid until the next."""
        return self._native.logits(num_rows)

    def hidden(self, num_rows: int) -> F32:
        """A view [num_rows, hidden width] of the last decode's rows, valid until the next."""
        return self._native.hidden_rows(num_rows, self._hidden_width)

    def encode(self, rows: F32) -> F32:
        """The encoder's rows [n, hidden width] for ``rows`` [n, width], as a copy."""
        native = self._native
        encoded = np.empty((len(rows), self._hidden_width), np.float32)
        for start in range(0, len(rows), native.n_batch):
            part = rows[start : start + native.n_batch]
            native.rows(rows.shape[1])[: len(part)] = part
            native.output[: len(part)] = 1
            native.seq[: len(part)] = native.seq_pointer(0)
            code = native.encode(len(part))
            if code != 0:
                raise EngineError(f"the drafter failed to encode (code {code}): {last_error()}")
            encoded[start : start + len(part)] = native.hidden_rows(len(part), self._hidden_width)
        return encoded

    def truncate(self, seq_id: int, length: int) -> None:
        """Keep the cells before position ``length``; 0 empties the sequence."""
        if length < self.end(seq_id):
            self._native.remove(seq_id, length)
            self._ends[seq_id] = length

    def set_head(self, offset: int) -> None:
        self._native.set_head(offset)

    def close(self) -> None:
        self._native.close()
