"""BatchRequest: one line of the input file, checked."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outrider.cli.chat.transcript import system_messages
from outrider.cli.errors import UsageError, message
from outrider.profiles.errors import ProfileError
from outrider.profiles.fields import FIELDS, nearest
from outrider.profiles.load import override
from outrider.profiles.schema import Profile

Id = str | int

_ROLES = ("system", "user", "assistant")
_OWN = ("id", "prompt", "messages", "system")
# what a line may change: how the answer is drawn, not what runs
_SETTINGS = {
    field.path.partition(".")[2]: field.path
    for field in FIELDS
    if field.path.startswith("sampling.")
}
# names that other programs have for the same
_OTHER_NAMES = {"temperature": "sampling.temp", "max_tokens": "sampling.predict"}


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """What is asked, and the profile with the line's own settings.

    ``prompt`` is text to be read as ``run`` reads it, or ``messages`` are a conversation.
    """

    number: int
    id: Id
    profile: Profile
    prompt: str | None = None
    messages: tuple[Mapping[str, str], ...] = ()
    system: str | None = None

    def conversation(self) -> list[dict[str, str]]:
        """For the chat template: the messages, or the prompt after the system message."""
        if self.prompt is None:
            return [dict(one) for one in self.messages]
        system = self.profile.chat.system if self.system is None else self.system
        return [*system_messages(system), {"role": "user", "content": self.prompt}]


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that cannot be answered, and why; its id, or its number where it has none."""

    number: int
    id: Id
    reason: str


class _BadLineError(Exception):
    pass


def read_requests(path: Path | None, profile: Profile) -> list[BatchRequest | BadLine]:
    """All lines of the file, of stdin if None; blank ones are left out.

    A line without an id has its number as id. Ids are different, so that the results can be
    told apart.

    Raises:
        UsageError: the file cannot be read, or has no line.
    """
    requests: list[BatchRequest | BadLine] = []
    lines_of: dict[Id, int] = {}
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        one = _request(number, line, profile)
        first = lines_of.setdefault(one.id, number)
        if first != number:
            one = BadLine(number, f"{one.id} (line {number})", f'"id": {one.id!r} is line {first}')
        requests.append(one)
    if not requests:
        raise UsageError(f"{path or 'stdin'}: there is no line in it")
    return requests


def _lines(path: Path | None) -> Iterator[bytes]:
    """Lines as they are: one that is no text must not spoil the others."""
    if path is None:
        yield from sys.stdin.buffer
        return
    try:
        with path.open("rb") as file:
            yield from file
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None


def _request(number: int, line: bytes, profile: Profile) -> BatchRequest | BadLine:
    id_: Id = number
    try:
        row = _object(line)
        id_ = _id(row, number)
        prompt, messages = _asked(row)
        return BatchRequest(
            number, id_, _profile(row, profile), prompt, messages, _text(row, "system")
        )
    except _BadLineError as error:
        return BadLine(number, id_, str(error))


def _object(line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise _BadLineError("not UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise _BadLineError(f"not JSON: {error}") from None
    if not isinstance(row, dict):
        raise _BadLineError("not a JSON object")
    return row


def _id(row: Mapping[str, Any], number: int) -> Id:
    id_ = row.get("id", number)
    if isinstance(id_, bool) or not isinstance(id_, str | int):
        raise _BadLineError('"id": must be a text or a whole number')
    return id_


def _asked(row: Mapping[str, Any]) -> tuple[str | None, tuple[Mapping[str, str], ...]]:
    prompt, messages = _text(row, "prompt"), row.get("messages")
    if (prompt is None) == (messages is None):
        raise _BadLineError('no "prompt"' if prompt is None else 'both "prompt" and "messages"')
    if messages is None:
        return prompt, ()
    if "system" in row:
        raise _BadLineError('"system" goes with "prompt"; with "messages" it is one of them')
    return None, _messages(messages)


def _messages(given: object) -> tuple[Mapping[str, str], ...]:
    if not isinstance(given, list) or not given:
        raise _BadLineError('"messages": must be a list of {"role", "content"}')
    for index, one in enumerate(given):
        if not isinstance(one, dict) or one.get("role") not in _ROLES:
            raise _BadLineError(f'"messages[{index}].role": allowed: {", ".join(_ROLES)}')
        if not isinstance(one.get("content"), str):
            raise _BadLineError(f'"messages[{index}].content": must be a text')
    if given[-1]["role"] != "user":
        raise _BadLineError('"messages": the last must be the user\'s')
    return tuple({"role": one["role"], "content": one["content"]} for one in given)


def _text(row: Mapping[str, Any], key: str) -> str | None:
    text = row.get(key)
    if not (text is None or isinstance(text, str)):
        raise _BadLineError(f'"{key}": must be a text')
    return text


def _profile(row: Mapping[str, Any], profile: Profile) -> Profile:
    """The profile with the other keys of the line."""
    values: dict[str, object] = {}
    for key, value in row.items():
        if key in _OWN:
            continue
        path = _OTHER_NAMES.get(key, _SETTINGS.get(key.replace("-", "_")))
        if path is None:
            raise _BadLineError(f'"{key}": unknown{nearest(key, _names())}')
        values[path] = value
    try:
        return override(profile, values) if values else profile
    except ProfileError as error:
        raise _BadLineError(message(error)) from None


def _names() -> Sequence[str]:
    return [*_OWN, *_SETTINGS, *_OTHER_NAMES]
