"""The history file: every message typed, kept across chats.

The format is prompt_toolkit's, with one more comment that says where pastes stand in an entry.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path

from prompt_toolkit.history import History

from outrider.cli.prompt.paste_chips import PasteChips, Span

_PASTED = "# pasted "
# of an old and long history only the end is read: it must not delay the prompt
_MOST_BYTES = 4 << 20
_MOST_ENTRY_BYTES = 1 << 20


def history_path() -> Path:
    """Where messages are remembered, in the user's state folder."""
    from platformdirs import user_state_path

    return user_state_path("outrider", appauthor=False) / "history"


class MessageHistory(History):
    """A history file that never ends a chat: if it cannot be used, ``tell`` hears why, once.

    In memory the entries are input lines with ``chips``, in the file the whole text.
    """

    def __init__(self, path: Path, tell: Callable[[str], None], chips: PasteChips) -> None:
        self._path = path
        self._tell = tell
        self._told = False
        self._chips = chips
        super().__init__()

    def load_history_strings(self) -> Iterable[str]:
        """The entries as input lines, newest first."""
        try:
            text = _tail(self._path)
        except FileNotFoundError:
            return []
        except OSError as error:
            self._failed(error)
            return []
        return reversed([self._chips.fold_spans(*entry) for entry in _entries(text)])

    def store_string(self, string: str) -> None:
        spans = " ".join(f"{start}-{end}" for start, end in self._chips.spans(string))
        whole = self._chips.unfold(string).replace("\n", "\n+")
        pasted = f"{_PASTED}{spans}\n" if spans else ""
        entry = f"\n# {datetime.now()}\n{pasted}+{whole}\n".encode("utf-8", "replace")
        if len(entry) > _MOST_ENTRY_BYTES:
            return  # it would crowd out all others
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # only the user reads what the user typed
            file = os.open(self._path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
            with open(file, "ab") as stream:
                stream.write(entry)
        except OSError as error:
            self._failed(error)

    def _failed(self, error: OSError) -> None:
        if not self._told:
            self._told = True
            self._tell(f"history not kept: {self._path}: {error.strerror}")


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _MOST_BYTES))
        return file.read().decode("utf-8", "replace")


def _entries(text: str) -> Iterable[tuple[str, list[Span]]]:
    """The entries, oldest first, and where pastes stand in each; no half entry."""
    lines: list[str] | None = None
    spans: list[Span] = []
    for line in [*text.split("\n"), ""]:
        if line.startswith("+"):
            if lines is not None:
                lines.append(line[1:])
            continue
        if lines:
            yield "\n".join(lines), spans
            lines, spans = [], []
        if line.startswith("# "):
            lines = []
        if line.startswith(_PASTED):
            spans = [(int(start), int(end)) for start, end in re.findall(r"(\d+)-(\d+)", line)]
