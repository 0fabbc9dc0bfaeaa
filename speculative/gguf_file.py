"""The header of a GGUF file: metadata and the list of tensors, read without native code."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO, TypeVar

from outrider.speculative.errors import InputError
from outrider.speculative.gguf_header import GgufArray, HeaderReader, Value
from outrider.speculative.tensor_types import TENSOR_TYPES

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
# llama.cpp's own limits
_MAX_DIMENSIONS = 4
_MAX_NAME_BYTES = 63
_MAX_BYTES = 2**63 - 1

T = TypeVar("T", bound=Value)


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor: its shape in ggml's order, its format, where it lies in the file."""

    name: str
    shape: tuple[int, ...]
    type_name: str
    offset: int
    num_bytes: int

    @property
    def num_elements(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True, slots=True, eq=False)
class GgufFile:
    """What the header says. ``Tensor.offset`` counts from the beginning of the file."""

    path: Path
    version: int
    file_size: int
    alignment: int
    data_offset: int
    metadata: Mapping[str, Value]
    tensors: Mapping[str, Tensor]

    @classmethod
    def open(cls, path: str | Path) -> GgufFile:
        """Read the header of ``path``; anything wrong with the file is an InputError."""
        path = Path(path)
        try:
            mode = path.stat().st_mode
            if stat.S_ISDIR(mode):
                raise InputError(f"{path}: is a folder; name the .gguf file in it")
            if not stat.S_ISREG(mode):
                raise InputError(f"{path}: is not a regular file; name a .gguf file")
            with path.open("rb") as stream:
                return _read(path, stream)
        except FileNotFoundError:
            raise InputError(f"{path}: no such file; check the path") from None
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
        except ValueError as error:
            raise InputError(f"{path}: cannot be a file name: {error}") from error

    def text(self, key: str) -> str | None:
        """The string under ``key``, None if there is none."""
        return self._value(key, str, "a string")

    def integer(self, key: str) -> int | None:
        """The whole number under ``key``, None if there is none."""
        value = self._value(key, int, "a whole number")
        if isinstance(value, bool):
            raise self._wrong_type(key, "a whole number")
        return value

    def flag(self, key: str) -> bool | None:
        """The boolean under ``key``, None if there is none."""
        return self._value(key, bool, "true or false")

    def array(self, key: str) -> GgufArray | None:
        """The array under ``key``, None if there is none."""
        return self._value(key, GgufArray, "an array")

    def integers(self, key: str) -> tuple[int, ...]:
        """One whole number for each layer, or one for all; empty if there is none."""
        value = self.metadata.get(key)
        if not isinstance(value, GgufArray):
            number = self.integer(key)
            return () if number is None else (number,)
        if value.is_text:
            raise self._wrong_type(key, "whole numbers")
        return tuple(int(number) for number in value.numbers())

    def text_array(self, key: str) -> GgufArray | None:
        """The array of strings under ``key``, None if there is none."""
        array = self.array(key)
        if array is not None and not array.is_text:
            raise self._wrong_type(key, "strings")
        return array

    def _value(self, key: str, kind: type[T], words: str) -> T | None:
        value = self.metadata.get(key)
        if value is None or isinstance(value, kind):
            return value
        raise self._wrong_type(key, words)

    def _wrong_type(self, key: str, words: str) -> InputError:
        return InputError(f"{self.path}: metadata {key!r} is not {words}; convert it again")


def _read(path: Path, stream: BinaryIO) -> GgufFile:
    size = stream.seek(0, 2)
    stream.seek(0)
    reader = HeaderReader(path, stream, size)
    version = _read_version(reader)
    num_tensors, num_keys = reader.uint64(), reader.uint64()
    metadata = _read_metadata(reader, num_keys)
    alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        reader.fail("general.alignment is not a power of two")
    entries = _read_tensor_entries(reader, num_tensors)
    data_offset = _padded(reader.position, alignment)
    tensors = _placed(reader, entries, data_offset, alignment)
    return GgufFile(path, version, size, alignment, data_offset, metadata, tensors)


def _read_version(reader: HeaderReader) -> int:
    if not reader.size:
        reader.fail("the file is empty", "fetch it again")
    magic = reader.take(min(4, reader.size))
    if magic != _MAGIC:
        reader.fail(f"not a GGUF file, it begins with {magic!r}", "name a .gguf model file")
    version = reader.uint32()
    if version and not version & 0xFFFF:
        reader.fail("the file is for big-endian machines", "convert it for this machine")
    if version not in _VERSIONS:
        reader.fail(f"GGUF version {version}; versions 2 and 3 can be read")
    return version


def _read_metadata(reader: HeaderReader, count: int) -> dict[str, Value]:
    # a key, its type and a value take 13 bytes at least
    if count * 13 > reader.size:
        reader.fail(f"the header is damaged: it claims {count:,} metadata keys")
    metadata: dict[str, Value] = {}
    for _ in range(count):
        key = reader.text()
        if not key or key in metadata:
            reader.fail(f"the header is damaged: metadata key {key!r} is empty or there twice")
        metadata[key] = reader.value(key)
    return metadata


def _read_tensor_entries(reader: HeaderReader, count: int) -> list[Tensor]:
    # a name, the number of dimensions, a type and an offset take 24 bytes at least
    if count * 24 > reader.size:
        reader.fail(f"the header is damaged: it claims {count:,} tensors")
    return [_read_tensor_entry(reader) for _ in range(count)]


def _read_tensor_entry(reader: HeaderReader) -> Tensor:
    name = reader.text()
    if len(name.encode()) > _MAX_NAME_BYTES:
        reader.fail(f"the header is damaged: a tensor name of {len(name):,} characters")
    num_dimensions = reader.uint32()
    if num_dimensions > _MAX_DIMENSIONS:
        reader.fail(f"tensor {name!r} claims {num_dimensions} dimensions, at most 4 are possible")
    shape = tuple(reader.uint64() for _ in range(num_dimensions))
    type_id, offset = reader.uint32(), reader.uint64()
    kind = TENSOR_TYPES.get(type_id)
    if kind is None:
        reader.fail(f"tensor {name!r} has the unknown type {type_id}", "a newer format?")
    row = shape[0] if shape else 1
    if row % kind.block_size:
        reader.fail(
            f"tensor {name!r} has rows of {row}, not whole {kind.name} blocks of {kind.block_size}"
        )
    num_bytes = prod(shape) // kind.block_size * kind.block_bytes
    if num_bytes > _MAX_BYTES:
        reader.fail(f"tensor {name!r} has the impossible shape {shape}")
    return Tensor(name, shape, kind.name, offset, num_bytes)


def _placed(
    reader: HeaderReader, entries: list[Tensor], data_offset: int, alignment: int
) -> dict[str, Tensor]:
    """The tensors by name, with offsets in the file, each checked to lie whole in it."""
    tensors: dict[str, Tensor] = {}
    expected = 0
    for entry in entries:
        if entry.name in tensors:
            reader.fail(f"the header is damaged: tensor {entry.name!r} is there twice")
        if entry.offset != expected:
            reader.fail(f"tensor {entry.name!r} does not lie where the one before it ends")
        start = data_offset + entry.offset
        if start + entry.num_bytes > reader.size:
            reader.fail(
                f"the file is cut short: tensor {entry.name!r} ends at byte"
                f" {start + entry.num_bytes:,}, the file has {reader.size:,}",
                "fetch it again",
            )
        tensors[entry.name] = Tensor(
            entry.name, entry.shape, entry.type_name, start, entry.num_bytes
        )
        expected += _padded(entry.num_bytes, alignment)
    return tensors


def _padded(position: int, alignment: int) -> int:
    return -(-position // alignment) * alignment
