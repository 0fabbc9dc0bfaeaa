"""The program as a user runs it: a process of its own, with its streams and exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

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


def environment(extra: dict[str, str] | None = None) -> dict[str, str]:
    """The environment of a run: this one's, with UTF-8 streams unless ``extra`` says otherwise."""
    return os.environ | {"PYTHONIOENCODING": "utf-8", "COLUMNS": "80"} | (extra or {})
