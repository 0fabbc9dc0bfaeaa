"""Takes a GGUF header apart, value by value, and trusts no length that it reads."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NoReturn

from outrider.speculative.errors import InputError

# Real headers are below 40 MB; the limit keeps a damaged length from filling the memory.
MAX_HEADER_BYTES = 256 * 1024 * 1024
_FIRST_READ = 1024 * 1024

_STRING = 8
_ARRAY = 9
_SCALARS: dict[int, struct.Struct] = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_LENGTH = _SCALARS[10]

Scalar = int | float | bool | str


@dataclass(frozen=True, slots=True, eq=False)
class GgufArray:
    """An array in the metadata, decoded only when asked for: a vocabulary may be large."""

    length: int
    is_text: bool
    _format: str = field(repr=False)
    _data: bytearray = field(repr=False)
    _start: int = field(repr=False)
    _end: int = field(repr=False)

    def __len__(self) -> int:
        return self.length

    def raw(self) -> bytes:
        """The stored bytes: equal bytes are equal arrays."""
        return bytes(self._data[self._start : self._end])

    def strings(self) -> list[bytes]:
        """The elements of an array of strings, as stored."""
        assert self.is_text
        data = self.raw()
        length_at = _LENGTH.unpack_from
        strings: list[bytes] = []
        position = 0
        for _ in range(self.length):
            start = position + 8
            position = start + length_at(data, position)[0]
            strings.append(data[start:position])
        return strings

    def numbers(self) -> tuple[int | float | bool, ...]:
        """The elements of an array of numbers or booleans."""
        assert not self.is_text
        return struct.unpack_from(f"<{self.length}{self._format}", self._data, self._start)


Value = Scalar | GgufArray


class HeaderReader:
    """A cursor over the beginning of a file; reads more of it only when a value needs it."""

    def __init__(self, path: Path, stream: BinaryIO, size: int) -> None:
        self.position = 0
        self.size = size
        self._path = path
        self._stream = stream
        self._data = bytearray()

    def fail(self, problem: str, advice: str = "fetch or convert it again") -> NoReturn:
        raise InputError(f"{self._path}: {problem}; {advice}")

    def require(self, count: int) -> None:
        """Refuse to go on unless ``count`` more bytes are in the file, and have them ready."""
        end = self.position + count
        if end > self.size:
            self.fail(
                "the header is cut short or damaged:"
                f" it needs {end:,} bytes, the file has {self.size:,}"
            )
        if end > MAX_HEADER_BYTES:
            self.fail(f"the header is damaged: it claims more than {MAX_HEADER_BYTES >> 20} MiB")
        if end > len(self._data):
            self._load(end)

    def take(self, count: int) -> bytes:
        self.require(count)
        start = self.position
        self.position += count
        return bytes(self._data[start : self.position])

    def scalar(self, kind: int) -> int | float | bool:
        """One number or boolean of the GGUF type ``kind``."""
        number = _SCALARS[kind]
        value: int | float | bool = number.unpack(self.take(number.size))[0]
        return value

    def uint32(self) -> int:
        return int(self.scalar(4))

    def uint64(self) -> int:
        return int(self.scalar(10))

    def text(self) -> str:
        return self.take(self.uint64()).decode("utf-8", errors="replace")

    def value(self, key: str) -> Value:
        """The value of ``key``, which begins with its type."""
        kind = self.uint32()
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            return self._array(key)
        if kind not in _SCALARS:
            self.fail(f"the header is damaged: {key!r} has type {kind}")
        return self.scalar(kind)

    def _array(self, key: str) -> GgufArray:
        kind, length = self.uint32(), self.uint64()
        start = self.position
        if kind == _STRING:
            self._skip_strings(length)
            return GgufArray(length, True, "", self._data, start, self.position)
        if kind not in _SCALARS:
            self.fail(f"the header is damaged: {key!r} is an array of type {kind}")
        number = _SCALARS[kind]
        self.require(length * number.size)
        self.position += length * number.size
        return GgufArray(length, False, number.format[1:], self._data, start, self.position)

    def _skip_strings(self, count: int) -> None:
        """Step over ``count`` strings; a vocabulary has hundreds of thousands."""
        self.require(8 * count)
        length_at = _LENGTH.unpack_from
        data, position = self._data, self.position
        while count:
            try:
                while count:
                    position += 8 + length_at(data, position)[0]
                    count -= 1
            except (struct.error, OverflowError):
                self.position = position
                self.require(8)
        self.position = position
        self.require(0)

    def _load(self, end: int) -> None:
        goal = min(max(end, 2 * len(self._data), _FIRST_READ), self.size, MAX_HEADER_BYTES)
        while len(self._data) < end:
            more = self._stream.read(goal - len(self._data))
            if not more:
                self.fail("the file became shorter while it was read", "try again")
            self._data += more
