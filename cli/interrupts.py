"""Interrupts: Ctrl-C and SIGTERM stop an answer between two steps instead of the program."""

from __future__ import annotations

import _thread
import contextlib
import signal
import socket
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from types import FrameType, TracebackType
from typing import Any


class Interrupts:
    """While entered, the first signal calls ``cancel``; a second Ctrl-C is KeyboardInterrupt.

    It is called from another thread, at once, and from the handler: twice must do no harm.
    Without ``cancel`` Ctrl-C is only noted, however often it comes, and SIGTERM ends the
    program as always. ``exit_code`` is 128 + the signal's number once one came, else None.
    """

    def __init__(self, cancel: Callable[[], None] | None = None) -> None:
        self.exit_code: int | None = None
        self._cancel = cancel
        self._former: dict[signal.Signals, Any] = {}
        self._hearing = contextlib.ExitStack()

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is not threading.main_thread():
            return self  # only there can handlers be set, and only there do they run
        signals = (signal.SIGINT, signal.SIGTERM) if self._cancel else (signal.SIGINT,)
        for number in signals:
            self._former[number] = signal.signal(number, self._handle)
        if self._cancel:
            self._hearing.enter_context(heard_at_once(self._cancel, signals))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._hearing.close()
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._cancel and self.exit_code is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.exit_code = 128 + number
        if self._cancel:
            self._cancel()


@contextlib.contextmanager
def heard_at_once(
    act: Callable[[], None], signals: Collection[int] = (signal.SIGINT,)
) -> Iterator[None]:
    """While entered, ``act`` is called in a thread of its own the moment a signal comes.

    The handlers of Python run in the main thread, and only when it is not in native code: there
    it may stay for as long as a part of a prompt takes. To be entered in the main thread.
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)

    def listen() -> None:
        while numbers := reader.recv(64):
            if not set(numbers).isdisjoint(signals):
                act()

    thread = threading.Thread(target=listen, name="signals", daemon=True)
    thread.start()
    former = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(former)
        writer.close()  # which ends the thread
        thread.join()
        reader.close()


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """While entered, Ctrl-C waits; it comes at the end, for what must be done whole."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with Interrupts() as held:
        yield
    if held.exit_code is not None:
        signal.raise_signal(signal.SIGINT)


def interrupt_main_thread() -> None:
    """SIGINT for the main thread, as Ctrl-C is outside raw mode."""
    if sys.platform == "win32":
        _thread.interrupt_main()
        return
    ident = threading.main_thread().ident
    assert ident is not None
    signal.pthread_kill(ident, signal.SIGINT)
