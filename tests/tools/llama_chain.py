"""llama.cpp's own sampler chain on a row: what the sampler is compared with."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.llama import library
from outrider.speculative.settings import SamplingSettings

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


def llama_law(
    row: NDArray[np.float32], history: Sequence[int], settings: SamplingSettings
) -> NDArray[np.float64]:
    """Probabilities of the whole vocabulary after the chain of common/sampling.cpp."""
    lib = library()
    candidates = np.zeros(len(row), _CANDIDATE)
    candidates["id"] = np.arange(len(row))
    candidates["logit"] = row
    data = ctypes.cast(candidates.ctypes.data, ctypes.POINTER(lib.llama_token_data))
    array = lib.llama_token_data_array(data, len(row), -1, False)
    chain = _chain(lib, len(row), history, settings)
    for token in history:
        lib.llama_sampler_accept(chain, token)
    lib.llama_sampler_apply(chain, ctypes.byref(array))
    lib.llama_sampler_free(chain)
    left = candidates[: array.size]
    probs = np.zeros(len(row))
    probs[left["id"]] = left["p"]
    return probs


def _chain(lib: Any, vocab_size: int, history: Sequence[int], settings: SamplingSettings) -> Any:
    biases = [lib.llama_logit_bias(*pair) for pair in settings.logit_bias.items()]
    last_n = settings.repeat_last_n if settings.repeat_last_n >= 0 else max(1, len(history))
    chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
    for sampler in (
        lib.llama_sampler_init_logit_bias(
            vocab_size, len(biases), (lib.llama_logit_bias * len(biases))(*biases)
        ),
        lib.llama_sampler_init_penalties(
            vocab_size,
            last_n,
            settings.repeat_penalty,
            settings.frequency_penalty,
            settings.presence_penalty,
        ),
        lib.llama_sampler_init_top_k(settings.top_k),
        lib.llama_sampler_init_top_p(settings.top_p, 0),
        lib.llama_sampler_init_min_p(settings.min_p, 0),
        lib.llama_sampler_init_temp(settings.temp),
        lib.llama_sampler_init_dist(0),
    ):
        lib.llama_sampler_chain_add(chain, sampler)
    return chain
