"""Lines on stdout, for the commands that answer with a few of them."""

from __future__ import annotations

from outrider.cli.errors import OutputError, printable


def print_lines(*lines: str) -> None:
    """Print the lines without control characters; OutputError when stdout cannot take them."""
    try:
        print(*map(printable, lines), sep="\n")
    except OSError as error:
        raise OutputError.of(error) from error
