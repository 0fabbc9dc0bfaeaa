"""Models without weights: made-up rows of logits behind the Runner protocol."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.batch_outputs import BatchOutputs, Block
from outrider.speculative.errors import CacheFullError, EngineError
from outrider.speculative.runner import Rollback

F32 = NDArray[np.float32]

Rows = Callable[[Sequence[int]], F32]
"""All tokens so far to the logits of the next one."""


def markov(vocab_size: int, order: int, seed: int, spread: float = 2.0) -> Rows:
    """A table with a random row for each of the last ``order`` tokens (0 before the first)."""
    generator = np.random.default_rng(seed)
    table = generator.normal(0, spread, (vocab_size,) * order + (vocab_size,)).astype(np.float32)
    table.flags.writeable = False

    def rows(tokens: Sequence[int]) -> F32:
        context = ([0] * order + list(tokens[-order:]))[-order:]
        row: F32 = table[tuple(context)]
        return row

    return rows


def remembering(vocab_size: int, seed: int, spread: float = 2.0) -> Rows:
    """A random row for each whole sequence: one wrong token anywhere in a cache shows."""
    count = 4099
    table = np.random.default_rng(seed).normal(0, spread, (count, vocab_size)).astype(np.float32)
    table.flags.writeable = False

    def rows(tokens: Sequence[int]) -> F32:
        state = 0
        for token in tokens:
            state = (state * 1009 + token + 1) % count
        row: F32 = table[state]
        return row

    return rows


def blurred(rows: Rows, vocab_size: int, seed: int, spread: float) -> Rows:
    """A drafter for ``rows``: the same logits with fixed noise by the last token."""
    noise = markov(vocab_size, 1, seed, spread)
    return lambda tokens: np.asarray(rows(tokens) + noise(tokens), np.float32)


def reciting(rows: Rows, text: Sequence[int]) -> Rows:
    """``rows``, but the best token after each beginning of ``text`` is the next one of it."""
    known = tuple(text)

    def recited(tokens: Sequence[int]) -> F32:
        row, length = rows(tokens), len(tokens)
        if length < len(known) and tuple(tokens) == known[:length]:
            row = row.copy()
            row[known[length]] = row.max() + 1
        return row

    return recited


class ToyTokenizer:
    """Token i prints ``pieces[i]``; ``end_ids`` end a text and print nothing."""

    def __init__(self, pieces: Sequence[bytes], end_ids: Collection[int] = ()) -> None:
        self._pieces = tuple(pieces)
        self.end_ids = tuple(sorted(end_ids))
        self.suppressed_ids: tuple[int, ...] = ()
        self.size = len(self._pieces)

    def piece(self, token_id: int) -> bytes:
        return b"" if self.is_end(token_id) else self._pieces[token_id]

    def written(self, token_id: int) -> bytes:
        return self._pieces[token_id]

    def encode_bytes(self, data: bytes) -> list[int]:
        return self.encode(data.decode("utf-8", "surrogateescape"), parse_special=False)

    def text(self, token_id: int) -> str:
        return self._pieces[token_id].decode("utf-8", "replace")

    def encode(self, text: str, *, parse_special: bool) -> list[int]:
        """The longest piece that fits, from the left; end tokens only if they are parsed."""
        data, token_ids = text.encode("utf-8", "surrogateescape"), list[int]()
        while data:
            fitting = [
                i
                for i, piece in enumerate(self._pieces)
                if piece and data.startswith(piece) and (parse_special or not self.is_end(i))
            ]
            token_ids.append(max(fitting, key=lambda i: len(self._pieces[i])))
            data = data[len(self._pieces[token_ids[-1]]) :]
        return token_ids

    def is_end(self, token_id: int) -> bool:
        return token_id in self.end_ids


class ToyRunner:
    """Keeps the tokens of its sequences and answers with ``rows`` of them.

    It refuses what the real one refuses. ``failing`` are the decodes, counted from 1, that fail
    and leave the caches as they were; all caches together hold ``n_cells`` tokens.
    """

    rollback = Rollback.TRUNCATE
    can_share = True

    def __init__(
        self,
        rows: Rows,
        vocab_size: int,
        *,
        n_ctx: int = 256,
        n_seq: int = 1,
        n_batch: int = 128,
        max_outputs: int = 32,
        failing: Collection[int] = (),
        n_cells: int = 1 << 20,
    ) -> None:
        self.n_ctx = n_ctx
        self.n_batch = n_batch
        self.max_outputs = max_outputs
        self.vocab_size = vocab_size
        self.num_decodes = 0
        self.is_closed = False
        self.caches: list[list[int]] = [[] for _ in range(n_seq)]
        self._rows = rows
        self._failing = frozenset(failing)
        self._n_cells = n_cells

    def cached_length(self, seq_id: int) -> int:
        return len(self.caches[seq_id])

    def decode(self, blocks: Sequence[Block]) -> BatchOutputs:
        self._check(blocks)
        self.num_decodes += 1
        if self.num_decodes in self._failing:
            raise EngineError(f"decode {self.num_decodes} was told to fail")
        num_new = sum(len(block.token_ids) for block in blocks)
        if sum(map(len, self.caches)) + num_new > self._n_cells:
            raise CacheFullError("no room")
        rows = []
        for block in blocks:
            cache = self.caches[block.seq_id]
            for i, token in enumerate(block.token_ids.tolist()):
                cache.append(token)
                if i >= len(block.token_ids) - block.num_outputs:
                    rows.append(self._rows(cache))
        logits = np.array(rows, np.float32).reshape(len(rows), self.vocab_size)
        logits.flags.writeable = False
        return BatchOutputs(self, blocks, logits)

    def truncate(self, seq_id: int, length: int) -> bool:
        assert length >= 0
        del self.caches[seq_id][length:]
        return True

    def share(self, source: int, target: int, length: int) -> bool:
        assert source != target
        assert 0 < length <= len(self.caches[source])
        self.caches[target] = self.caches[source][:length]
        return True

    def close(self) -> None:
        self.is_closed = True

    def _check(self, blocks: Sequence[Block]) -> None:
        assert not self.is_closed
        assert 0 < sum(len(block.token_ids) for block in blocks) <= self.n_batch
        assert sum(block.num_outputs for block in blocks) <= self.max_outputs
        assert len({block.seq_id for block in blocks}) == len(blocks)
        for block in blocks:
            count, cached = len(block.token_ids), len(self.caches[block.seq_id])
            assert count > 0
            assert 0 <= block.num_outputs <= count
            assert block.start_pos == cached
            assert cached + count <= self.n_ctx
            assert block.token_ids.min() >= 0
            assert block.token_ids.max() < self.vocab_size
