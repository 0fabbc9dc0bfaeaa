"""The conversation as messages, kept in one readable JSON file."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from outrider.cli.errors import UsageError

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of the user and the answer to it, None while there is none.

    ``details`` is what the file keeps beside the text: profile, model, seed, counts.
    """

    message: str
    answer: str | None = None
    details: dict[str, object] = field(default_factory=dict)


class Transcript:
    """A system prompt and the turns after it.

    Turns before ``first_in_context`` left the context to make room; they stay in the file.
    """

    def __init__(self, system: str | None = None) -> None:
        self.system = system
        self.turns: list[Turn] = []
        self.first_in_context = 0
        self.created = datetime.now().astimezone()

    def messages(self, *, with_reasoning: bool = False) -> list[dict[str, str]]:
        """What the chat template is given: the system prompt and the turns in the context.

        Roles alternate: a turn without an answer, but for the last, is left out. So is what was
        thought, unless ``with_reasoning`` asks for it.
        """
        messages = system_messages(self.system)
        turns = self.turns[self.first_in_context :]
        for turn in [turn for turn in turns[:-1] if turn.answer] + turns[-1:]:
            messages.append({"role": "user", "content": turn.message})
            if turn.answer:
                messages.append({"role": "assistant", "content": turn.answer})
                thought = turn.details.get("reasoning")
                if with_reasoning and isinstance(thought, str):
                    messages[-1]["reasoning_content"] = thought
        return messages

    def ask(self, message: str) -> None:
        """Begin a turn."""
        self.turns.append(Turn(message))

    def answer(self, text: str, details: dict[str, object] | None = None) -> None:
        """Complete the turn that was begun."""
        self.turns[-1] = Turn(self.turns[-1].message, text, details or {})

    def undo(self) -> Turn | None:
        """Take back the last turn."""
        turn = self.turns.pop() if self.turns else None
        self.first_in_context = min(self.first_in_context, len(self.turns))
        return turn

    def clear(self) -> None:
        """Forget every turn; the system prompt stays."""
        self.turns.clear()
        self.first_in_context = 0

    def as_json(self) -> dict[str, object]:
        return {
            "schema": SCHEMA,
            "created": self.created.isoformat(timespec="seconds"),
            "system": self.system,
            "first_in_context": self.first_in_context,
            "turns": [
                {"message": turn.message, "answer": turn.answer, **turn.details}
                for turn in self.turns
            ],
        }

    def save(self, path: Path) -> None:
        """Write ``path`` so that it always holds a whole conversation, the old or the new."""
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.as_json(), ensure_ascii=False, indent=1) + "\n"
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with open(handle, "w", encoding="utf-8", errors="replace") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    @classmethod
    def load(cls, path: Path) -> Transcript:
        """Read a saved conversation; raises UsageError if the file is none."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise UsageError(f"{path}: not a saved conversation: {error}") from None
        return _from_json(data, path)


def system_messages(system: str | None) -> list[dict[str, str]]:
    """How a conversation begins: with the system message, or with nothing."""
    return [{"role": "system", "content": system}] if system else []


def session_path(name: str) -> Path:
    """Where ``/save NAME`` and ``/load NAME`` look; a name with a slash or .json is a path."""
    if "/" in name or os.sep in name or name.endswith(".json"):
        return Path(name).expanduser()
    return sessions_folder() / f"{name}.json"


def sessions_folder() -> Path:
    """The folder of saved conversations."""
    from platformdirs import user_data_path

    return user_data_path("outrider", appauthor=False) / "sessions"


def autosave_path(created: datetime) -> Path:
    """A free name for the conversation begun at ``created``."""
    folder = sessions_folder()
    stem = f"{created:%Y-%m-%d-%H%M%S}-{created.microsecond // 1000:03}"
    path, count = folder / f"{stem}.json", 1
    while path.exists():
        count += 1
        path = folder / f"{stem}-{count}.json"
    return path


def saved_sessions() -> list[str]:
    """Names that ``/load`` knows, the newest first."""
    try:
        files = [(path.stat().st_mtime, path.stem) for path in sessions_folder().glob("*.json")]
    except OSError:
        return []
    return [stem for _, stem in sorted(files, reverse=True)]


def _from_json(data: object, path: Path) -> Transcript:
    if not isinstance(data, dict) or not isinstance(data.get("turns"), list):
        raise UsageError(f'{path}: not a saved conversation: no list "turns"')
    if data.get("schema") != SCHEMA:
        raise UsageError(
            f"{path}: schema {data.get('schema')!r}: this version reads schema {SCHEMA}"
        )
    system = data.get("system")
    transcript = Transcript(system if isinstance(system, str) else None)
    transcript.turns = [_turn(item, index, path) for index, item in enumerate(data["turns"])]
    first = data.get("first_in_context")
    if isinstance(first, int) and 0 <= first <= len(transcript.turns):
        transcript.first_in_context = first
    with contextlib.suppress(KeyError, TypeError, ValueError):
        transcript.created = datetime.fromisoformat(data["created"])
    return transcript


def _turn(item: object, index: int, path: Path) -> Turn:
    message = item.get("message") if isinstance(item, dict) else None
    answer = item.get("answer") if isinstance(item, dict) else None
    if not isinstance(item, dict) or not isinstance(message, str):
        raise UsageError(f"{path}: turns[{index}].message: missing, must be a text")
    if not (answer is None or isinstance(answer, str)):
        raise UsageError(f"{path}: turns[{index}].answer: must be a text or null")
    details = {key: value for key, value in item.items() if key not in ("message", "answer")}
    return Turn(message, answer, details)
