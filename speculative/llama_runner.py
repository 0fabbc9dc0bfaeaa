"""LlamaRunner: a llama.cpp context behind the Runner protocol."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.batch_outputs import F32, I32, BatchOutputs, Block
from outrider.speculative.errors import CacheFullError, DecodeStoppedError, EngineError
from outrider.speculative.llama import NativeContext, last_error
from outrider.speculative.model import Model
from outrider.speculative.runner import HIDDEN, Rollback
from outrider.speculative.settings import ModelSettings
from outrider.speculative.threads import thread_count

_NO_SLOT, _STOPPED = 1, 2  # what llama_decode returns
_TAPPED_BATCH = 512


@dataclass(frozen=True, slots=True, eq=False)
class _Checkpoint:
    """The state of a sequence before the ``token_ids`` [n] of a block."""

    start_pos: int
    token_ids: I32
    state: NDArray[np.uint8]


class LlamaRunner:
    """One context of a model: ``n_seq`` sequences in one unified cache.

    Everything llama.cpp asserts on (outputs, batch size, token ids, positions) is checked here,
    because a failed assert ends the interpreter.
    """

    def __init__(
        self,
        model: Model,
        settings: ModelSettings,
        *,
        n_ctx: int,
        n_seq: int = 1,
        max_outputs: int = 1,
        embeddings: bool = False,
        taps: Collection[int] = (),
        num_snapshots: int = 0,
    ) -> None:
        """``max_outputs`` rows at most come out of one decode; the default of llama.cpp would
        reserve n_batch rows of the whole vocabulary. ``taps`` are hidden states to keep: layers
        (their input), or :data:`HIDDEN`. ``num_snapshots`` are asked of recurrent layers.

        Raises:
            EngineError: llama.cpp cannot make the context (memory, cache types).
        """
        # tapped rows are kept for every token of a batch
        batch = min(settings.batch_size, n_ctx, _TAPPED_BATCH if taps else n_ctx)
        self.max_outputs = max(max_outputs, n_seq)
        if embeddings:
            self.max_outputs = batch
        batch = max(batch, self.max_outputs)
        threads = thread_count(settings.threads)
        self.model = model
        self.settings = settings
        self.num_snapshots = num_snapshots
        self._is_recurrent, self._window = model.native.is_recurrent, model.native.window
        self._embeddings = embeddings
        self._n_seq = n_seq
        self._context = NativeContext(
            model.native,
            n_ctx=n_ctx,
            n_batch=batch,
            n_ubatch=min(settings.ubatch_size, batch),
            n_seq=n_seq,
            n_outputs=self.max_outputs,
            n_threads=threads,
            n_threads_batch=settings.threads_batch or threads,
            flash_attn=settings.flash_attn,
            cache_type_k=settings.cache_type_k,
            cache_type_v=settings.cache_type_v,
            kv_unified=settings.kv_unified,
            embeddings=embeddings,
            n_rs_seq=num_snapshots if self._is_recurrent else 0,
        )
        self.taps = frozenset(taps)
        native = model.native
        self._widths = {tap: native.n_embd_out if tap == HIDDEN else native.n_embd for tap in taps}
        for tap in self.taps:
            self._open_tap(tap)
        self.n_ctx = min(self._context.n_ctx, n_ctx)
        self.n_batch = self._context.n_batch
        self.vocab_size = model.vocabulary.size
        self.rollback = self._rollback()
        self.num_decodes = 0
        self._positions = np.arange(self.n_ctx, dtype=np.int32)
        self._no_rows = np.empty((0, self.vocab_size), np.float32)
        self._layout: list[tuple[int, int, int]] = []
        self._lengths = [0] * n_seq
        self._checkpoints: dict[int, _Checkpoint] = {}
        # tokens that snapshots can take back; llama.cpp would hand out older ones without a word
        self._reach = [0] * n_seq
        self._has_snapshots = False  # of the blocks of the last decode

    @property
    def native(self) -> NativeContext:
        """The context itself, for drafters that borrow its tensors."""
        return self._context

    def cached_length(self, seq_id: int) -> int:
        return self._lengths[seq_id]

    def decode(self, blocks: Sequence[Block], *, can_stop: bool = True) -> BatchOutputs:
        # what only reads text can be broken off, steps of an answer are short
        num_tokens, num_outputs = self._check(blocks)
        if self._is_recurrent:
            self._save(blocks, num_tokens)
        self._fill(blocks)
        context = self._context
        self.num_decodes += 1
        code = context.decode(num_tokens, can_stop=can_stop and num_outputs < num_tokens)
        if code != 0:
            self._restore(blocks, code)
            raise _failure(code, num_tokens)
        for block in blocks:
            self._lengths[block.seq_id] += len(block.token_ids)
            if self._has_snapshots:
                self._reach[block.seq_id] = min(context.n_rs_seq, len(block.token_ids) - 1)
        if num_outputs:
            rows = context.logits(num_outputs)
        else:
            context.synchronize()
            rows = self._no_rows
        hidden = context.embeddings(num_outputs) if self._embeddings else None
        read_tap = partial(self._tap, num_tokens) if self.taps else None
        return BatchOutputs(self, blocks, rows, hidden, read_tap)

    def _fill(self, blocks: Sequence[Block]) -> None:
        """Write the blocks into the batch; where tokens go stays from one step to the next."""
        context = self._context
        layout = [(block.seq_id, len(block.token_ids), block.num_outputs) for block in blocks]
        is_new, self._layout = layout != self._layout, layout
        end = 0
        for block in blocks:
            start, end = end, end + len(block.token_ids)
            position = block.start_pos
            context.token[start:end] = block.token_ids
            context.pos[start:end] = self._positions[position : position + end - start]
            if is_new:
                context.seq[start:end] = context.seq_pointer(block.seq_id)
                context.output[start:end] = self._embeddings
                context.output[end - block.num_outputs : end] = 1

    def truncate(self, seq_id: int, length: int) -> bool:
        if length >= self._lengths[seq_id]:
            return True
        if length < 0:
            raise ValueError(f"cannot keep {length} tokens")
        kept = length > 0 and self._has_window(seq_id, length) and self._cut(seq_id, length)
        if not kept:
            self._context.remove(seq_id, 0)
        self._lengths[seq_id] = length if kept else 0
        return kept or length == 0

    @property
    def can_share(self) -> bool:
        # taps: nobody has the hidden states for the other sequence
        return self.settings.kv_unified and not (self._is_recurrent or self.taps)

    def share(self, source: int, target: int, length: int) -> bool:
        if not (self.can_share and self._has_window(source, length)):
            return False
        self.truncate(target, 0)
        self._context.copy(source, target, length)
        self._lengths[target] = length
        return True

    def close(self) -> None:
        self.num_decodes += 1  # outputs point into the context
        self._context.close()

    def _rollback(self) -> Rollback:
        if not self._is_recurrent:
            return Rollback.TRUNCATE
        return Rollback.BOUNDED if self._context.n_rs_seq else Rollback.CHECKPOINT

    def _open_tap(self, tap: int) -> None:
        if tap == HIDDEN:
            self._context.tap_hidden(outputs_only=False)
        else:
            self._context.tap_layer(tap)

    def _tap(self, num_tokens: int, tap: int) -> F32:
        if tap == HIDDEN:
            return self._context.hidden_rows(num_tokens, self._widths[tap])
        return self._context.layer_rows(tap, num_tokens, self._widths[tap])

    def _save(self, blocks: Sequence[Block], num_tokens: int) -> None:
        """Checkpoint the sequences whose block may be cut back further than snapshots reach.

        Blocks of different lengths go to several microbatches. A later one may move the state
        of a sequence to another cell and leave its snapshots behind
        (llama-memory-recurrent.cpp, find_slot): those of an earlier one are no good then.
        """
        is_whole = len({len(block.token_ids) for block in blocks}) == 1
        is_whole &= num_tokens <= self.settings.ubatch_size
        self._has_snapshots = is_whole or len(blocks) == 1
        reach = self._context.n_rs_seq if self._has_snapshots else 0
        for block in blocks:
            self._reach[block.seq_id] = 0
            self._checkpoints.pop(block.seq_id, None)
            if block.num_outputs > 1 and block.num_outputs - 1 > reach:
                state = self._context.save_state(block.seq_id)
                self._checkpoints[block.seq_id] = _Checkpoint(
                    block.start_pos, block.token_ids.copy(), state
                )

    def _cut(self, seq_id: int, length: int) -> bool:
        """Drop a tail, from snapshots or from a checkpoint where there are recurrent layers."""
        if not self._is_recurrent:
            return self._context.remove(seq_id, length)
        if self._lengths[seq_id] - length <= self._reach[seq_id]:
            self._reach[seq_id] = 0  # once between two decodes
            return self._context.remove(seq_id, length)
        checkpoint = self._checkpoints.get(seq_id)
        if checkpoint is None or length < checkpoint.start_pos:
            return False
        start = checkpoint.start_pos
        if not self._context.restore_state(seq_id, checkpoint.state):
            return False
        self._context.remove(seq_id, start)
        self._lengths[seq_id] = start
        if length > start:
            # as context: no rows, no coins, no statistics; the first verdict stands
            kept = checkpoint.token_ids[: length - start]
            self.decode([Block(seq_id, kept, start, num_outputs=0)], can_stop=False)
        return True

    def _has_window(self, seq_id: int, length: int) -> bool:
        """False if a sliding-window layer has overwritten what ``length`` tokens need."""
        window = self._window
        return window == 0 or self._context.first_position(seq_id) <= max(0, length - window)

    def _check(self, blocks: Sequence[Block]) -> tuple[int, int]:
        """Refuse what llama.cpp would assert on; (tokens, outputs) of the batch."""
        num_tokens = num_outputs = 0
        if len(blocks) > 1 and len({block.seq_id for block in blocks}) < len(blocks):
            raise ValueError("two blocks of the same sequence")
        for block in blocks:
            count = len(block.token_ids)
            if not 0 <= block.seq_id < self._n_seq:
                raise ValueError(f"sequence {block.seq_id}, there are 0..{self._n_seq - 1}")
            if count == 0 or not 0 <= block.num_outputs <= count:
                raise ValueError(f"{block.num_outputs} outputs of {count} tokens")
            if self._embeddings and block.num_outputs != count:
                raise ValueError("with embeddings every token is an output")
            if block.start_pos != self._lengths[block.seq_id]:
                raise ValueError(
                    f"sequence {block.seq_id} holds {self._lengths[block.seq_id]} tokens,"
                    f" the block starts at {block.start_pos}"
                )
            if block.start_pos + count > self.n_ctx:
                raise ValueError(f"{block.start_pos + count} tokens, the context has {self.n_ctx}")
            token_ids = block.token_ids.tolist()
            if min(token_ids) < 0 or max(token_ids) >= self.vocab_size:
                raise ValueError(f"token id out of 0..{self.vocab_size - 1}")
            num_tokens += count
            num_outputs += block.num_outputs
        if not 0 < num_tokens <= self.n_batch:
            raise ValueError(f"{num_tokens} tokens, a batch takes 1..{self.n_batch}")
        if num_outputs > self.max_outputs:
            raise ValueError(f"{num_outputs} outputs, this runner gives {self.max_outputs}")
        return num_tokens, num_outputs

    def _restore(self, blocks: Sequence[Block], code: int) -> None:
        """Take back what a failed decode may have left in the cache.

        Microbatches that were done have written over what a window has left behind, and into
        recurrent states, whose snapshots are then no good: such a sequence begins anew.
        """
        is_mixed = self._is_recurrent and code != _NO_SLOT
        for block in blocks:
            seq_id, length = block.seq_id, self._lengths[block.seq_id]
            can_keep = not is_mixed and (code == _NO_SLOT or self._has_window(seq_id, length))
            if not (can_keep and self._context.remove(seq_id, length)):
                self._context.remove(seq_id, 0)
                self._lengths[seq_id] = 0


def _failure(code: int, num_tokens: int) -> EngineError:
    if code == _NO_SLOT:
        return CacheFullError(
            f"the cache has no room for {num_tokens} more tokens;"
            " give a larger --ctx-size or fewer slots"
        )
    if code == _STOPPED:
        return DecodeStoppedError(f"reading {num_tokens} tokens was broken off")
    return EngineError(
        f"llama.cpp failed to decode {num_tokens} tokens (code {code}): {last_error()}"
    )
