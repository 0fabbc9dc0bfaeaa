"""Writes small GGUF files, right or wrong, after the format's specification."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ALIGNMENT = 32


@dataclass(frozen=True)
class Raw:
    """A metadata value given as its GGUF type number and its bytes."""

    kind: int
    data: bytes


@dataclass(frozen=True)
class Block:
    """A tensor of zeros: shape in ggml's order, type number, bytes of its data."""

    shape: tuple[int, ...] = (4,)
    kind: int = 0
    num_bytes: int = 16


Given = str | bool | int | float | Raw | Sequence[str] | Sequence[bytes] | Sequence[int]


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def array(kind: int, count: int, data: bytes) -> Raw:
    return Raw(9, struct.pack("<IQ", kind, count) + data)


def as_raw(value: Given) -> Raw:
    """A value as it is stored."""
    if isinstance(value, Raw):
        return value
    if isinstance(value, str):
        return Raw(8, text(value))
    if isinstance(value, bool):
        return Raw(7, struct.pack("<?", value))
    if isinstance(value, int):
        return Raw(4, struct.pack("<I", value))
    if isinstance(value, float):
        return Raw(6, struct.pack("<f", value))
    if value and isinstance(value[0], int):
        return array(5, len(value), struct.pack(f"<{len(value)}i", *value))
    return array(8, len(value), b"".join(text(item) for item in value if not isinstance(item, int)))


def gguf(
    metadata: Mapping[str, Given],
    tensors: Mapping[str, Block] | None = None,
    *,
    version: int = 3,
) -> bytes:
    """The bytes of a file with this metadata and these tensors."""
    tensors = {"token_embd.weight": Block()} if tensors is None else tensors
    header = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    for key, given in metadata.items():
        value = as_raw(given)
        header += text(key) + struct.pack("<I", value.kind) + value.data
    data = b""
    for name, block in tensors.items():
        header += text(name) + struct.pack("<I", len(block.shape))
        header += struct.pack(f"<{len(block.shape)}Q", *block.shape)
        header += struct.pack("<IQ", block.kind, len(data))
        data += _padded(bytes(block.num_bytes))
    return _padded(header) + data


def write(
    path: Path, metadata: Mapping[str, Given], tensors: Mapping[str, Block] | None = None
) -> Path:
    """Write such a file at ``path`` and return it."""
    path.write_bytes(gguf(metadata, tensors))
    return path


def model(tokens: Sequence[str | bytes] = (), /, **changes: Given) -> dict[str, Given]:
    """Metadata of a small llama model; ``__`` in a name stands for the dot."""
    metadata: dict[str, Given] = {
        "general.architecture": "llama",
        "general.name": "small",
        "llama.block_count": 2,
        "llama.context_length": 256,
        "llama.embedding_length": 64,
        "llama.attention.head_count": 2,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [
            token.encode() if isinstance(token, str) else token
            for token in tokens or ("<unk>", "<s>", "</s>", "a", "b", "c", "d", "e", "f")
        ],
    }
    metadata.update({name.replace("__", "."): value for name, value in changes.items()})
    return metadata


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % ALIGNMENT)
