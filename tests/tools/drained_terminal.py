"""A pseudo-terminal for benchmarks: nothing is drawn, what comes is only read away."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType


class DrainedTerminal:
    """Runs ``command``; a thread reads at once what it writes."""

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        *,
        columns: int = 100,
        rows: int = 30,
    ) -> None:
        self.output = b""
        self._arrived = threading.Condition()
        self._terminal, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.started = time.perf_counter()
        self._program = subprocess.Popen(
            command,
            stdin=side,
            stdout=side,
            stderr=side,
            env={**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **env},
            start_new_session=True,
        )
        os.close(side)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> DrainedTerminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._program.poll() is None:
            self._program.send_signal(signal.SIGTERM)
        self._program.wait(60)
        self._reader.join(10)
        os.close(self._terminal)

    def send(self, keys: bytes) -> None:
        os.write(self._terminal, keys)

    def wait_for(self, wanted: bytes, *, since: int = 0, timeout_s: float = 300.0) -> float:
        """The time at which ``wanted`` was there, in the output from ``since`` on."""
        end = time.perf_counter() + timeout_s
        with self._arrived:
            while wanted not in self.output[since:]:
                if self._program.poll() is not None or time.perf_counter() > end:
                    raise SystemExit(f"no {wanted!r} came; the last output: {self.output[-400:]!r}")
                self._arrived.wait(0.5)
            return time.perf_counter()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._terminal, 65536)
            except OSError:  # the program has ended
                return
            with self._arrived:
                self.output += data
                self._arrived.notify_all()
