"""A program inside tmux, a terminal that wraps its rows anew when it is resized."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import pytest

_DEADLINE_S = 120.0
_HISTORY_ROWS = 5000


class Tmux:
    """Runs ``command`` in a tmux of its own; fails where there is no tmux."""

    def __init__(self, command: Sequence[str], folder: Path, *, columns: int, rows: int) -> None:
        if shutil.which("tmux") is None:
            pytest.fail("this test needs tmux (apt install tmux, brew install tmux)")
        self._base = ["tmux", "-f", os.devnull, "-S", str(folder / "tmux")]
        size = ["-x", str(columns), "-y", str(rows)]
        self._tmux("new-session", "-d", *size, "sleep 600")  # keeps the server alive
        self._tmux("set-option", "-g", "history-limit", str(_HISTORY_ROWS))
        self._tmux("set-option", "-g", "status", "off")
        environment = {"LC_ALL": "C.UTF-8", "PYTHONUTF8": "1"}
        settings = [f"{name}={value}" for name, value in environment.items()]
        self._pid_file = folder / "pid"
        words = ["sh", "-c", 'echo $$ > "$0"; exec "$@"', str(self._pid_file), "env", *settings]
        # a shell around it: tmux would continue its own child as soon as somebody stops it
        self._tmux("new-window", "-d", "-t", ":9", f"{shlex.join([*words, *command])}; exit")
        Tmux.resize(self, columns, rows)

    def __enter__(self) -> Tmux:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._tmux("kill-server")

    @property
    def pid(self) -> int:
        return int(self._pid_file.read_text())

    def resize(self, columns: int, rows: int) -> None:
        self._tmux("resize-window", "-t", ":9", "-x", str(columns), "-y", str(rows))

    def send(self, text: str) -> None:
        """Type ``text``."""
        self._tmux("send-keys", "-t", ":9", "-l", text)

    def rest(self, seconds: float) -> None:
        time.sleep(seconds)

    def text(self) -> str:
        """The scrollback and the screen, rows that were wrapped joined again."""
        return self._tmux("capture-pane", "-p", "-J", "-S", "-", "-t", ":9")

    def cursor(self) -> tuple[int, int, int]:
        """Its column, the rows above it and the rows below it."""
        words = "#{cursor_x} #{cursor_y} #{pane_height}"
        column, row, height = map(int, self._tmux("display", "-p", "-t", ":9", words).split())
        return column, row, height - row - 1

    def screen(self) -> list[str]:
        """The rows in view."""
        return self._tmux("capture-pane", "-p", "-t", ":9").splitlines()

    def wait_for(self, wanted: str) -> None:
        self.wait_match(re.escape(wanted))

    def wait_match(self, pattern: str) -> None:
        """Wait until a text that ``pattern`` matches is in the scrollback or on the screen."""
        end = time.monotonic() + _DEADLINE_S
        while not re.search(pattern, self.text()):
            assert time.monotonic() < end, f"no {pattern!r} in time:\n{self.text()}"
            self.rest(0.1)

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            [*self._base, *words], capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout
