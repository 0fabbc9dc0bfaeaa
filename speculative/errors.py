"""Errors the engine raises. Each message is one line that says what to do."""

from __future__ import annotations


class EngineError(Exception):
    """Something failed while running: exit code 1."""


class InputError(EngineError):
    """The caller gave something that cannot work (a file, a value, a pair): exit code 2."""


class PromptTooLongError(InputError):
    """The prompt does not fit the context.

    Attributes:
        needed: tokens the prompt has, plus one for an answer.
        available: tokens the context holds.
    """

    def __init__(self, needed: int, available: int) -> None:
        self.needed = needed
        self.available = available
        super().__init__(
            f"the prompt does not fit the context: needs {needed:,} tokens, has {available:,};"
            " give a larger --ctx-size or a shorter prompt"
        )


class DecodeStoppedError(EngineError):
    """A decode was broken off because somebody asked for it; the text can go on from before it."""


class CacheFullError(EngineError):
    """The cache that all slots share has no room for the coming step; nothing was changed."""
