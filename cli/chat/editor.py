"""A message in the user's own editor."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from outrider.cli.errors import UsageError
from outrider.cli.prompt.keys import clean_paste

_USUAL = ("notepad",) if sys.platform == "win32" else ("editor", "nano", "vi")


def edit_text(text: str) -> str:
    """``text`` as the editor leaves it, itself if nothing changed; the terminal must be free.

    Raises:
        UsageError: there is no such editor, or it failed: nothing was changed.
    """
    command, name = _editor()
    with tempfile.TemporaryDirectory(prefix="outrider-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "message.md"
        path.write_text(text if text.endswith("\n") else f"{text}\n", "utf-8", errors="replace")
        with _ctrl_c_is_the_editors():
            try:
                code = subprocess.run([*command, str(path)], check=False).returncode
            except OSError as error:
                raise UsageError(
                    f"{name}: {error.strerror}; set VISUAL or EDITOR to an editor"
                ) from None
        if code:
            raise UsageError(f"{name}: ended with exit code {code}; nothing was changed")
        try:
            edited = clean_paste(path.read_text("utf-8-sig", errors="replace"))
        except OSError as error:
            raise UsageError(f"{name}: left no file: {error.strerror}") from None
    # most messages are a line without an end, and editors end every line
    if edited.rstrip("\n") == clean_paste(text).rstrip("\n"):
        return text
    return edited if text.endswith("\n") else edited.removesuffix("\n")


def _editor() -> tuple[list[str], str]:
    """The command, and how an error line calls it."""
    for variable in ("VISUAL", "EDITOR"):
        if given := os.environ.get(variable, "").strip():
            try:
                return _words(given), f"{variable}={given}"
            except ValueError as error:
                raise UsageError(f"{variable}={given}: {error}") from None
    for program in _USUAL:
        if found := shutil.which(program):
            return [found], program
    raise UsageError("no editor found; set VISUAL or EDITOR to one")


def _words(command: str) -> list[str]:
    if sys.platform != "win32":
        return shlex.split(command)
    return [word.strip('"') for word in shlex.split(command, posix=False)]  # backslashes stay


@contextmanager
def _ctrl_c_is_the_editors() -> Iterator[None]:
    """A handler that does nothing: unlike an ignored signal, the editor does not inherit it."""
    former = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
