"""AnswerWriter: the answer on stdout, as it grows and nothing else."""

from __future__ import annotations

import sys
from typing import TextIO

from outrider.cli.errors import OutputError, printable


class AnswerWriter:
    """Writes text to stdout with its trailing newlines cut and one newline at the end.

    On a terminal control characters are left out; a pipe or a file gets the text as it is.
    Raises OutputError when stdout cannot take it.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        stream = stream or sys.stdout
        if stream is None:
            raise OutputError("stdout is closed")
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._held = ""  # newlines that may turn out to be trailing

    def write(self, text: str) -> None:
        text = self._held + (printable(text) if self._is_terminal else text)
        shown = text.rstrip("\r\n")
        self._held = text[len(shown) :]
        if shown:
            self._put(shown)

    def end(self) -> None:
        self._held = ""
        self._put("\n")

    def _put(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError as error:
            raise OutputError.of(error) from error
