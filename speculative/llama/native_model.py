"""NativeModel: a loaded llama_model and its vocabulary."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from outrider.speculative.errors import EngineError
from outrider.speculative.llama.library import (
    ALL_LAYERS,
    extension,
    last_error,
    library,
    raise_kept_interrupt,
)
from outrider.speculative.llama.stop_flag import StopFlag


class NativeModel:
    """A loaded ``llama_model`` and its vocabulary."""

    def __init__(
        self,
        path: Path,
        gpu_layers: int | None,
        progress: Callable[[float], bool] | None,
        *,
        load_heads: bool = False,
    ) -> None:
        """Load ``path``; ``gpu_layers`` None lets llama.cpp offload everything it can.

        ``progress`` gets 0..1 and returns False to stop.

        Raises:
            EngineError: llama.cpp refused the file; the message carries its reason.
        """
        lib = library()
        params = lib.llama_model_default_params()
        params.load_mtp = load_heads
        params.n_gpu_layers = ALL_LAYERS if gpu_layers is None else gpu_layers
        callback = None
        if progress is not None:
            callback = lib.llama_progress_callback(lambda value, _data: bool(progress(value)))
            params.progress_callback = callback
        self._lib = lib
        self._has_heads = load_heads
        self.stop = StopFlag()
        """Obeyed by the contexts that are made after it; an engine has one for all its models."""
        self._handle = lib.llama_model_load_from_file(os.fsencode(path), params)
        raise_kept_interrupt()
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
    def n_embd(self) -> int:
        return int(self._lib.llama_model_n_embd(self._handle))

    @property
    def n_embd_out(self) -> int:
        return int(self._lib.llama_model_n_embd_out(self._handle))

    @property
    def num_heads_nextn(self) -> int:
        """NextN heads that were loaded."""
        # llama.cpp counts those that it left out too, and aborts when they are run
        return int(self._lib.llama_model_n_layer_nextn(self._handle)) if self._has_heads else 0

    @property
    def mask_token(self) -> int:
        """The token that stands for what is to be predicted; -1 if there is none."""
        return int(self._lib.llama_vocab_mask(self._vocab))

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

    @property
    def suppressed(self) -> list[int]:
        """Tokens that the file says are never to be drawn."""
        count = ctypes.c_int32()
        tokens = extension("get_suppressed")(self._vocab, ctypes.byref(count))
        return [int(token) for token in tokens[: count.value]] if tokens else []

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

    def detokenize(self, token_id: int) -> bytes:
        """The bytes of a text of one token: control tokens as their text, no leading space."""
        size, tokens = 64, (ctypes.c_int32 * 1)(token_id)
        while True:
            buffer = ctypes.create_string_buffer(size)
            count = self._lib.llama_detokenize(self._vocab, tokens, 1, buffer, size, False, True)
            if count >= 0:
                return buffer.raw[:count]
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
