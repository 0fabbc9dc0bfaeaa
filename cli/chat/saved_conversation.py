"""A conversation and the file that is written after every turn."""

from __future__ import annotations

from pathlib import Path

from outrider.cli.chat.transcript import Transcript, autosave_path, session_path
from outrider.cli.errors import UsageError

_Version = tuple[int, int]


class SavedConversation:
    """``path`` is named after the time the conversation began, until it gets a name.

    ``is_behind``: the file lacks what was said last, for it could not be written.
    """

    def __init__(self, system: str | None) -> None:
        self.is_behind = False
        self._version: _Version | None = None  # of the file as this chat read or wrote it
        self._begin(Transcript(system))

    def begin_new(self) -> None:
        """Another conversation with the same system message; the former stays saved."""
        self.leave()
        self._begin(Transcript(self.transcript.system))

    def load(self, path: Path) -> None:
        """Go on with a saved conversation, in its own file."""
        version, transcript = _version(path), Transcript.load(path)
        self.leave()
        self.transcript, self.path, self._version = transcript, path, version

    def open(self, path: Path) -> None:
        """Go on with the conversation saved there, or begin one that will be."""
        try:
            self.load(path)
        except (FileNotFoundError, NotADirectoryError):
            self.path = path

    def save(self) -> str | None:
        """Write the file; return what there is to say about it.

        That it fails is said the first time. What another chat has written meanwhile, or an
        editor, is not overwritten.
        """
        note = None
        if _version(self.path) not in (None, self._version):
            former, self.path = self.path, autosave_path(self.transcript.created)
            note = f"{former.name} was changed by another chat; this one is now {self.path.stem}"
        try:
            self._write(self.path)
        except OSError as error:
            told, self.is_behind = self.is_behind, True
            why = f"not saved, {error.strerror}: {self.path}; /save PATH writes elsewhere"
            return None if told else why
        return note

    def leave(self) -> None:
        """Try once more to write what could not be written."""
        if self.is_behind:
            self.save()
        self.is_behind = False

    def save_as(self, name: str) -> None:
        """Write another file, and from now on that one."""
        path = session_path(name)
        if path.exists() and path != self.path:
            raise UsageError(f"/save {name}: {path} exists; give another name")
        self._write(path)
        self.path = path

    def _write(self, path: Path) -> None:
        self.transcript.save(path)
        self._version, self.is_behind = _version(path), False

    def _begin(self, transcript: Transcript) -> None:
        self.transcript = transcript
        self.path = autosave_path(transcript.created)
        self._version = None


def _version(path: Path) -> _Version | None:
    """What tells whether the file was written again; None if there is none."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size
