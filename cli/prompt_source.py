"""The prompt of a one-shot run: argument or -p, then -f, then stdin."""

from __future__ import annotations

import os
import stat
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from outrider.cli.errors import UsageError, say

SILENCE_S = 2.0
_CHUNK = 1 << 16


def read_prompt(
    argument: str | None,
    option: str | None,
    file: Path | None,
    *,
    use_stdin: bool,
    verbatim: bool = False,
) -> str:
    """Join what was given, in this order, with a newline between.

    The newline that ends a file or stdin is cut, unless the text is to be taken ``verbatim``.
    """
    if argument is not None and option is not None:
        raise UsageError("the prompt is given twice: as an argument and with -p/--prompt")
    pieces = [
        _text(text.encode("utf-8", "surrogateescape"), "the prompt")
        for text in (argument, option)
        if text is not None
    ]
    if file is not None:
        pieces.append(read_text(file, "-f/--file"))
    if use_stdin and (stdin := _readable_stdin()):
        pieces.append(_text(_read(stdin), "stdin"))
    if not verbatim:
        pieces = [piece.removesuffix("\n").removesuffix("\r") for piece in pieces]
    prompt = "\n".join(piece for piece in pieces if piece)
    if not prompt:
        raise UsageError("no prompt: give it as an argument, with -p, -f FILE or on stdin")
    return prompt


def read_text(path: Path, flag: str) -> str:
    """The UTF-8 text of a file that ``flag`` names."""
    try:
        return _text(path.read_bytes(), f"{flag} {path}")
    except OSError as error:
        raise UsageError(f"{flag} {path}: {error.strerror}") from error


def _text(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = data[error.start]
        raise UsageError(
            f"{where}: not UTF-8 (byte 0x{byte:02x} at offset {error.start}); convert it first"
        ) from error


def _readable_stdin() -> BinaryIO | None:
    """Stdin if it is a pipe, a socket or a file; a terminal or a device is never read."""
    try:
        stdin = sys.stdin.buffer
        mode = os.fstat(stdin.fileno()).st_mode
    except (AttributeError, OSError, ValueError):
        return None
    is_data = stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)
    return stdin if is_data else None


def _read(stdin: BinaryIO) -> bytes:
    """All of stdin, with a note on stderr if nothing comes for a while."""
    data = bytearray()
    with _SilenceNote() as note:
        while chunk := os.read(stdin.fileno(), _CHUNK):
            data += chunk
            note.heard()
    return bytes(data)


class _SilenceNote:
    """Says once that stdin is waited for, when it has been silent for ``SILENCE_S``."""

    def __init__(self) -> None:
        self._heard_at = time.monotonic()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def heard(self) -> None:
        self._heard_at = time.monotonic()

    def __enter__(self) -> _SilenceNote:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while (left := self._heard_at + SILENCE_S - time.monotonic()) > 0:
            if self._done.wait(left):
                return
        say("outrider: waiting for stdin to end (--no-stdin does not read it)")
