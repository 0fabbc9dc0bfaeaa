"""The keys of the whole chat: raw mode once, and what is typed while an answer is written."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue

from prompt_toolkit.input import Input
from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys

from outrider.cli.interrupts import interrupt_main_thread, interrupts_held
from outrider.cli.prompt.keys import clean_paste
from outrider.cli.prompt.paste_chips import is_large, paste_label
from outrider.cli.prompt.paste_parser import BACKGROUND

PASTE_ON, PASTE_OFF, SHOW_CURSOR = "\x1b[?2004h", "\x1b[?2004l", "\x1b[?25h"
_ASK_CURSOR = "\x1b[6n"
_ESCAPE_WAIT_S = 0.1
_LATEST_ANSWER_S = 2.0
# keys that mean nothing until the prompt is back
_IGNORED = {
    Keys.ControlD,
    Keys.ControlG,
    Keys.ControlI,
    Keys.ControlL,
    Keys.Ignore,
}


class TypeAhead:
    """Keys typed during an answer, for the next prompt."""

    def __init__(self) -> None:
        self.keys: list[KeyPress] = []
        self._pieces: list[str] = []
        self._lock = threading.Lock()

    def add(self, press: KeyPress) -> None:
        if press.key in _IGNORED:
            return
        with self._lock:
            self.keys.append(press)
        if press.key in (Keys.ControlM, Keys.ControlJ):
            self._pieces.append("\n")
        elif press.key is Keys.ControlH:
            del self._pieces[-1:]
        elif press.key is Keys.BracketedPaste:
            text = clean_paste(press.data)
            self._pieces += [paste_label(text)] if is_large(text) else text
        elif not isinstance(press.key, Keys):
            self._pieces.append(press.data)

    @property
    def preview(self) -> str:
        """What the keys will have written, on one line."""
        return " ".join("".join(self._pieces).split())

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
    ``background`` is what the terminal last said about its background colour.
    """

    def __init__(self, keys: Input, write: Callable[[str], None]) -> None:
        self.suspend_asked = False
        self.fold_asked = False
        self.tint_asked = False
        self.background = ""
        self._input = keys
        self._write = write
        self._modes = contextlib.ExitStack()
        self._cursor_columns: SimpleQueue[int] = SimpleQueue()
        self._num_due = 0
        self._due_until = 0.0

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
            with interrupts_held():
                for press in get_typeahead(self._input):
                    self._take(press, typed)
            with self._reader(typed) if sys.platform != "win32" else contextlib.nullcontext():
                yield typed
        finally:
            store_typeahead(self._input, typed.keys)

    def cursor_column(self, timeout_s: float = 0.2) -> int | None:
        """Ask the terminal where the cursor is; only while listening."""
        columns = self.cursor_columns(_ASK_CURSOR, 1, timeout_s)
        return columns[0] if columns else None

    def cursor_columns(self, query: str, count: int, timeout_s: float) -> list[int]:
        """Where the cursor was each time that ``query`` asks, as far as answers come in time."""
        with contextlib.suppress(Empty):
            while True:
                self._cursor_columns.get_nowait()
        self.expect_answers(query.count(_ASK_CURSOR))
        self._write(query)
        columns: list[int] = []
        end = time.monotonic() + timeout_s
        with contextlib.suppress(Empty):
            while len(columns) < count:
                left = max(0.0, end - time.monotonic())
                columns.append(self._cursor_columns.get(timeout=left))
        return columns

    def expect_answers(self, count: int) -> None:
        """The terminal is asked where the cursor is, ``count`` times."""
        self._num_due, self._due_until = count, time.monotonic() + _LATEST_ANSWER_S

    def suspend(self) -> None:
        """Give the terminal back to the shell; returns when the program is continued."""
        self.suspend_asked = False
        with self.released():
            os.kill(0, signal.SIGTSTP)

    @contextlib.contextmanager
    def released(self) -> Iterator[None]:
        """While entered, the terminal is as it was before the chat: another program may use it."""
        self._leave_modes()
        try:
            yield
        finally:
            self._enter_modes()

    def _enter_modes(self) -> None:
        self._modes.enter_context(self._input.raw_mode())
        self._write(PASTE_ON)

    def _leave_modes(self) -> None:
        with interrupts_held():
            self._take_answers()
            self._write(PASTE_OFF + SHOW_CURSOR)
            self._modes.close()

    def _take_answers(self) -> None:
        """Read what the terminal still has to answer, or whoever has it next gets that as keys."""
        typed = TypeAhead()
        while sys.platform != "win32" and self._num_due > 0 and not self._input.closed:
            left = self._due_until - time.monotonic()
            if left <= 0 or not select.select([self._input.fileno()], [], [], left)[0]:
                break
            for press in self._input.read_keys():
                if press.key is Keys.CPRResponse:
                    self._num_due -= 1
                else:
                    typed.add(press)
        store_typeahead(self._input, typed.keys)

    @contextlib.contextmanager
    def _reader(self, typed: TypeAhead) -> Iterator[None]:
        wake_read, wake_write = os.pipe()
        thread = threading.Thread(target=self._read, args=(typed, wake_read), daemon=True)
        try:
            with interrupts_held():  # a reader that nobody ends would take all keys to come
                thread.start()
            yield
        finally:
            with interrupts_held():
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
            self._num_due -= 1
            self._cursor_columns.put(int(press.data[:-1].split(";")[1]) - 1)
        elif press.key is Keys.Ignore and press.data.startswith(BACKGROUND):
            self.background = press.data
        elif press.key is Keys.ControlZ:
            self.suspend_asked = True
        elif press.key is Keys.ControlT:
            self.fold_asked = True
        elif press.key is Keys.ControlO:
            self.tint_asked = True
        elif press.key is Keys.ControlBackslash:
            self._leave_modes()
            os._exit(128 + 3)
        else:
            typed.add(press)
