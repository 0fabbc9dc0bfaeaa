"""The program as a user runs it: a process of its own, with its streams and exit code."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import IO, Any
from unittest.mock import patch

from outrider.cli.program import run_program

COMMAND = [sys.executable, "-m", "outrider.cli"]


def outrider(
    *args: str, stdin: bytes | None = None, env: dict[str, str] | None = None, **kwargs: Any
) -> subprocess.CompletedProcess[bytes]:
    """Run the command line ``args``; ``stdin`` goes through a pipe, None is the null device."""
    source: dict[str, Any] = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | kwargs
    return subprocess.run(
        [*COMMAND, *args], env=environment(env), timeout=120, check=False, **source, **streams
    )


def outrider_here(*args: str) -> subprocess.CompletedProcess[bytes]:
    """The same in this process: for tests of what a command does, not of how it starts and ends.

    To start a process takes longer than most answers of the tiny models.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with (
            open(os.devnull, encoding="utf-8") as nothing,
            patch.dict(os.environ, environment()),
            patch.object(sys, "stdin", nothing),
            _stream("stdout", 1, out),
            _stream("stderr", 2, err),
        ):
            code = run_program(args)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(args, code, out.read(), err.read())


@contextlib.contextmanager
def _stream(name: str, descriptor: int, file: IO[bytes]) -> Iterator[None]:
    """Lead ``sys.stdout`` or ``sys.stderr`` to ``file``, and what native code writes there too."""
    saved = os.dup(descriptor)
    os.dup2(file.fileno(), descriptor)
    try:
        with (
            open(descriptor, "w", encoding="utf-8", closefd=False) as text,
            patch.object(sys, name, text),
        ):
            yield
    finally:
        os.dup2(saved, descriptor)
        os.close(saved)


def environment(extra: dict[str, str] | None = None) -> dict[str, str]:
    """The environment of a run: this one's, with UTF-8 streams unless ``extra`` says otherwise."""
    return os.environ | {"PYTHONIOENCODING": "utf-8", "COLUMNS": "80"} | (extra or {})
