"""Reading lines on a terminal that cannot move its cursor (``TERM=dumb``)."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from outrider.cli.glyphs import Glyphs
from outrider.cli.prompt.prompt import PromptLine


class NothingTyped:
    """Keys stay with the terminal until the next line is read."""

    preview = ""
    is_sent = False

    def unsend(self) -> None:
        pass


class LineKeyboard:
    """The terminal as it is, without echo while an answer is written."""

    suspend_asked = False
    fold_asked = False
    tint_asked = False

    def __enter__(self) -> LineKeyboard:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def suspend(self) -> None:
        pass

    def released(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def listening(self) -> Iterator[NothingTyped]:
        """While entered, nothing typed is echoed; lines typed are read afterwards."""
        with _no_echo():
            yield NothingTyped()


class LinePrompt:
    """One line, one message."""

    def __init__(self, glyphs: Glyphs) -> None:
        self._glyphs = glyphs

    def stopped(self) -> None:
        pass

    def read(self, default: str = "", *, send: bool = False) -> PromptLine:
        """The next line that is not blank; Ctrl-C gives a fresh one, Ctrl-D ends.

        ``default`` cannot wait in the input here: it stands above, as it was typed.
        """
        if send:
            print(f"{self._glyphs.prompt} {default}", flush=True)
            return PromptLine(default, is_pasted=True)
        while True:
            try:
                text = input(f"{self._glyphs.prompt} ")
            except KeyboardInterrupt:
                sys.stdout.write("\n")
                continue
            if text.strip():
                return PromptLine(text)


@contextlib.contextmanager
def _no_echo() -> Iterator[None]:
    if sys.platform == "win32":
        yield
        return
    import termios

    fd = sys.stdin.fileno()
    former = termios.tcgetattr(fd)
    changed = termios.tcgetattr(fd)
    # NOFLSH: Ctrl-C does not throw away what was typed
    changed[3] = (changed[3] & ~termios.ECHO) | termios.NOFLSH
    termios.tcsetattr(fd, termios.TCSANOW, changed)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSANOW, former)
