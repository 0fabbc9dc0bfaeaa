"""Reply and Conversation: what was answered, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from outrider.cli.errors import UsageError

SpeedFrom = Literal["engine", "timings", "latency"]
Message = Mapping[str, str]


class TurnError(Exception):
    """A turn that was not answered; the message is one line."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer.

    The speed is ``timed_tokens`` over ``timed_s``: tokens after the first by the clock of the
    engine or of the server (``speed_from`` engine, timings), or all of them over the whole
    request where a server tells no times (latency). ``drafts`` is None where it is not known.
    """

    text: str
    finish_reason: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    latency_s: float
    prompt_s: float | None
    first_token_s: float | None
    timed_tokens: int
    timed_s: float
    speed_from: SpeedFrom
    drafts: int | None = None
    drafted: int = 0
    accepted: int = 0
    prompt_ids: Sequence[int] | None = None
    token_ids: Sequence[int] | None = None


class Side(Protocol):
    """What answers: an engine or a server."""

    def ask(self, messages: Sequence[Message], prompt_ids: Sequence[int] | None) -> Reply:
        """The next answer of a conversation; ``prompt_ids`` are used instead if they are given.

        Raises:
            TurnError: there is none.
        """
        ...


@dataclass(frozen=True, slots=True)
class Conversation:
    """A sample that was asked: its replies up to the end or to the ``error``."""

    round: int
    id: str
    category: str
    sha256: str
    replies: Sequence[Reply]
    error: str | None = None

    @property
    def tokens_per_s(self) -> float | None:
        """Over all turns; None if no turn had a token after its first."""
        tokens = sum(reply.timed_tokens for reply in self.replies)
        seconds = sum(reply.timed_s for reply in self.replies)
        return tokens / seconds if tokens > 0 < seconds else None

    @property
    def prompt_tokens_per_s(self) -> float | None:
        known = [reply for reply in self.replies if reply.prompt_s]
        tokens = sum(reply.prompt_tokens - reply.cached_tokens for reply in known)
        return tokens / sum(reply.prompt_s or 0 for reply in known) if known else None

    @property
    def latency_s(self) -> float:
        return sum(reply.latency_s for reply in self.replies)

    def as_json(self) -> dict[str, object]:
        return {
            "round": self.round,
            "id": self.id,
            "category": self.category,
            "sha256": self.sha256,
            "error": self.error,
            "tokens_per_s": self.tokens_per_s,
            "turns": [asdict(reply) for reply in self.replies],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Conversation:
        """Read what :meth:`as_json` made; KeyError or TypeError if it is something else."""
        replies = [Reply(**turn) for turn in data["turns"]]
        own = {key: data[key] for key in ("round", "id", "category", "sha256", "error")}
        return cls(replies=replies, **own)


def conversations_of(path: Path, result: Mapping[str, Any]) -> list[Conversation]:
    """The conversations of a saved ``bench speed``.

    Raises:
        UsageError: the file has not the form of one.
    """
    try:
        return [Conversation.from_json(one) for one in result["rounds"]]
    except (KeyError, TypeError) as error:
        raise UsageError(f"{path}: not a saved bench speed: {error}") from None
