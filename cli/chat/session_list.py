"""The saved chats of the folder, the newest first, and the table that ``/sessions`` shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from rich.cells import cell_len, set_cell_size

from outrider.cli.chat.saved_conversation import SavedConversation
from outrider.cli.chat.transcript import Transcript, saved_sessions, session_path, sessions_folder
from outrider.cli.errors import UsageError, printable
from outrider.cli.glyphs import UNICODE, Glyphs
from outrider.cli.stats_view import plural

SHOWN_SESSIONS = 20
"""Rows of ``/sessions``; ``/sessions all`` has no limit."""

_NARROW = 60
_MOST_LINES = 8  # of a message that is shown again
_BEGINNING = 400  # characters of a message that can be of use in a row
_MOST_NAMES = 3  # of damaged files in a note


@dataclass(frozen=True, slots=True)
class SavedSession:
    """One saved chat as a row of the table."""

    path: Path
    changed: datetime
    turns: int
    profile: str
    begins: str

    @classmethod
    def read(cls, path: Path) -> SavedSession:
        """Raises UsageError or OSError if the file is no saved chat."""
        if not path.is_file():  # a pipe of that name would keep us waiting
            raise UsageError(f"{path}: not a file")
        turns = Transcript.load(path).turns
        changed = datetime.fromtimestamp(path.stat().st_mtime)
        profile = turns[-1].details.get("profile") if turns else None
        begins = turns[0].message[:_BEGINNING] if turns else ""
        return cls(path, changed, len(turns), str(profile or ""), " ".join(begins.split()))


@dataclass(frozen=True, slots=True)
class SessionList:
    """Saved chats, the newest first. ``damaged`` are files among them that are none."""

    sessions: tuple[SavedSession, ...]
    damaged: tuple[str, ...] = ()
    num_older: int = 0

    @classmethod
    def read(cls, most: int | None = SHOWN_SESSIONS) -> SessionList:
        """The newest ``most`` chats of the folder."""
        sessions: list[SavedSession] = []
        damaged: list[str] = []
        names = saved_sessions()
        while names and (most is None or len(sessions) < most):
            path = sessions_folder() / f"{names.pop(0)}.json"
            try:
                sessions.append(SavedSession.read(path))
            except (UsageError, OSError):
                damaged.append(path.name)
        return cls(tuple(sessions), tuple(damaged), len(names))

    @property
    def note(self) -> str | None:
        """What is said about the damaged files."""
        if not self.damaged:
            return None
        more = len(self.damaged) - _MOST_NAMES
        names = ", ".join(self.damaged[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
        return f"skipped, not a saved chat: {names}"

    def rows(
        self, present: Path, width: int, glyphs: Glyphs = UNICODE, now: datetime | None = None
    ) -> list[str]:
        """The table; ``present`` is the chat that goes on here."""
        present = present.resolve()
        is_present = [session.path.resolve() == present for session in self.sessions]
        cells = [
            (
                ">" if is_present[number - 1] else " ",
                str(number),
                "now" if is_present[number - 1] else when_words(session.changed, now),
                f"{session.turns:,}",
                printable(session.profile) or glyphs.dash,
                printable(session.begins) or glyphs.dash,
            )
            for number, session in enumerate(self.sessions, 1)
        ]
        return _narrow(cells, width, glyphs) if width < _NARROW else _wide(cells, width, glyphs)


def open_conversation(
    system: str | None, session: str | None, *, newest: bool = False
) -> tuple[SavedConversation, str | None]:
    """The conversation that a chat begins with, and a note about damaged files.

    ``session`` names a saved one, or the file of a new one; ``newest`` takes the last one saved.

    Raises:
        UsageError: the file is no saved chat, or there is none.
    """
    conversation, note = SavedConversation(system), None
    try:
        if newest:
            found = SessionList.read(most=1)
            note = found.note
            if not found.sessions:
                why = f" ({note})" if note else ""
                raise UsageError(f"--continue: no saved chat yet{why}; outrider chat begins one")
            conversation.open(found.sessions[0].path)
        elif session is not None:
            conversation.open(named_path(session, "--session"))
    except OSError as error:
        raise UsageError(f"--session {session}: {error.strerror or error}") from None
    return conversation, note


def named_path(name: str, where: str) -> Path:
    """The file of a chat that ``where`` names; numbers are rows of ``/sessions``, no names."""
    if not name or name.isdecimal():
        raise UsageError(f"{where} {name}: allowed: a name that is not a number, or a path")
    return session_path(name)


def when_words(changed: datetime, now: datetime | None = None) -> str:
    """``11:02`` today, ``yesterday``, ``12 Nov`` this year, ``2025-11-12`` before it."""
    now = now or datetime.now()
    if changed.date() == now.date():
        return f"{changed:%H:%M}"
    if changed.date() == now.date() - timedelta(days=1):
        return "yesterday"
    return f"{changed.day} {changed:%b}" if changed.year == now.year else f"{changed:%Y-%m-%d}"


def message_rows(message: str, glyphs: Glyphs = UNICODE) -> list[str]:
    """A message as the prompt left it; of a long one the beginning."""
    lines = f"{glyphs.prompt} {message.rstrip()}".split("\n")
    more = len(lines) - _MOST_LINES
    return lines[:_MOST_LINES] + (
        [f"{glyphs.ellipsis} {plural(more, 'more line')}"] if more > 0 else []
    )


def shorten(text: str, width: int, glyphs: Glyphs = UNICODE) -> str:
    """The beginning of ``text`` in at most ``width`` cells, an ellipsis where it was cut."""
    if cell_len(text) <= width:
        return text
    room = max(0, width - cell_len(glyphs.ellipsis))
    return set_cell_size(text, room).rstrip(" .,;:") + glyphs.ellipsis


Cells = tuple[str, str, str, str, str, str]


def _wide(cells: Sequence[Cells], width: int, glyphs: Glyphs) -> list[str]:
    when = max(9, *(len(row[2]) for row in cells))
    profile = min(20, max(11, *(cell_len(row[4]) for row in cells)))
    table = [("", "#", "when", "turns", "profile", "begins"), *cells]
    rows = []
    for mark, number, time, turns, name, begins in table:
        name = set_cell_size(shorten(name, profile, glyphs), profile)
        row = f"{mark:1}{number:>3}  {time:<{when}}  {turns:>5}  {name}  {begins}"
        rows.append(shorten(row, width - 1, glyphs))
    return rows


def _narrow(cells: Sequence[Cells], width: int, glyphs: Glyphs) -> list[str]:
    labels = ("when", "turns", "profile", "begins")
    rows = []
    for mark, number, *values in cells:
        rows.append(f"{mark}{number:>3}")
        for label, value in zip(labels, values, strict=True):
            rows.append(shorten(f"{label:<7} {value}", width - 1, glyphs))
    return rows
