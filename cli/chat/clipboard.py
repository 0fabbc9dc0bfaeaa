"""The clipboard: of this desktop by its own tool, else of the user's terminal by OSC 52."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

from outrider.cli.errors import UsageError, printable

_TOOL_S = 5.0
_MOST_BYTES = 74_994  # with the marks around it 100,000 characters: more is cut by terminals


def copy_text(text: str, write: Callable[[str], None] | None) -> str:
    """Put ``text`` into the clipboard without its control characters; returns what was put there.

    ``write`` sends to the terminal, None if it knows no escape sequences.

    Raises:
        UsageError: there is no way to a clipboard here.
    """
    text = printable(text)
    if any(_is_taken(tool, text) for tool in _tools()):
        return text
    data = text.encode("utf-8", "replace")
    if write is None:
        raise UsageError("/copy: this terminal knows no clipboard; /save PATH writes a file")
    if len(data) > _MOST_BYTES:
        raise UsageError(
            f"/copy: {len(data):,} bytes, a terminal takes {_MOST_BYTES:,};"
            " /copy code takes a part, /save PATH writes a file"
        )
    # the terminal may be on another machine than this program; it gives no answer
    write(f"\x1b]52;c;{base64.b64encode(data).decode()}\a")
    return text


def _tools() -> Iterator[list[str]]:
    """Commands that take a text for the clipboard the user sees, the surest first."""
    environment = os.environ
    if not (environment.get("SSH_CONNECTION") or environment.get("SSH_TTY")):
        if sys.platform == "darwin":
            yield ["pbcopy"]
        if sys.platform == "win32" or environment.get("WSL_DISTRO_NAME"):
            yield ["clip.exe"]
        if environment.get("WAYLAND_DISPLAY"):
            yield ["wl-copy"]
        if environment.get("DISPLAY"):
            yield ["xclip", "-selection", "clipboard"]
            yield ["xsel", "--clipboard", "--input"]
    if environment.get("TMUX"):  # it keeps OSC 52 of programs to itself, but sends its own
        yield ["tmux", "load-buffer", "-w", "-"]


def _is_taken(tool: list[str], text: str) -> bool:
    """Run ``tool``; False if it is not there or fails."""
    is_windows = tool[0] == "clip.exe"
    try:
        subprocess.run(
            tool,
            input=text.encode("utf-16" if is_windows else "utf-8", "replace"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ if is_windows else {**os.environ, "LC_CTYPE": "UTF-8"},
            start_new_session=True,  # what serves the text stays when the chat is left
            timeout=_TOOL_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return True
