"""One line on stderr and an exit code for everything that can go wrong."""

from __future__ import annotations

import contextlib
import re
import sys
import traceback

import typer

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class UsageError(typer.TyperException):
    """The command line, a file it names or the prompt cannot work: exit code 2."""

    exit_code = 2


class OutputError(Exception):
    """Stdout cannot be written: exit code 1, or silence if its reader has had enough."""

    def __init__(self, message: str, *, reader_is_gone: bool = False) -> None:
        self.reader_is_gone = reader_is_gone
        super().__init__(message)

    @classmethod
    def of(cls, error: OSError) -> OutputError:
        """What ``error``, raised while writing to stdout, means."""
        is_gone = isinstance(error, BrokenPipeError)
        return cls(f"stdout: {error.strerror}", reader_is_gone=is_gone)


def printable(text: str) -> str:
    """``text`` without control characters (newline and tab stay).

    Model text, file names and messages go through here before a terminal sees them: an
    escape sequence in them could retitle or recolour it.
    """
    return _CONTROL.sub("", text)


def exit_code(error: BaseException) -> int:
    """The exit code that ``error`` ends the program with."""
    from outrider.profiles.errors import ProfileError
    from outrider.speculative.errors import InputError

    if isinstance(error, (KeyboardInterrupt, typer.Abort)):
        return 130
    if isinstance(error, typer.TyperException):
        return error.exit_code
    return 2 if isinstance(error, (InputError, ProfileError)) else 1


def message(error: BaseException) -> str:
    """What went wrong, in one printable line."""
    from outrider.profiles.errors import ProfileError, SourceError
    from outrider.speculative.errors import EngineError

    if isinstance(error, typer.TyperException):
        text = error.format_message()
    elif isinstance(error, OSError):
        text = _os_error(error)
    elif isinstance(error, (EngineError, ProfileError, SourceError, OutputError)):
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error}; -v shows where (please report it)"
    return printable(" ".join(text.split()))


def report(error: BaseException, *, verbose: bool) -> int:
    """Print ``error`` on stderr, with its traceback if ``verbose``; return the exit code."""
    if isinstance(error, (KeyboardInterrupt, typer.Abort)):
        return exit_code(error)
    if verbose and not isinstance(error, typer.TyperException):
        traceback.print_exception(error)
    say(f"outrider: error: {message(error)}")
    return exit_code(error)


def say(line: str) -> None:
    """Print one line on stderr; a closed stderr is no reason to fail."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print(line, file=sys.stderr, flush=True)


def _os_error(error: OSError) -> str:
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename else reason
