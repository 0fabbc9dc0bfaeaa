"""A run of the program: what goes wrong becomes one line and an exit code."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Sequence

from outrider.cli.errors import OutputError, report


def run_program(words: Sequence[str]) -> int:
    """Run the command line ``words`` and return the exit code."""
    verbose = _is_verbose(words)
    _prepare_streams(verbose)
    try:
        from outrider.cli.app import command

        code = command().main([*words], prog_name="outrider", standalone_mode=False)
        _flush()
    except OutputError as error:
        _abandon_stdout()
        return 0 if error.reader_is_gone else report(error, verbose=verbose)
    except SystemExit as leaving:
        if not isinstance(leaving.__context__, BrokenPipeError):
            raise
        _abandon_stdout()  # typer and rich leave this way when the reader of stdout is gone
        return 0
    except (Exception, KeyboardInterrupt) as error:
        return report(error, verbose=verbose)
    return code if isinstance(code, int) else 0


def _flush() -> None:
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        raise OutputError.of(error) from error


def _is_verbose(words: Sequence[str]) -> bool:
    options = words[: words.index("--")] if "--" in words else words
    return "-v" in options or "--verbose" in options


def _prepare_streams(verbose: bool) -> None:
    """Let no character crash stdout, and no log line reach stderr unless ``verbose``."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    if verbose:
        logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    else:
        logging.getLogger().addHandler(logging.NullHandler())


def _abandon_stdout() -> None:
    """Point stdout at nothing: what it still holds cannot be written and must not fail at exit."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)
