"""NativeContext: a llama_context with the arrays its batches are filled through."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.errors import EngineError
from outrider.speculative.llama.library import (
    CACHE_TYPES,
    CONTEXT_DEFAULT,
    FLASH_ATTENTION,
    PARTIAL_STATE,
    extension,
    last_error,
    library,
    raise_kept_interrupt,
)
from outrider.speculative.llama.native_model import NativeModel
from outrider.speculative.llama.stop_flag import is_set_function

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]


class NativeContext:
    """A ``llama_context`` with the arrays its batches are filled through.

    The arrays ``token``, ``pos``, ``seq`` (pointers, see :meth:`seq_pointers`) and ``output``
    are numpy memory that the batch structure points at: filling a batch is slice assignment.
    """

    def __init__(
        self,
        model: NativeModel,
        *,
        n_ctx: int,
        n_batch: int,
        n_ubatch: int,
        n_seq: int,
        n_outputs: int,
        n_threads: int,
        n_threads_batch: int,
        flash_attn: str,
        cache_type_k: str,
        cache_type_v: str,
        embeddings: bool = False,
        kv_unified: bool = True,
        kind: int = CONTEXT_DEFAULT,
        other: NativeContext | None = None,
        n_rs_seq: int = 0,
        row_width: int = 0,
        full_window: bool = False,
    ) -> None:
        """Make a context; ``row_width`` > 0 lets batches carry float rows up to that width,
        ``other`` is a context whose tensors this one borrows, ``n_rs_seq`` asks for recurrent
        snapshots, ``full_window`` for sliding-window layers that keep every token.

        Raises:
            EngineError: llama.cpp refused.
        """
        lib = library()
        params = lib.llama_context_default_params()
        params.n_ctx = n_ctx
        params.n_batch = n_batch
        params.n_ubatch = n_ubatch
        params.n_seq_max = n_seq
        params.n_outputs_max = n_outputs
        params.n_threads = n_threads
        params.n_threads_batch = n_threads_batch
        params.flash_attn_type = FLASH_ATTENTION[flash_attn]
        params.type_k = CACHE_TYPES[cache_type_k]
        params.type_v = CACHE_TYPES[cache_type_v]
        params.embeddings = embeddings
        params.ctx_type = kind
        params.n_rs_seq = n_rs_seq
        if other is not None:
            params.ctx_other = other._handle
        params.kv_unified = kv_unified
        # C's default is a full-size cache; the command line's is the window
        params.swa_full = full_window
        params.no_perf = True
        self._lib = lib
        self._handle: Any = lib.llama_init_from_model(model.handle, params)
        raise_kept_interrupt()
        if not self._handle:
            raise EngineError(f"llama.cpp cannot make a context: {last_error()}")
        self._memory = lib.llama_get_memory(self._handle)
        self.n_ctx = int(lib.llama_n_ctx_seq(self._handle))
        self.n_batch = int(lib.llama_n_batch(self._handle))
        self.vocab_size = model.vocab_size
        self.n_embd_out = model.n_embd_out
        self.n_rs_seq = int(lib.llama_n_rs_seq(self._handle))
        self._stop = model.stop
        self._get_logits = extension("get_logits")
        self._views: dict[tuple[int, int, int], F32] = {}
        self._allocate_batch(lib, n_seq)
        self._row_floats: F32 = np.zeros(self.n_batch * row_width, np.float32)

    def _allocate_batch(self, lib: Any, n_seq: int) -> None:
        size = self.n_batch
        self.token: I32 = np.zeros(size, np.int32)
        self.pos: I32 = np.zeros(size, np.int32)
        self.output: NDArray[np.int8] = np.zeros(size, np.int8)
        self.seq: NDArray[np.uint64] = np.zeros(size, np.uint64)
        self._one_seq = np.ones(size, np.int32)
        self._seq_ids = np.arange(n_seq, dtype=np.int32)
        self._first_seq_pointer = int(self._seq_ids.ctypes.data)
        self._batch = lib.llama_batch()
        for name, array in (
            ("token", self.token),
            ("pos", self.pos),
            ("n_seq_id", self._one_seq),
            ("seq_id", self.seq),
            ("logits", self.output),
        ):
            setattr(self._batch, name, _pointer(lib.llama_batch, name, array))
        self._content = (True, False)

    def seq_pointer(self, seq_id: int) -> int:
        """Address of the int32 that holds ``seq_id``, as the batch's ``seq`` array wants it."""
        return self._first_seq_pointer + 4 * seq_id

    def rows(self, width: int) -> F32:
        """The array [n_batch, width] of a batch's float rows; one memory for every width."""
        return self._row_floats[: self.n_batch * width].reshape(self.n_batch, width)

    def close(self) -> None:
        if self._handle:
            self._lib.llama_free(self._handle)
            self._handle = None

    def decode(
        self,
        num_tokens: int,
        *,
        tokens: bool = True,
        rows: bool = False,
        can_stop: bool = False,
    ) -> int:
        """Decode the first ``num_tokens`` entries of the arrays; llama_decode's return code.

        An entry is its token, its float row (see :meth:`rows`), or both. With ``can_stop`` the
        model's stop flag breaks it off, where the backend can.
        """
        if self._content != (tokens, rows):
            self._set_content(tokens, rows)
        self._batch.n_tokens = num_tokens
        if can_stop:
            self._obey_stop(True)
        try:
            return int(self._lib.llama_decode(self._handle, self._batch))
        finally:
            if can_stop:
                self._obey_stop(False)

    def encode(self, num_rows: int) -> int:
        """Run the encoder on the first ``num_rows`` float rows; llama_encode's return code."""
        self._set_content(tokens=False, rows=True)
        self._batch.n_tokens = num_rows
        # the encoder ignores positions, the batch check does not: NULL always fits
        self._batch.pos = None
        code = int(self._lib.llama_encode(self._handle, self._batch))
        self._batch.pos = _pointer(self._lib.llama_batch, "pos", self.pos)
        return code

    def _obey_stop(self, obey: bool) -> None:
        callback = self._lib.ggml_abort_callback
        function = ctypes.cast(is_set_function(), callback) if obey else callback()
        self._lib.llama_set_abort_callback(self._handle, function, self._stop.address)

    def _set_content(self, tokens: bool, rows: bool) -> None:
        batch_type = self._lib.llama_batch
        self._batch.token = _pointer(batch_type, "token", self.token) if tokens else None
        self._batch.embd = _pointer(batch_type, "embd", self._row_floats) if rows else None
        self._content = (tokens, rows)

    def set_causal(self, causal: bool) -> None:
        self._lib.llama_set_causal_attn(self._handle, causal)

    def tap_layer(self, layer: int) -> None:
        """Have the input of ``layer`` kept for every token of a decode."""
        extension("set_layer")(self._handle, layer, True)

    def tap_hidden(self, *, outputs_only: bool) -> None:
        """Have the hidden states that NextN heads read kept, for outputs or for all tokens."""
        extension("set_hidden")(self._handle, True, outputs_only)

    def layer_rows(self, layer: int, num_tokens: int, width: int) -> F32:
        """A view [num_tokens, width] of a tapped layer's input in the last decode."""
        return self._view(extension("get_layer")(self._handle, layer), num_tokens, width)

    def hidden_rows(self, num_rows: int, width: int) -> F32:
        """A view [num_rows, width] of the hidden states of the last decode or encode."""
        return self._view(extension("get_hidden")(self._handle), num_rows, width)

    def set_head(self, offset: int) -> None:
        """Run the NextN block ``offset`` from now on."""
        extension("set_head")(self._handle, offset)

    def save_state(self, seq_id: int) -> NDArray[np.uint8]:
        """What cannot be cut back of a sequence: recurrent and sliding-window parts."""
        lib = self._lib
        size = lib.llama_state_seq_get_size_ext(self._handle, seq_id, PARTIAL_STATE)
        state = np.empty(size, np.uint8)
        pointer = state.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
        written = lib.llama_state_seq_get_data_ext(
            self._handle, pointer, size, seq_id, PARTIAL_STATE
        )
        if written != size:
            raise EngineError(f"llama.cpp saved {written} of {size} bytes of a sequence's state")
        return state

    def restore_state(self, seq_id: int, state: NDArray[np.uint8]) -> bool:
        """Put a saved state back; False if llama.cpp refuses it."""
        pointer = state.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
        read = self._lib.llama_state_seq_set_data_ext(
            self._handle, pointer, len(state), seq_id, PARTIAL_STATE
        )
        return int(read) == len(state)

    def synchronize(self) -> None:
        self._lib.llama_synchronize(self._handle)

    def logits(self, num_rows: int) -> F32:
        """A view [num_rows, vocab] of the last decode's rows, in batch order; synchronises.

        Not to be changed; but numpy's argmax would copy what cannot be.
        """
        address = self._get_logits(self._handle)
        return self._view(address, num_rows, self.vocab_size, writeable=True)

    def embeddings(self, num_rows: int) -> F32:
        """A view [num_rows, width] of the last decode's embeddings; synchronises."""
        return self._view(extension("get_embeddings")(self._handle), num_rows, self.n_embd_out)

    def logits_of(self, batch_index: int) -> F32:
        """One row by llama.cpp's own index, for checks."""
        address = extension("get_logits_of")(self._handle, batch_index)
        row: F32 = self._view(address, 1, self.vocab_size)[0]
        return row

    def _view(self, address: int | None, rows: int, width: int, *, writeable: bool = False) -> F32:
        if not address:
            raise EngineError("llama.cpp returned no outputs for this decode")
        # llama.cpp reuses its buffer: a view of the same memory need not be made again
        view = self._views.get((address, rows, width))
        if view is None:
            memory = (ctypes.c_char * (rows * width * 4)).from_address(address)
            view = np.frombuffer(memoryview(memory), np.float32).reshape(rows, width)
            view.flags.writeable = writeable
            self._views[address, rows, width] = view
        return view

    def remove(self, seq_id: int, start: int) -> bool:
        """Drop the cells of ``seq_id`` from position ``start`` on; False if it cannot."""
        return bool(self._lib.llama_memory_seq_rm(self._memory, seq_id, start, -1))

    def copy(self, source: int, target: int, length: int) -> None:
        """Let ``target``, which is empty, have the first ``length`` tokens of ``source`` too.

        Only in a unified cache: llama.cpp asserts that whole streams are copied otherwise.
        """
        self._lib.llama_memory_seq_cp(self._memory, source, target, 0, length)

    def first_position(self, seq_id: int) -> int:
        return int(self._lib.llama_memory_seq_pos_min(self._memory, seq_id))

    def last_position(self, seq_id: int) -> int:
        return int(self._lib.llama_memory_seq_pos_max(self._memory, seq_id))


def _pointer(batch_type: Any, name: str, array: NDArray[Any]) -> Any:
    """The address of ``array`` as the batch's field ``name`` wants it."""
    return ctypes.cast(array.ctypes.data, dict(batch_type._fields_)[name])
