"""Every llama.cpp symbol that is called, and nothing else of llama.cpp.

Thin wrappers with Python types. They translate, count and free; what llama.cpp would assert
on is checked by the callers (``model.py``, ``llama_runner.py``) before a call is made, since a
failed assert ends the interpreter. The library is loaded at first use, not at import.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import logging
import os
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.errors import EngineError

REQUIRED_VERSION = "0.3.36"

# llama.h: enum values this module passes or reads
FLASH_ATTENTION = {"auto": -1, "off": 0, "on": 1}
CACHE_TYPES = {
    "f32": 0,
    "f16": 1,
    "bf16": 30,
    "q4_0": 2,
    "q4_1": 3,
    "q5_0": 6,
    "q5_1": 7,
    "q8_0": 8,
    "iq4_nl": 20,
}
ATTR_UNKNOWN, ATTR_CONTROL = 1 << 0, 1 << 3
_ALL_LAYERS = 0x7FFFFFFF

_SYMBOLS = (
    "llama_backend_init",
    "llama_context_default_params",
    "llama_decode",
    "llama_free",
    "llama_get_embeddings",
    "llama_get_logits",
    "llama_get_logits_ith",
    "llama_get_memory",
    "llama_init_from_model",
    "llama_log_set",
    "llama_memory_clear",
    "llama_memory_seq_pos_max",
    "llama_memory_seq_pos_min",
    "llama_memory_seq_rm",
    "llama_model_chat_template",
    "llama_model_default_params",
    "llama_model_free",
    "llama_model_get_vocab",
    "llama_model_has_decoder",
    "llama_model_has_encoder",
    "llama_model_is_hybrid",
    "llama_model_is_recurrent",
    "llama_model_load_from_file",
    "llama_model_n_ctx_train",
    "llama_model_n_embd_out",
    "llama_model_n_swa",
    "llama_n_batch",
    "llama_n_ctx_seq",
    "llama_set_abort_callback",
    "llama_supports_gpu_offload",
    "llama_synchronize",
    "llama_token_to_piece",
    "llama_tokenize",
    "llama_vocab_bos",
    "llama_vocab_eos",
    "llama_vocab_get_add_bos",
    "llama_vocab_get_attr",
    "llama_vocab_get_text",
    "llama_vocab_is_eog",
    "llama_vocab_n_tokens",
)

_log = logging.getLogger("outrider.llama")
# ggml.h (the bindings' own table is that of an older revision)
_LEVELS = {1: logging.DEBUG, 2: logging.INFO, 3: logging.WARNING, 4: logging.ERROR}
_last_error = ""
_log_callback: Any = None  # llama.cpp keeps a raw pointer: the object must outlive every call

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]


@functools.cache
def library() -> Any:
    """Load and check the native library once.

    Raises:
        EngineError: the installed llama-cpp-python cannot be used, and which one is needed.
    """
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")  # an abort must not start a debugger
    advice = f'install it with: pip install "llama-cpp-python=={REQUIRED_VERSION}"'
    try:
        version = metadata.version("llama-cpp-python")
        from llama_cpp import llama_cpp
    except metadata.PackageNotFoundError:
        raise EngineError(f"llama-cpp-python is not installed; {advice}") from None
    except (OSError, RuntimeError, AttributeError) as error:
        raise EngineError(f"the llama.cpp library does not load ({error}); {advice}") from error
    missing = [name for name in _SYMBOLS if not hasattr(llama_cpp, name)]
    if missing or version != REQUIRED_VERSION:
        lacks = f" (it lacks {', '.join(missing)})" if missing else ""
        raise EngineError(f"llama-cpp-python {version} is not supported{lacks}; {advice}")
    _route_log(llama_cpp)
    llama_cpp.llama_backend_init()
    return llama_cpp


def _route_log(llama_cpp: Any) -> None:
    """Send native log lines to Python logging, never to the terminal."""
    global _log_callback
    level_of_line = logging.INFO

    def on_line(level: int, text: bytes, _user_data: object) -> None:
        nonlocal level_of_line
        global _last_error
        level_of_line = _LEVELS.get(level, level_of_line)  # 5 continues the line before
        line = text.decode("utf-8", "replace").rstrip()
        if line and level_of_line >= logging.ERROR:
            _last_error = line
        if line and _log.isEnabledFor(level_of_line):
            _log.log(level_of_line, "%s", line)

    _log_callback = llama_cpp.llama_log_callback(on_line)
    llama_cpp.llama_log_set(_log_callback, None)
    # a native thread may log while the interpreter goes down; Python must not be called then
    harmless = ctypes.cast(ctypes.pythonapi.Py_IsInitialized, llama_cpp.llama_log_callback)
    atexit.register(llama_cpp.llama_log_set, harmless, None)


def last_error() -> str:
    """Return the last native error line, for a message."""
    return _last_error


def supports_gpu() -> bool:
    """True if this build of llama.cpp can offload layers to a GPU."""
    return bool(library().llama_supports_gpu_offload())


class NativeModel:
    """A loaded ``llama_model`` and its vocabulary."""

    def __init__(
        self,
        path: Path,
        gpu_layers: int | None,
        progress: Callable[[float], bool] | None,
    ) -> None:
        """Load ``path``; ``gpu_layers`` None lets llama.cpp offload everything it can.

        ``progress`` gets 0..1 and returns False to stop.

        Raises:
            EngineError: llama.cpp refused the file; the message carries its reason.
        """
        lib = library()
        params = lib.llama_model_default_params()
        params.n_gpu_layers = _ALL_LAYERS if gpu_layers is None else gpu_layers
        callback = None
        if progress is not None:
            callback = lib.llama_progress_callback(lambda value, _data: bool(progress(value)))
            params.progress_callback = callback
        self._lib = lib
        self._handle = lib.llama_model_load_from_file(os.fsencode(path), params)
        if not self._handle:
            raise EngineError(f"{path}: llama.cpp cannot load this model: {last_error()}")
        self._vocab = lib.llama_model_get_vocab(self._handle)
        self.vocab_size = int(lib.llama_vocab_n_tokens(self._vocab))

    @property
    def handle(self) -> Any:
        return self._handle

    def close(self) -> None:
        if self._handle:
            self._lib.llama_model_free(self._handle)
            self._handle = None

    @property
    def n_ctx_train(self) -> int:
        return int(self._lib.llama_model_n_ctx_train(self._handle))

    @property
    def n_embd_out(self) -> int:
        return int(self._lib.llama_model_n_embd_out(self._handle))

    @property
    def is_decoder(self) -> bool:
        """True if the model generates text by itself (no encoder is needed)."""
        lib = self._lib
        return bool(
            lib.llama_model_has_decoder(self._handle)
            and not lib.llama_model_has_encoder(self._handle)
        )

    @property
    def is_recurrent(self) -> bool:
        """True if a part of its memory cannot drop single tokens."""
        lib = self._lib
        return bool(
            lib.llama_model_is_recurrent(self._handle) or lib.llama_model_is_hybrid(self._handle)
        )

    @property
    def window(self) -> int:
        """Tokens a sliding-window layer sees; 0 if there is no such layer."""
        return int(self._lib.llama_model_n_swa(self._handle))

    @property
    def chat_template(self) -> str | None:
        raw = self._lib.llama_model_chat_template(self._handle, None)
        return raw.decode("utf-8", "replace") if raw else None

    @property
    def bos(self) -> int:
        return int(self._lib.llama_vocab_bos(self._vocab))

    @property
    def eos(self) -> int:
        return int(self._lib.llama_vocab_eos(self._vocab))

    @property
    def add_bos(self) -> bool:
        return bool(self._lib.llama_vocab_get_add_bos(self._vocab))

    def is_end(self, token_id: int) -> bool:
        return bool(self._lib.llama_vocab_is_eog(self._vocab, token_id))

    def attributes(self, token_id: int) -> int:
        return int(self._lib.llama_vocab_get_attr(self._vocab, token_id))

    def text(self, token_id: int) -> str:
        """The token as the vocabulary writes it (not what it prints)."""
        raw = self._lib.llama_vocab_get_text(self._vocab, token_id)
        return raw.decode("utf-8", "replace") if raw else ""

    def tokenize(self, text: bytes, *, parse_special: bool) -> list[int]:
        """Token ids of ``text``, without the tokens a model adds at either end."""
        size = len(text) + 8
        while True:
            buffer = (ctypes.c_int32 * size)()
            count = self._lib.llama_tokenize(
                self._vocab, text, len(text), buffer, size, False, parse_special
            )
            if count >= 0:
                return buffer[:count]
            size = -count

    def piece(self, token_id: int) -> bytes:
        """The bytes a token prints; empty for control tokens."""
        size = 64
        while True:
            buffer = ctypes.create_string_buffer(size)
            count = self._lib.llama_token_to_piece(self._vocab, token_id, buffer, size, 0, False)
            if count >= 0:
                return buffer.raw[:count]
            size = -count


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
        embeddings: bool,
    ) -> None:
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
        params.kv_unified = True
        # C's default is a full-size cache; the command line's is the window
        params.swa_full = False
        params.no_perf = True
        self._lib = lib
        self._handle = lib.llama_init_from_model(model.handle, params)
        if not self._handle:
            raise EngineError(f"llama.cpp cannot make a context: {last_error()}")
        self._memory = lib.llama_get_memory(self._handle)
        self.n_ctx = int(lib.llama_n_ctx_seq(self._handle))
        self.n_batch = int(lib.llama_n_batch(self._handle))
        self.vocab_size = model.vocab_size
        self.n_embd_out = model.n_embd_out
        self._views: dict[tuple[int, int, int], F32] = {}
        self._allocate_batch(lib, n_seq)

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
            field_type = dict(lib.llama_batch._fields_)[name]
            setattr(self._batch, name, ctypes.cast(array.ctypes.data, field_type))

    def seq_pointer(self, seq_id: int) -> int:
        """Address of the int32 that holds ``seq_id``, as the batch's ``seq`` array wants it."""
        return self._first_seq_pointer + 4 * seq_id

    def close(self) -> None:
        if self._handle:
            self._lib.llama_free(self._handle)
            self._handle = None

    def decode(self, num_tokens: int) -> int:
        """Decode the first ``num_tokens`` entries of the arrays; llama_decode's return code."""
        self._batch.n_tokens = num_tokens
        return int(self._lib.llama_decode(self._handle, self._batch))

    def synchronize(self) -> None:
        self._lib.llama_synchronize(self._handle)

    def logits(self, num_rows: int) -> F32:
        """A view [num_rows, vocab] of the last decode's rows, in batch order; synchronises."""
        return self._view(self._lib.llama_get_logits(self._handle), num_rows, self.vocab_size)

    def embeddings(self, num_rows: int) -> F32:
        """A view [num_rows, width] of the last decode's embeddings; synchronises."""
        return self._view(self._lib.llama_get_embeddings(self._handle), num_rows, self.n_embd_out)

    def logits_of(self, batch_index: int) -> F32:
        """One row by llama.cpp's own index, for checks."""
        pointer = self._lib.llama_get_logits_ith(self._handle, batch_index)
        row: F32 = self._view(pointer, 1, self.vocab_size)[0]
        return row

    def _view(self, pointer: Any, rows: int, width: int) -> F32:
        if not pointer:
            raise EngineError("llama.cpp returned no outputs for this decode")
        address = ctypes.addressof(pointer.contents)
        # llama.cpp reuses its buffer: a view of the same memory need not be made again
        view = self._views.get((address, rows, width))
        if view is None:
            memory = (ctypes.c_char * (rows * width * 4)).from_address(address)
            view = np.frombuffer(memoryview(memory), np.float32).reshape(rows, width)
            view.flags.writeable = False
            self._views[address, rows, width] = view
        return view

    def remove(self, seq_id: int, start: int) -> bool:
        """Drop the cells of ``seq_id`` from position ``start`` on; False if it cannot."""
        return bool(self._lib.llama_memory_seq_rm(self._memory, seq_id, start, -1))

    def clear(self) -> None:
        self._lib.llama_memory_clear(self._memory, True)

    def first_position(self, seq_id: int) -> int:
        return int(self._lib.llama_memory_seq_pos_min(self._memory, seq_id))

    def last_position(self, seq_id: int) -> int:
        return int(self._lib.llama_memory_seq_pos_max(self._memory, seq_id))
