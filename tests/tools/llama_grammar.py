"""llama.cpp's own grammar sampler: which tokens a GBNF grammar allows next."""

from __future__ import annotations

import ctypes

import numpy as np

from outrider.speculative.llama import NativeModel, library

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class LlamaGrammar:
    """A walk through a grammar; only tokens that are allowed may be accepted."""

    def __init__(self, model: NativeModel, gbnf: str) -> None:
        self._lib = library()
        vocab = self._lib.llama_model_get_vocab(model.handle)
        self._size = model.vocab_size
        self._candidates = np.zeros(self._size, _CANDIDATE)
        self._sampler = self._lib.llama_sampler_init_grammar(vocab, gbnf.encode(), b"root")
        if not self._sampler:
            raise ValueError("llama.cpp refuses this grammar")

    def apply(self) -> None:
        """Put minus infinity where a token is forbidden, as sampling does."""
        candidates = self._candidates
        candidates["id"] = np.arange(self._size)
        candidates["logit"] = 0
        data = ctypes.cast(candidates.ctypes.data, ctypes.POINTER(self._lib.llama_token_data))
        array = self._lib.llama_token_data_array(data, self._size, -1, False)
        self._lib.llama_sampler_apply(self._sampler, ctypes.byref(array))

    def allowed(self) -> set[int]:
        """The ids of all tokens that may come next, end tokens among them."""
        self.apply()
        return set(np.flatnonzero(np.isfinite(self._candidates["logit"])).tolist())

    def accept(self, token_id: int) -> None:
        if token_id not in self.allowed():
            raise ValueError(f"token {token_id} is not allowed")  # llama.cpp would abort
        self._lib.llama_sampler_accept(self._sampler, token_id)

    def close(self) -> None:
        if self._sampler:
            self._lib.llama_sampler_free(self._sampler)
            self._sampler = None
