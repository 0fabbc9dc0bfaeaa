"""The conversation as messages, with its branches, kept in one readable JSON file."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from outrider.cli.errors import UsageError
from outrider.speculative.atomic_file import replace_file

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of the user and the answer to it, None while there is none.

    ``details`` is what the file keeps beside the text: profile, model, seed, counts.
    """

    message: str
    answer: str | None = None
    details: dict[str, object] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Branch:
    """One way the conversation went, from its beginning.

    Turns before ``first_in_context`` left the context to make room; they stay in the file.
    """

    turns: list[Turn] = field(default_factory=list)
    first_in_context: int = 0

    def shared(self, other: Branch) -> int:
        """How many turns both begin with, by what was said."""
        for count, (mine, theirs) in enumerate(zip(self.turns, other.turns, strict=False)):
            if (mine.message, mine.answer) != (theirs.message, theirs.answer):
                return count
        return min(len(self.turns), len(other.turns))


class Transcript:
    """A system prompt and a tree of turns: ``branch`` of ``branches`` is the one in use.

    Nothing that was answered is lost by asking again; branches keep the order they began in.
    """

    def __init__(self, system: str | None = None) -> None:
        self.system = system
        self.branch = Branch()
        self.branches = [self.branch]
        self.created = datetime.now().astimezone()

    @property
    def turns(self) -> list[Turn]:
        """The turns of the branch in use."""
        return self.branch.turns

    @property
    def first_in_context(self) -> int:
        return self.branch.first_in_context

    @first_in_context.setter
    def first_in_context(self, turn: int) -> None:
        self.branch.first_in_context = turn

    @property
    def others(self) -> list[Branch]:
        """The branches that are not in use."""
        return [branch for branch in self.branches if branch is not self.branch]

    @property
    def number(self) -> int:
        """Which of the branches is in use; 1 is the first."""
        return self.branches.index(self.branch) + 1

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
        self._prune()

    def withdraw(self) -> None:
        """End the turn that was begun without an answer, as if it had not been."""
        self.turns.pop()
        self.first_in_context = min(self.first_in_context, len(self.turns))

    def part(self, turn: int) -> None:
        """Go on from before ``turn`` (0 is the first) in a new branch."""
        # an earlier message was asked before those ahead of it left the context: they come back
        is_last = turn + 1 >= len(self.turns)
        first = self.first_in_context if is_last or turn > self.first_in_context else 0
        self.branch = Branch(self.turns[:turn], min(first, turn))
        self.branches.append(self.branch)

    def undo(self) -> Turn | None:
        """Take back the last turn; with its answer it stays as a branch."""
        if not self.turns:
            return None
        turn = self.turns[-1]
        if turn.answer is None:
            self.withdraw()
        else:
            self.part(len(self.turns) - 1)
        self._prune()
        return turn

    def switch(self, branch: Branch) -> None:
        """Go on with another branch."""
        self.branch = branch
        self._prune()

    def _prune(self) -> None:
        """Let go of the branches that another one says whole."""
        for branch in self.others:
            others = [other for other in self.branches if other is not branch]
            if any(branch.shared(other) == len(branch.turns) for other in others):
                self.branches.remove(branch)

    def as_json(self) -> dict[str, object]:
        return {
            "schema": SCHEMA,
            "created": self.created.isoformat(timespec="seconds"),
            "system": self.system,
            "first_in_context": self.first_in_context,
            "turns": _turns_json(self.turns),
            **({"branch": self.number, "branches": self._others()} if self.others else {}),
        }

    def _others(self) -> list[dict[str, object]]:
        """Every other branch as what follows its longest beginning that is written before it."""
        written = [self.branch]
        rows: list[dict[str, object]] = []
        for branch in self.others:
            origin = max(written, key=branch.shared)
            after = branch.shared(origin)
            rows.append(
                {
                    "branch": self.branches.index(branch) + 1,
                    "parts_from": self.branches.index(origin) + 1,
                    "after_turns": after,
                    "first_in_context": branch.first_in_context,
                    "turns": _turns_json(branch.turns[after:]),
                }
            )
            written.append(branch)
        return rows

    def save(self, path: Path) -> None:
        """Write ``path`` so that it always holds a whole conversation, the old or the new."""
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.as_json(), ensure_ascii=False, indent=1) + "\n"
        replace_file(path, text.encode("utf-8", "replace"), private=True)

    @classmethod
    def load(cls, path: Path) -> Transcript:
        """Read a saved conversation; raises UsageError if the file is none."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
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
    files = []
    with contextlib.suppress(OSError):
        for path in sessions_folder().glob("*.json"):
            with contextlib.suppress(OSError):  # deleted meanwhile, or a link to nothing
                files.append((path.stat().st_mtime, path.stem))
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
    transcript.branch = _branch(data, [], path)
    transcript.branches = _branches(data, transcript.branch, path)
    with contextlib.suppress(KeyError, TypeError, ValueError):
        transcript.created = datetime.fromisoformat(data["created"])
    return transcript


def _branches(data: dict[str, object], used: Branch, path: Path) -> list[Branch]:
    """All branches in their order; ``used`` is the one that stands in the file whole."""
    number, others = data.get("branch", 1), data.get("branches", [])
    if not isinstance(number, int) or not isinstance(others, list):
        raise UsageError(f"{path}: branch, branches: must be a number and a list")
    numbered = {number: used}
    for index, item in enumerate(others):
        try:
            turns = numbered[item["parts_from"]].turns[: item["after_turns"]]
            if int(item["branch"]) in numbered:
                raise ValueError
            numbered[int(item["branch"])] = _branch(item, turns, path, f"branches[{index}].")
        except (KeyError, TypeError, ValueError):
            raise UsageError(
                f"{path}: branches[{index}]: needs a number of its own as branch, a list of turns,"
                " and how many turns (after_turns) of which branch (parts_from) stand before them"
            ) from None
    return [numbered[number] for number in sorted(numbered)]


def _branch(item: dict[str, Any], before: list[Turn], path: Path, where: str = "") -> Branch:
    turns = [
        *before,
        *(_turn(turn, f"{where}turns[{n}]", path) for n, turn in enumerate(item["turns"])),
    ]
    first = item.get("first_in_context")
    return Branch(turns, first if isinstance(first, int) and 0 <= first <= len(turns) else 0)


def _turns_json(turns: list[Turn]) -> list[dict[str, object]]:
    return [{"message": turn.message, "answer": turn.answer, **turn.details} for turn in turns]


def _turn(item: object, where: str, path: Path) -> Turn:
    message = item.get("message") if isinstance(item, dict) else None
    answer = item.get("answer") if isinstance(item, dict) else None
    if not isinstance(item, dict) or not isinstance(message, str):
        raise UsageError(f"{path}: {where}.message: missing, must be a text")
    if not (answer is None or isinstance(answer, str)):
        raise UsageError(f"{path}: {where}.answer: must be a text or null")
    details = {key: value for key, value in item.items() if key not in ("message", "answer")}
    return Turn(message, answer, details)
