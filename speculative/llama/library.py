"""The native library: loaded at first use, checked, its log sent to Python logging."""

from __future__ import annotations

import atexit
import ctypes
import functools
import logging
import os
from importlib import metadata
from pathlib import Path
from typing import Any

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
CONTEXT_DEFAULT, CONTEXT_MTP = 0, 1
ALL_LAYERS = 0x7FFFFFFF
PARTIAL_STATE = 1  # only what cannot be cut back: recurrent and sliding-window parts

_SYMBOLS = (
    "llama_backend_init",
    "llama_context_default_params",
    "llama_decode",
    "llama_detokenize",
    "llama_encode",
    "llama_free",
    "llama_get_memory",
    "llama_init_from_model",
    "llama_log_set",
    "llama_memory_seq_cp",
    "llama_memory_seq_pos_max",
    "llama_memory_seq_pos_min",
    "llama_memory_seq_rm",
    "llama_model_chat_template",
    "llama_model_default_params",
    "llama_print_system_info",
    "llama_model_free",
    "llama_model_get_vocab",
    "llama_model_has_decoder",
    "llama_model_has_encoder",
    "llama_model_is_hybrid",
    "llama_model_is_recurrent",
    "llama_model_load_from_file",
    "llama_model_n_ctx_train",
    "llama_model_n_embd",
    "llama_model_n_embd_out",
    "llama_model_n_layer_nextn",
    "llama_model_n_swa",
    "llama_n_batch",
    "llama_n_ctx_seq",
    "llama_n_rs_seq",
    "llama_set_abort_callback",
    "llama_set_causal_attn",
    "llama_state_seq_get_data_ext",
    "llama_state_seq_get_size_ext",
    "llama_state_seq_set_data_ext",
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
    "llama_vocab_mask",
    "llama_vocab_n_tokens",
)

# what the bindings do not declare, or not so: rows are wanted as plain addresses. Functions of
# llama-ext.h have C++ names (Itanium, as on Linux and macOS; then Microsoft's)
_EXTENSIONS: dict[str, tuple[tuple[str, ...], list[Any], Any]] = {
    "set_hidden": (
        (
            "_Z26llama_set_embeddings_nextnP13llama_contextbb",
            "?llama_set_embeddings_nextn@@YAXPEAUllama_context@@_N1@Z",
        ),
        [ctypes.c_void_p, ctypes.c_bool, ctypes.c_bool],
        None,
    ),
    "get_hidden": (
        (
            "_Z26llama_get_embeddings_nextnP13llama_context",
            "?llama_get_embeddings_nextn@@YAPEAMPEAUllama_context@@@Z",
        ),
        [ctypes.c_void_p],
        ctypes.c_void_p,
    ),
    "set_head": (
        (
            "_Z28llama_set_nextn_layer_offsetP13llama_contexti",
            "?llama_set_nextn_layer_offset@@YAXPEAUllama_context@@H@Z",
        ),
        [ctypes.c_void_p, ctypes.c_int32],
        None,
    ),
    "set_layer": (
        (
            "_Z30llama_set_embeddings_layer_inpP13llama_contextjb",
            "?llama_set_embeddings_layer_inp@@YAXPEAUllama_context@@I_N@Z",
        ),
        [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_bool],
        None,
    ),
    "get_layer": (
        (
            "_Z30llama_get_embeddings_layer_inpP13llama_contextj",
            "?llama_get_embeddings_layer_inp@@YAPEAMPEAUllama_context@@I@Z",
        ),
        [ctypes.c_void_p, ctypes.c_uint32],
        ctypes.c_void_p,
    ),
    "get_logits": (("llama_get_logits",), [ctypes.c_void_p], ctypes.c_void_p),
    "get_logits_of": (
        ("llama_get_logits_ith",),
        [ctypes.c_void_p, ctypes.c_int32],
        ctypes.c_void_p,
    ),
    "get_embeddings": (("llama_get_embeddings",), [ctypes.c_void_p], ctypes.c_void_p),
    "get_suppressed": (
        ("llama_vocab_get_suppress_tokens",),
        [ctypes.c_void_p, ctypes.POINTER(ctypes.c_int32)],
        ctypes.POINTER(ctypes.c_int32),
    ),
}

_log = logging.getLogger("outrider.llama")
# ggml.h (the bindings' own table is that of an older revision)
_LEVELS = {1: logging.DEBUG, 2: logging.INFO, 3: logging.WARNING, 4: logging.ERROR}
_last_error = ""
_has_kept_interrupt = False
_log_callback: Any = None  # llama.cpp keeps a raw pointer: the object must outlive every call


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


@functools.cache
def extension(name: str) -> Any:
    """A function that the bindings do not declare, or not as it is wanted.

    Raises:
        EngineError: this build of llama.cpp does not export it.
    """
    symbols, argument_types, result_type = _EXTENSIONS[name]
    for symbol in symbols:
        if hasattr(library()._lib, symbol):
            function = library()._lib[symbol]  # an object of our own, not that of the bindings
            function.argtypes, function.restype = argument_types, result_type
            return function
    raise EngineError(
        f"this build of llama.cpp does not let hidden states be read ({symbols[0]} is missing);"
        f" the drafter needs llama-cpp-python {REQUIRED_VERSION} built from source"
    )


def _route_log(llama_cpp: Any) -> None:
    """Send native log lines to Python logging, never to the terminal."""
    global _log_callback
    level_of_line = logging.INFO

    def on_line(level: int, text: bytes, _user_data: object) -> None:
        global _has_kept_interrupt
        try:
            note(level, text)
        except KeyboardInterrupt:
            # no exception passes through native code: ctypes would print it and go on
            _has_kept_interrupt = True

    def note(level: int, text: bytes) -> None:
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


def raise_kept_interrupt() -> None:
    """Raise the Ctrl-C that came while llama.cpp wrote its log, after the call that did."""
    global _has_kept_interrupt
    if _has_kept_interrupt:
        _has_kept_interrupt = False
        raise KeyboardInterrupt


def last_error() -> str:
    """Return the last native error line, for a message."""
    return _last_error


def identity() -> tuple[str, ...]:
    """What tells one build of llama.cpp from another: version, sizes and times of its files."""
    files = Path(library().__file__).parent.glob("lib/*")
    about = [(path.name, path.stat()) for path in sorted(files)]
    return (
        metadata.version("llama-cpp-python"),
        *(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in about),
    )


def system_info() -> str:
    """The features this build of llama.cpp was made with, and those it uses here."""
    return str(library().llama_print_system_info().decode("utf-8", "replace")).strip()


def supports_gpu() -> bool:
    """True if this build of llama.cpp can offload layers to a GPU."""
    return bool(library().llama_supports_gpu_offload())
