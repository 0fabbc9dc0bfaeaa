"""A real pseudo-terminal with an emulator behind it: run a command, press keys, read the screen."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

import pexpect
import pyte
from tools.xterm_screen import XtermScreen

CTRL_C, CTRL_D, CTRL_J, CTRL_Z, ENTER, UP, ALT_ENTER = (
    "\x03",
    "\x04",
    "\n",
    "\x1a",
    "\r",
    "\x1b[A",
    "\x1b\r",
)
_DEADLINE_S = 30.0
_HISTORY_ROWS = 2000


def paste(text: str) -> str:
    """Keys of a bracketed paste."""
    return f"\x1b[200~{text}\x1b[201~"


class Terminal:
    """Runs ``command`` in a pseudo-terminal; every wait has a deadline and shows the screen.

    ``answer_after_s`` is how late the program hears where its cursor is.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        columns: int = 80,
        rows: int = 24,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        deadline_s: float = _DEADLINE_S,
        answer_after_s: float = 0.0,
    ) -> None:
        self.raw = ""
        self._deadline_s = deadline_s
        self._answer_after_s = answer_after_s
        self._answers: list[tuple[float, str]] = []  # when to give them
        self._screen = XtermScreen(columns, rows, _HISTORY_ROWS, self._answer)
        self._stream = pyte.Stream(self._screen)
        environment = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **(env or {})}
        self._child = pexpect.spawn(
            command[0],
            list(command[1:]),
            dimensions=(rows, columns),
            env=environment,
            cwd=cwd,
            encoding="utf-8",
            codec_errors="replace",
        )
        self._child.delaybeforesend = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._child.close(force=True)

    @property
    def pid(self) -> int:
        return int(self._child.pid or 0)

    @property
    def exit_code(self) -> int | None:
        """The exit code, or minus the signal that ended the program."""
        if self._child.exitstatus is not None:
            return int(self._child.exitstatus)
        signal = self._child.signalstatus
        return None if signal is None else -int(signal)

    @property
    def echo(self) -> bool:
        """Whether the terminal echoes what is typed."""
        return bool(self._child.getecho())

    @property
    def title(self) -> str:
        """What the program has called the window."""
        return str(self._screen.title)

    @property
    def cursor_visible(self) -> bool:
        return not self._screen.cursor.hidden

    @property
    def bracketed_paste(self) -> bool:
        """Whether the program has the terminal bracket pastes."""
        return self.raw.rfind("\x1b[?2004h") > self.raw.rfind("\x1b[?2004l")

    @property
    def is_to_answer(self) -> bool:
        """Whether the program has still to hear where its cursor is."""
        return bool(self._answers)

    def send(self, keys: str) -> None:
        self._child.send(keys)

    def resize(self, columns: int, rows: int) -> None:
        self.read()
        self._screen.resize(rows, columns)
        self._child.setwinsize(rows, columns)

    def lines(self) -> list[str]:
        """The scrollback and the screen, without blanks at the ends of lines."""
        history = [
            "".join(line[column].data for column in range(self._screen.columns))
            for line in self._screen.history.top
        ]
        return [line.rstrip() for line in [*history, *self._screen.display]]

    def text(self) -> str:
        return "\n".join(self.lines()).rstrip()

    def screen(self) -> list[str]:
        """The rows in view."""
        return [line.rstrip() for line in self._screen.display]

    def read(self, timeout_s: float = 0.0) -> bool:
        """Take what the program has written so far; False if it has closed the terminal."""
        while self._answers and self._answers[0][0] <= time.monotonic():
            self.send(self._answers.pop(0)[1])
        while True:
            try:
                data = self._child.read_nonblocking(65536, timeout=timeout_s)
            except pexpect.TIMEOUT:
                return True
            except pexpect.EOF:
                return False
            self.raw += data
            self._stream.feed(data)
            timeout_s = 0.0

    def _answer(self, text: str) -> None:
        if self._answer_after_s:
            self._answers.append((time.monotonic() + self._answer_after_s, text))
        else:
            self.send(text)

    def wait_for(self, wanted: str, *, count: int = 1) -> None:
        """Wait until ``wanted`` is in the scrollback or on the screen ``count`` times."""
        self.wait(lambda: self.text().count(wanted) >= count, f"{wanted!r} {count} times")

    def wait_match(self, pattern: str) -> None:
        """Wait until a text that ``pattern`` matches is in the scrollback or on the screen."""
        self.wait(lambda: re.search(pattern, self.text()) is not None, repr(pattern))

    def wait_gone(self, unwanted: str) -> None:
        """Wait until ``unwanted`` is nowhere to be seen."""
        self.wait(lambda: unwanted not in self.text(), f"no {unwanted!r}")

    def wait_exit(self) -> int | None:
        """Wait until the program has ended; return its exit code."""
        end = time.monotonic() + self._deadline_s
        while self.read(0.05):
            assert time.monotonic() < end, f"still running:\n{self.text()}"
        self._child.wait()
        return self.exit_code

    def wait(self, is_there: Callable[[], bool], what: str) -> None:
        """Wait until ``is_there``; ``what`` is named when it does not come."""
        end = time.monotonic() + self._deadline_s
        while not is_there():
            is_open = self.read(0.05)
            if is_there():
                return
            assert is_open, f"the program ended before {what}:\n{self.text()}"
            assert time.monotonic() < end, f"no {what} in time:\n{self.text()}"
