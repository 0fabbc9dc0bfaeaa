"""Changes a GGUF file: other metadata, tensors left out, weights as float32."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tools.gguf_writer import ALIGNMENT, Given, Raw, as_raw, text

from outrider.speculative.gguf_file import GgufFile
from outrider.speculative.gguf_header import HeaderReader

_F32, _F16, _Q8_0 = 0, 1, 8
_TYPE_IDS = {"f32": _F32, "f16": _F16, "q8_0": _Q8_0, "i64": 27, "i32": 26}
_Q8_BLOCK = np.dtype([("scale", "<f2"), ("values", "i1", 32)])


@dataclass(slots=True)
class _Tensor:
    shape: tuple[int, ...]
    type_id: int
    data: bytes


class GgufEdit:
    """The contents of ``path``, to be changed and written elsewhere."""

    def __init__(self, path: Path) -> None:
        file = GgufFile.open(path)
        content = path.read_bytes()
        self._version = file.version
        self._metadata = raw_metadata(path)
        self._tensors = {
            name: _Tensor(
                tensor.shape,
                _TYPE_IDS[tensor.type_name],
                content[tensor.offset : tensor.offset + tensor.num_bytes],
            )
            for name, tensor in file.tensors.items()
        }

    def set(self, key: str, value: Given) -> GgufEdit:
        self._metadata[key] = as_raw(value)
        return self

    def drop(self, name: str) -> GgufEdit:
        """Leave out a metadata key or a tensor."""
        del (self._metadata if name in self._metadata else self._tensors)[name]
        return self

    def drop_block(self, number: int) -> GgufEdit:
        """Leave out a layer."""
        for name in [name for name in self._tensors if name.startswith(f"blk.{number}.")]:
            del self._tensors[name]
        return self

    def widen(self) -> GgufEdit:
        """Store float16 and Q8_0 weights as float32."""
        for tensor in self._tensors.values():
            if tensor.type_id == _F16:
                tensor.data = np.frombuffer(tensor.data, "<f2").astype("<f4").tobytes()
            elif tensor.type_id == _Q8_0:
                blocks = np.frombuffer(tensor.data, _Q8_BLOCK)
                scales = blocks["scale"].astype(np.float32)[:, None]
                tensor.data = (scales * blocks["values"]).astype("<f4").tobytes()
            else:
                continue
            tensor.type_id = _F32
        return self

    def write(self, path: Path) -> Path:
        counts = (self._version, len(self._tensors), len(self._metadata))
        header = b"GGUF" + struct.pack("<IQQ", *counts)
        for key, value in self._metadata.items():
            header += text(key) + struct.pack("<I", value.kind) + value.data
        data = b""
        for name, tensor in self._tensors.items():
            header += text(name) + struct.pack("<I", len(tensor.shape))
            header += struct.pack(f"<{len(tensor.shape)}Q", *tensor.shape)
            header += struct.pack("<IQ", tensor.type_id, len(data))
            data += _padded(tensor.data)
        path.write_bytes(_padded(header) + data)
        return path


def raw_metadata(path: Path) -> dict[str, Raw]:
    """The values as they are stored."""
    metadata = {}
    with path.open("rb") as stream:
        reader = HeaderReader(path, stream, path.stat().st_size)
        reader.take(16)  # magic, version, tensors
        for _ in range(reader.uint64()):
            key, start = reader.text(), reader.position
            kind = reader.uint32()
            reader.position = start
            reader.value(key)
            end = reader.position
            reader.position = start + 4
            metadata[key] = Raw(kind, reader.take(end - start - 4))
    return metadata


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % ALIGNMENT)
