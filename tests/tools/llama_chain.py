"""llama.cpp's own sampler chain on a row: what the sampler is compared with."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.llama import library
from outrider.speculative.settings import SamplingSettings

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
_MIROSTAT_BEST = 100


def llama_law(
    row: F32, history: Sequence[int], settings: SamplingSettings, vocabulary: Any = None
) -> F64:
    """Probabilities of the whole vocabulary after the chain of common/sampling.cpp.

    XTC acts or not by a coin of llama.cpp's own: only probabilities 0 and 1 compare.
    ``vocabulary`` is that of the row (:func:`native_vocabulary`); without one DRY has no breakers.
    """
    with native_chain(len(row), settings, len(history), vocabulary) as chain:
        for token in history:
            library().llama_sampler_accept(chain, token)
        return apply_chain(chain, row)[0]


@contextmanager
def native_chain(
    vocab_size: int, settings: SamplingSettings, context_size: int = 0, vocabulary: Any = None
) -> Iterator[Any]:
    """The chain as ``common_sampler_init`` makes it."""
    lib = library()
    chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
    try:
        for sampler in _samplers(lib, vocab_size, settings, context_size, vocabulary):
            lib.llama_sampler_chain_add(chain, sampler)
        yield chain
    finally:
        lib.llama_sampler_free(chain)


def apply_chain(chain: Any, row: F32) -> tuple[F64, int]:
    """The law the chain leaves of a row, over the whole vocabulary, and the token it draws."""
    lib = library()
    candidates = np.zeros(len(row), _CANDIDATE)
    candidates["id"] = np.arange(len(row))
    candidates["logit"] = row
    start = candidates.ctypes.data
    data = ctypes.cast(start, ctypes.POINTER(lib.llama_token_data))
    array = lib.llama_token_data_array(data, len(row), -1, False)
    lib.llama_sampler_apply(chain, ctypes.byref(array))
    # XTC drops the best by moving the beginning of the list
    first = (ctypes.addressof(array.data.contents) - start) // _CANDIDATE.itemsize
    left = candidates[first : first + array.size]
    probs = np.zeros(len(row))
    probs[left["id"]] = left["p"]
    return probs, int(left["id"][array.selected])


@contextmanager
def native_vocabulary(path: Path) -> Iterator[Any]:
    """The vocabulary of a model file, without its weights."""
    lib = library()
    params = lib.llama_model_default_params()
    params.vocab_only = True
    model = lib.llama_model_load_from_file(str(path).encode(), params)
    try:
        yield lib.llama_model_get_vocab(model)
    finally:
        lib.llama_model_free(model)


def native_text(vocabulary: Any, token: int) -> bytes:
    """What a token alone prints, control tokens spelled out: what DRY looks for breakers in."""
    buffer = ctypes.create_string_buffer(512)
    tokens = (ctypes.c_int32 * 1)(token)
    count = library().llama_detokenize(vocabulary, tokens, 1, buffer, 512, False, True)
    assert count >= 0
    return buffer.raw[:count]


def native_tokens(vocabulary: Any, text: str) -> list[int]:
    """The tokens of a plain text, surrogate escapes as the bytes they stand for."""
    data = text.encode("utf-8", "surrogateescape")
    tokens = (ctypes.c_int32 * (len(data) + 8))()
    size = len(tokens)
    count = library().llama_tokenize(vocabulary, data, len(data), tokens, size, False, False)
    assert count >= 0
    return tokens[:count]


def _samplers(
    lib: Any, vocab_size: int, settings: SamplingSettings, context_size: int, vocabulary: Any
) -> Iterable[Any]:
    if settings.logit_bias:
        biases = [lib.llama_logit_bias(*pair) for pair in settings.logit_bias.items()]
        array = (lib.llama_logit_bias * len(biases))(*biases)
        yield lib.llama_sampler_init_logit_bias(vocab_size, len(biases), array)
    if settings.mirostat:
        tau, eta = settings.mirostat_tau, settings.mirostat_eta
        yield lib.llama_sampler_init_temp(settings.temp)
        if settings.mirostat == 1:
            yield lib.llama_sampler_init_mirostat(vocab_size, 0, tau, eta, _MIROSTAT_BEST)
        else:
            yield lib.llama_sampler_init_mirostat_v2(0, tau, eta)
        return
    makers = _makers(lib, vocab_size, settings, context_size, vocabulary)
    yield from (makers[name]() for name in settings.samplers)
    yield lib.llama_sampler_init_dist(0)


def _makers(
    lib: Any, vocab_size: int, settings: SamplingSettings, context_size: int, vocabulary: Any
) -> dict[str, Callable[[], Any]]:
    last_n = settings.repeat_last_n if settings.repeat_last_n >= 0 else max(1, context_size)
    texts = [text.encode() for text in settings.dry_sequence_breakers] if vocabulary else []
    breakers = (ctypes.c_char_p * len(texts))(*texts)
    return {
        "penalties": lambda: lib.llama_sampler_init_penalties(
            vocab_size,
            last_n,
            settings.repeat_penalty,
            settings.frequency_penalty,
            settings.presence_penalty,
        ),
        "dry": lambda: lib.llama_sampler_init_dry(
            vocabulary,
            settings.dry_multiplier,
            settings.dry_base,
            settings.dry_allowed_length,
            settings.dry_penalty_last_n,
            breakers,
            len(texts),
        ),
        "top_n_sigma": lambda: lib.llama_sampler_init_top_n_sigma(settings.top_n_sigma),
        "top_k": lambda: lib.llama_sampler_init_top_k(settings.top_k),
        "typ_p": lambda: lib.llama_sampler_init_typical(settings.typical_p, 0),
        "top_p": lambda: lib.llama_sampler_init_top_p(settings.top_p, 0),
        "min_p": lambda: lib.llama_sampler_init_min_p(settings.min_p, 0),
        "xtc": lambda: lib.llama_sampler_init_xtc(
            settings.xtc_probability, settings.xtc_threshold, 0, 0
        ),
        "temperature": lambda: lib.llama_sampler_init_temp_ext(
            settings.temp, settings.dynatemp_range, settings.dynatemp_exp
        ),
    }
