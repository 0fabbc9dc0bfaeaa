"""A conversation and the file that is written after every turn."""

from __future__ import annotations

from outrider.cli.errors import UsageError
from outrider.cli.transcript import Transcript, autosave_path, session_path


class SavedConversation:
    """``path`` is named after the time the conversation began, until it gets a name."""

    def __init__(self, system: str | None) -> None:
        self._failed = False
        self._begin(Transcript(system))

    def begin_new(self) -> None:
        """Another conversation with the same system message; the former stays saved."""
        self._begin(Transcript(self.transcript.system))

    def load(self, name: str) -> None:
        """Go on with a saved conversation, in its own file."""
        path = session_path(name)
        self.transcript, self.path = Transcript.load(path), path

    def save(self) -> str | None:
        """Write the file. If that fails, return why, the first time."""
        try:
            self.transcript.save(self.path)
        except OSError as error:
            told, self._failed = self._failed, True
            why = f"not saved, {error.strerror}: {self.path}; /save PATH writes elsewhere"
            return None if told else why
        self._failed = False
        return None

    def save_as(self, name: str) -> None:
        """Write another file, and from now on that one."""
        path = session_path(name)
        if path.exists() and path != self.path:
            raise UsageError(f"/save {name}: {path} exists; give another name")
        self.transcript.save(path)
        self.path = path

    def _begin(self, transcript: Transcript) -> None:
        self.transcript = transcript
        self.path = autosave_path(transcript.created)
