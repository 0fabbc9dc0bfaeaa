"""The bytes of a model's cache for a context, told from its header before anything is loaded.

As llama.cpp allocates it: a layer with a sliding window keeps the window and one batch, a
recurrent layer a state for each snapshot, every other layer the whole context.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from outrider.speculative.gguf_file import GgufFile
from outrider.speculative.gguf_header import GgufArray
from outrider.speculative.llama.library import CACHE_TYPES
from outrider.speculative.model_facts import num_layers
from outrider.speculative.tensor_types import TENSOR_TYPES

_PAD = 256
_LONG_CONTEXTS = (1 << 16, 1 << 17)
_MAX_SNAPSHOTS = 8  # of recurrent states; longer drafts take a checkpoint
_FLOAT_BYTES = 4
# every n-th layer sees everything where the file does not say which ones do
_WINDOW_PATTERNS: Mapping[str, int] = {
    "afmoe": 4,
    "cohere2": 4,
    "exaone-moe": 4,
    "exaone4": 4,
    "gemma2": 2,
    "gemma3": 6,
    "gemma3n": 5,
    "gpt-oss": 2,
    "llama4": 4,
    "mellum": 4,
    "muse-glimmer": 4,
    "olmo2": 4,
    "plamo3": 8,
}
_DENSE_FIRST_PATTERNS: Mapping[str, int] = {"cohere2moe": 4, "laguna": 4, "smallthinker": 4}
_DEFAULT_WINDOWS: Mapping[str, int] = {"gemma2": 4096, "exaone-moe": 128}
_RECURRENT = frozenset({"mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"})
_BOTH_IN_ONE = frozenset({"falcon-h1"})  # attention and a state in every layer
_INTERVAL = "full_attention_interval"
_DEFAULT_INTERVAL = 4


@dataclass(frozen=True, slots=True)
class CacheShape:
    """How a cache is asked for; ``longest_draft`` decides how many states can be taken back."""

    n_ctx: int
    n_ubatch: int
    type_k: str
    type_v: str
    longest_draft: int = 0

    @property
    def num_states(self) -> int:
        """States that a recurrent layer keeps of one sequence."""
        return 1 + num_snapshots(self.longest_draft)


def num_snapshots(longest_draft: int) -> int:
    """Former states that are kept of a recurrent layer, so that drafts can be taken back."""
    return min(max(longest_draft, 1), _MAX_SNAPSHOTS)


def cache_bytes(file: GgufFile, shape: CacheShape) -> int:
    """Bytes of the cache of one sequence.

    Where the file does not tell which layers have a window they are counted whole: too much
    rather than too little.
    """
    layers = range(num_layers(file))
    states = [layer for layer in layers if _has_state(file, layer)]
    total = len(states) * _state_bytes(file) * shape.num_states
    for layer in layers:
        if layer not in states or _architecture(file) in _BOTH_IN_ONE:
            total += _layer_bytes(file, layer, shape)
    return total


def cell_bytes(file: GgufFile, type_k: str, type_v: str) -> float:
    """Bytes that one more token takes in a long context."""
    short, long = (
        cache_bytes(file, CacheShape(n_ctx, _PAD, type_k, type_v)) for n_ctx in _LONG_CONTEXTS
    )
    return (long - short) / (_LONG_CONTEXTS[1] - _LONG_CONTEXTS[0])


def _layer_bytes(file: GgufFile, layer: int, shape: CacheShape) -> int:
    if layer >= _num_layers_with_cache(file):
        return 0
    cells = _padded(shape.n_ctx)
    is_window = _has_window(file, layer)
    if is_window:
        cells = _padded(min(cells, _window(file) + shape.n_ubatch))
    heads = _kv_heads(file, layer)
    keys = _row_bytes(heads * _head_width(file, "key", is_window), shape.type_k)
    if _number(file, "attention.key_length_mla"):  # one compressed row stands for both
        return cells * keys
    return cells * (keys + _row_bytes(heads * _head_width(file, "value", is_window), shape.type_v))


def _row_bytes(num_elements: int, type_name: str) -> int:
    kind = TENSOR_TYPES[CACHE_TYPES[type_name]]
    return -(-num_elements // kind.block_size) * kind.block_bytes


def _kv_heads(file: GgufFile, layer: int) -> int:
    for key in ("attention.head_count_kv", "attention.head_count"):
        counts = file.integers(f"{_architecture(file)}.{key}")
        if counts:
            return counts[layer] if layer < len(counts) else counts[0]
    return 0


def _head_width(file: GgufFile, what: str, is_window: bool) -> int:
    own = _number(file, f"attention.{what}_length_swa") if is_window else 0
    own = own or _number(file, f"attention.{what}_length")
    heads = max(file.integers(f"{_architecture(file)}.attention.head_count"), default=0)
    return own or _number(file, "embedding_length") // max(heads, 1)


def _num_layers_with_cache(file: GgufFile) -> int:
    if _architecture(file) == "gemma3n":
        return 20
    return num_layers(file) - _number(file, "attention.shared_kv_layers")


def _window(file: GgufFile) -> int:
    default = _DEFAULT_WINDOWS.get(_architecture(file), 0)
    return _number(file, "attention.sliding_window") or default


def _has_window(file: GgufFile, layer: int) -> bool:
    if not _window(file):
        return False
    architecture = _architecture(file)
    key = f"{architecture}.attention.sliding_window_pattern"
    given = file.metadata.get(key)
    if isinstance(given, GgufArray):
        flags = given.numbers()
        return layer < len(flags) and bool(flags[layer])
    dense_first = _DENSE_FIRST_PATTERNS.get(architecture)
    period = file.integer(key) or dense_first or _WINDOW_PATTERNS.get(architecture, 1)
    return layer % period != 0 if dense_first else layer % period < period - 1


def _has_state(file: GgufFile, layer: int) -> bool:
    architecture = _architecture(file)
    if architecture in _RECURRENT or architecture in _BOTH_IN_ONE:
        return True
    if _state_bytes(file) == 0:
        return False
    flags = file.integers(f"{architecture}.attention.recurrent_layers")
    if len(flags) > layer:
        return bool(flags[layer])
    if len(file.integers(f"{architecture}.attention.head_count_kv")) > 1:
        return _kv_heads(file, layer) == 0
    return (layer + 1) % (_number(file, _INTERVAL) or _DEFAULT_INTERVAL) != 0


def _state_bytes(file: GgufFile) -> int:
    """Bytes of one state of one recurrent layer; 0 for a model without."""
    width = _number(file, "embedding_length")
    if head := _number(file, "wkv.head_size"):
        shifts = _number(file, "token_shift_count") or 2
        return _FLOAT_BYTES * width * (shifts + head)
    if kernel := _number(file, "shortconv.l_cache"):
        return _FLOAT_BYTES * width * (kernel - 1)
    kernel = _number(file, "ssm.conv_kernel")
    if head := _number(file, "kda.head_dim"):
        heads = max(file.integers(f"{_architecture(file)}.attention.head_count"), default=0)
        return _FLOAT_BYTES * heads * head * (3 * (kernel - 1 if kernel else 3) + head)
    inner, state = _number(file, "ssm.inner_size"), _number(file, "ssm.state_size")
    groups = _number(file, "ssm.group_count")
    return _FLOAT_BYTES * (max(kernel - 1, 0) * (inner + 2 * groups * state) + state * inner)


def _number(file: GgufFile, key: str) -> int:
    """The first number under a key of the architecture, 0 if there is none."""
    return next(iter(file.integers(f"{_architecture(file)}.{key}")), 0)


def _architecture(file: GgufFile) -> str:
    return file.text("general.architecture") or ""


def _padded(num_cells: int) -> int:
    return -(-num_cells // _PAD) * _PAD
