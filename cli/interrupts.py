"""Interrupts: Ctrl-C and SIGTERM stop an answer between two steps instead of the program."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any


class Interrupts:
    """While entered, the first signal calls ``cancel``; a second Ctrl-C is KeyboardInterrupt.

    Without ``cancel`` Ctrl-C is only noted, however often it comes, and SIGTERM ends the
    program as always. ``exit_code`` is 128 + the signal's number once one came, else None.
    """

    def __init__(self, cancel: Callable[[], None] | None = None) -> None:
        self.exit_code: int | None = None
        self._cancel = cancel
        self._former: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is not threading.main_thread():
            return self  # only there can handlers be set, and only there do they run
        signals = (signal.SIGINT, signal.SIGTERM) if self._cancel else (signal.SIGINT,)
        for number in signals:
            self._former[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._cancel and self.exit_code is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.exit_code = 128 + number
        if self._cancel:
            self._cancel()
