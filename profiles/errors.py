"""The error of this package: bad input or configuration, exit code 2."""

from __future__ import annotations


class ProfileError(Exception):
    """A profile or a value that cannot work.

    ``lines`` has one line for each fault found; the message itself is always one line.
    """

    def __init__(self, *lines: str) -> None:
        self.lines = lines
        more = len(lines) - 1
        super().__init__(lines[0] + (f" (and {more} more)" if more else ""))


class SourceError(Exception):
    """A model file could not be fetched: exit code 1, one line that says what to do."""
