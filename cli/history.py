"""The history file: every message typed, kept across chats."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from prompt_toolkit.history import FileHistory


def history_path() -> Path:
    """Where messages are remembered, in the user's state folder."""
    from platformdirs import user_state_path

    return user_state_path("outrider", appauthor=False) / "history"


class MessageHistory(FileHistory):
    """A history file that never ends a chat: if it cannot be used, ``tell`` hears why, once."""

    def __init__(self, path: Path, tell: Callable[[str], None]) -> None:
        self._path = path
        self._tell = tell
        self._told = False
        super().__init__(path)

    def load_history_strings(self) -> Iterable[str]:
        try:
            return list(super().load_history_strings())
        except OSError as error:
            self._failed(error)
            return []

    def store_string(self, string: str) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # only the user reads what the user typed
            os.close(os.open(self._path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
            super().store_string(string)
        except OSError as error:
            self._failed(error)

    def _failed(self, error: OSError) -> None:
        if not self._told:
            self._told = True
            self._tell(f"history not kept: {self._path}: {error.strerror}")
