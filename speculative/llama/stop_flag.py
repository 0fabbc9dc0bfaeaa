"""StopFlag: a byte that llama.cpp looks at between two operations of a decode."""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any


class StopFlag:
    """Breaks off a decode that is under way; may be set from any thread."""

    def __init__(self) -> None:
        self._text = ctypes.create_string_buffer(2)

    def set(self) -> None:
        self._text[0] = b"x"

    def clear(self) -> None:
        self._text[0] = b"\0"

    @property
    def address(self) -> int:
        """What :func:`is_set_function` is to be called with."""
        return ctypes.addressof(self._text)


@functools.cache
def is_set_function() -> Any:
    """A C function ``bool (void *)`` that says whether the flag at an address is set.

    It is strlen: the length of a text of no or one character is false or true, in the register
    where a bool is returned. llama.cpp asks hundreds of times a decode. A Python function there
    would take the interpreter's lock each time, and an exception of a signal that arrives inside
    it would be lost.
    """
    return (ctypes.cdll.msvcrt if sys.platform == "win32" else ctypes.CDLL(None)).strlen
