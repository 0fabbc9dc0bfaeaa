"""ResultFile: one JSON object a line, never half a line, never the same id twice."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from outrider.cli.batch.request import Id
from outrider.cli.errors import OutputError, UsageError
from outrider.speculative.atomic_file import replace_file


class ResultFile:
    """Results are added at the end, each with one write.

    A file that is there already is gone on with: what is in it is ``finished``. The rest of a
    line that a kill cut off is dropped, and so are results with an error or a cancel, which
    are asked again.
    """

    def __init__(self, path: Path | None) -> None:
        """``path`` None is stdout.

        Raises:
            UsageError: the file cannot be written, or holds something else.
        """
        self.path = path
        self.finished: set[Id] = set()
        self._file: IO[bytes] = sys.stdout.buffer
        if path is None:
            return
        try:
            if path.exists():
                self._go_on(path)
            self._file = path.open("ab")
        except OSError as error:
            raise UsageError(f"-o {path}: {error.strerror}") from None

    def write(self, result: Mapping[str, object]) -> None:
        """Add one result.

        Raises:
            OutputError: it cannot be written; the file ends with a whole line all the same.
        """
        line = json.dumps(result, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        start = self._file.tell() if self.path else 0
        try:
            self._file.write(line)
            self._file.flush()
        except OSError as error:
            if self.path:
                self._cut_back(start)
            raise OutputError(
                f"{self.path or 'stdout'}: {error.strerror}",
                reader_is_gone=isinstance(error, BrokenPipeError),
            ) from error

    def close(self) -> None:
        if self.path:
            self._file.close()

    def _go_on(self, path: Path) -> None:
        data = path.read_bytes()
        kept = []
        for number, line in enumerate(data.splitlines(keepends=True), 1):
            result = _result(line)
            if result is None and line.endswith(b"\n"):
                raise UsageError(
                    f"-o {path}: line {number} is no result of a batch; give another file"
                )
            if result is None or result["finish_reason"] in ("error", "cancelled"):
                continue
            self.finished.add(result["id"])
            kept.append(line)
        if b"".join(kept) != data:
            replace_file(path, b"".join(kept))

    def _cut_back(self, length: int) -> None:
        """Take back what was written of a line."""
        assert self.path is not None
        # what is left in the buffer would be written at the close
        self._file = self.path.open("r+b", buffering=0)
        self._file.truncate(length)
        self._file.seek(length)


def _result(line: bytes) -> dict[str, Id] | None:
    """The object of a line; None if it is no whole result."""
    try:
        result = json.loads(line)
    except ValueError:
        return None
    if not line.endswith(b"\n") or not isinstance(result, dict):
        return None
    is_one = isinstance(result.get("id"), str | int) and "finish_reason" in result
    return result if is_one else None
