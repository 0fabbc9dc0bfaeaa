"""The keys of the whole chat: raw mode once, and what is typed while an answer is written."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue

from prompt_toolkit.input import Input
from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys

PASTE_ON, PASTE_OFF, SHOW_CURSOR = "\x1b[?2004h", "\x1b[?2004l", "\x1b[?25h"
_ASK_CURSOR = "\x1b[6n"
_ESCAPE_WAIT_S = 0.1
# keys that mean nothing until the prompt is back
_IGNORED = {
    Keys.ControlD,
    Keys.ControlG,
    Keys.ControlI,
    Keys.ControlL,
    Keys.ControlO,
    Keys.Ignore,
}


class TypeAhead:
    """Keys typed during an answer, for the next prompt."""

    def __init__(self) -> None:
        self.keys: list[KeyPress] = []
        self._text = ""
        self._lock = threading.Lock()

    def add(self, press: KeyPress) -> None:
        if press.key in _IGNORED:
            return
        with self._lock:
            self.keys.append(press)
        if press.key in (Keys.ControlM, Keys.ControlJ):
            self._text += "\n"
        elif press.key is Keys.ControlH:
            self._text = self._text[:-1]
        elif press.key is Keys.BracketedPaste or not isinstance(press.key, Keys):
            self._text += press.data

    @property
    def preview(self) -> str:
        """What the keys will have written, on one line."""
        return " ".join(self._text.split())

    @property
    def is_sent(self) -> bool:
        """Whether the keys end with Enter."""
        return bool(self.keys) and self.keys[-1].key is Keys.ControlM

    def unsend(self) -> None:
        """Turn every Enter into a new line: the text waits in the prompt."""
        with self._lock:
            while self.is_sent:
                self.keys.pop()
            self.keys = [
                KeyPress(Keys.ControlJ, "\n") if press.key is Keys.ControlM else press
                for press in self.keys
            ]


class Keyboard:
    """The terminal in raw mode for the whole chat, so that nothing typed is ever echoed.

    ``write`` sends to the terminal. Ctrl-C reaches the program as SIGINT while it listens.
    """

    def __init__(self, keys: Input, write: Callable[[str], None]) -> None:
        self.suspend_asked = False
        self.fold_asked = False
        self._input = keys
        self._write = write
        self._modes = contextlib.ExitStack()
        self._cursor_columns: SimpleQueue[int] = SimpleQueue()

    def __enter__(self) -> Keyboard:
        self._enter_modes()
        return self

    def __exit__(self, *exception: object) -> None:
        self._leave_modes()

    @contextlib.contextmanager
    def listening(self) -> Iterator[TypeAhead]:
        """While entered, keys are kept for the next prompt and Ctrl-C interrupts."""
        typed = TypeAhead()
        try:
            # what was pressed after Enter, before the prompt let go of the keys
            for press in get_typeahead(self._input):
                self._take(press, typed)
            with self._reader(typed) if sys.platform != "win32" else contextlib.nullcontext():
                yield typed
        finally:
            store_typeahead(self._input, typed.keys)

    def cursor_column(self, timeout_s: float = 0.2) -> int | None:
        """Ask the terminal where the cursor is; only while listening."""
        with contextlib.suppress(Empty):
            while True:
                self._cursor_columns.get_nowait()
        self._write(_ASK_CURSOR)
        with contextlib.suppress(Empty):
            return self._cursor_columns.get(timeout=timeout_s)
        return None

    def suspend(self) -> None:
        """Give the terminal back to the shell; returns when the program is continued."""
        self.suspend_asked = False
        self._leave_modes()
        os.kill(0, signal.SIGTSTP)
        self._enter_modes()

    def _enter_modes(self) -> None:
        self._modes.enter_context(self._input.raw_mode())
        self._write(PASTE_ON)

    def _leave_modes(self) -> None:
        self._write(PASTE_OFF + SHOW_CURSOR)
        self._modes.close()

    @contextlib.contextmanager
    def _reader(self, typed: TypeAhead) -> Iterator[None]:
        wake_read, wake_write = os.pipe()
        thread = threading.Thread(target=self._read, args=(typed, wake_read), daemon=True)
        thread.start()
        try:
            yield
        finally:
            os.write(wake_write, b"x")
            thread.join()
            os.close(wake_read)
            os.close(wake_write)

    def _read(self, typed: TypeAhead, wake: int) -> None:
        timeout: float | None = None
        while True:
            ready, _, _ = select.select([self._input.fileno(), wake], [], [], timeout)
            if wake in ready or self._input.closed:
                return
            if not ready:
                # a lone Escape, which means nothing here
                self._input.flush_keys()
                timeout = None
                continue
            timeout = _ESCAPE_WAIT_S
            for press in self._input.read_keys():
                self._take(press, typed)

    def _take(self, press: KeyPress, typed: TypeAhead) -> None:
        if press.key in (Keys.ControlC, Keys.SIGINT):
            interrupt_main_thread()
        elif press.key is Keys.CPRResponse:
            self._cursor_columns.put(int(press.data[:-1].split(";")[1]) - 1)
        elif press.key is Keys.ControlZ:
            self.suspend_asked = True
        elif press.key is Keys.ControlT:
            self.fold_asked = True
        elif press.key is Keys.ControlBackslash:
            self._leave_modes()
            os._exit(128 + 3)
        else:
            typed.add(press)


def interrupt_main_thread() -> None:
    """SIGINT for the main thread, as Ctrl-C is outside raw mode."""
    ident = threading.main_thread().ident
    assert ident is not None
    signal.pthread_kill(ident, signal.SIGINT)
