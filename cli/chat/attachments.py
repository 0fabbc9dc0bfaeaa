"""Attachments: text files that go with the next message."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath

from outrider.cli.errors import UsageError, printable
from outrider.cli.stats_view import plural

_MOST_BYTES = 4_000_000  # about a million tokens
_PART = re.compile(r"(?P<name>.+):(?P<first>\d+)(?:-(?P<last>\d*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Attachment:
    """The text of a file, or of the ``part`` of it that was asked for.

    ``num_replaced`` counts the bytes that were no UTF-8.
    """

    name: str
    text: str
    part: str = ""
    num_replaced: int = 0

    @property
    def title(self) -> str:
        return f"{self.name}, {self.part}" if self.part else self.name

    @property
    def num_lines(self) -> int:
        return self.text.count("\n") + (not self.text.endswith("\n"))

    @property
    def block(self) -> str:
        """How it stands in the message: its name, then the text between fences it does not hold."""
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", self.text)), default=0))
        language = re.sub(r"\W", "", PurePath(self.name).suffix)
        end = "" if self.text.endswith("\n") else "\n"
        return f"{self.title}:\n{fence}{language}\n{self.text}{end}{fence}\n\n"


class Attachments:
    """What goes with the next message, in the order in which it was read."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[Attachment, int]] = {}  # by title, with their tokens

    def __iter__(self) -> Iterator[Attachment]:
        return (attachment for attachment, _ in self._files.values())

    @property
    def num_tokens(self) -> int:
        """What they take of the context, by the model that was in use when they were read."""
        return sum(num_tokens for _, num_tokens in self._files.values())

    def add(self, attachment: Attachment, num_tokens: int) -> None:
        """Attach it; the same part of the same file is read anew."""
        self._files[attachment.title] = attachment, num_tokens

    def find(self, title: str) -> Attachment | None:
        attachment, _ = self._files.get(title, (None, 0))
        return attachment

    def clear(self) -> None:
        self._files.clear()

    def message(self, text: str) -> str:
        """The message that ``text`` is sent as: the files, then what was typed."""
        return "".join(file.block for file in self) + text


def read_file(word: str) -> Attachment:
    """Read ``FILE`` or ``FILE:FROM-TO``.

    Raises:
        UsageError: it is no text that can be read.
    """
    name, first, last = _parted(word)
    path = Path(os.path.expanduser(name))
    if path.is_dir():
        raise UsageError(f"{name}: a folder; /glob {os.path.join(name, '*')} takes its files")
    if not path.exists():
        raise UsageError(f"no such file: {name}")
    if not path.is_file():
        raise UsageError(f"{name}: no file but a device or a pipe; only text files can be read")
    lines, num_lines = _read_lines(path, name, first, last)
    data = b"".join(lines)
    if b"\0" in data:
        raise UsageError(f"{name}: binary; only text can be read")
    if not data:
        has = f"it has {plural(num_lines, 'line')}" if num_lines else "nothing in it"
        raise UsageError(f"{word}: {has}")
    part = "" if word == name else _part_words(first, len(lines))
    text, num_replaced = _decoded(data)
    return Attachment(_in_one_line(name), text, part, num_replaced)


def matching_files(patterns: Iterable[str]) -> list[str]:
    """The files that match a pattern, sorted; hidden ones only where a pattern names them."""
    found = {
        name
        for pattern in patterns
        for name in glob.iglob(os.path.expanduser(pattern), recursive=True)
    }
    return sorted(os.path.normpath(name) for name in found if os.path.isfile(name))


def _parted(word: str) -> tuple[str, int, int | None]:
    """Name, first and last line; a file that really has such a name is meant as it is."""
    match = _PART.fullmatch(word)
    if match is None or os.path.exists(os.path.expanduser(word)):
        return word, 1, None
    first = int(match["first"])
    # FILE:7 is one line, FILE:7- is all from there
    last = first if match["last"] is None else int(match["last"]) if match["last"] else None
    if first < 1 or (last is not None and last < first):
        raise UsageError(f"{word}: allowed FILE:FROM-TO, lines from 1, FROM not after TO")
    return match["name"], first, last


def _part_words(first: int, count: int) -> str:
    return f"line {first:,}" if count == 1 else f"lines {first:,} to {first + count - 1:,}"


def _read_lines(path: Path, name: str, first: int, last: int | None) -> tuple[list[bytes], int]:
    """The lines from ``first`` to ``last``, and how many were seen."""
    taken: list[bytes] = []
    size = number = 0
    with path.open("rb") as file:
        for number, line in enumerate(iter(partial(file.readline, _MOST_BYTES), b""), 1):
            if last is not None and number > last:
                break
            if number >= first:
                taken.append(line)
                size += len(line)
            if size >= _MOST_BYTES:
                raise UsageError(f"{name}: more than 4 MB; /read {name}:FROM-TO takes a part")
    return taken, number


def _decoded(data: bytes) -> tuple[str, int]:
    """The text with LF at the ends of its lines, and how many bytes were replaced in it."""
    text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")
    return text, text.count("\ufffd") - data.count("\ufffd".encode())


def _in_one_line(name: str) -> str:
    """A file name as it may stand in a text: names can hold new lines, and bytes of any kind."""
    return " ".join(printable(name).encode("utf-8", "replace").decode().split("\n"))
