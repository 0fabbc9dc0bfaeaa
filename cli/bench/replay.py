"""Replay: the answers of a saved run as the histories of another, so that both see the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outrider.cli.bench.machine import sha256
from outrider.cli.bench.prompt_set import PromptSet
from outrider.cli.bench.reply import Conversation, Reply, conversations_of
from outrider.cli.bench.result import read_result
from outrider.cli.errors import UsageError

BY_IDS = "token ids: the same model"


@dataclass(frozen=True, slots=True)
class Replay:
    """Saved answers by prompt; ``by`` says in words whether the saved token ids are asked too."""

    path: Path
    replies: Mapping[str, Sequence[Reply]]
    by: str

    def history(self, name: str, turn: int) -> str:
        """What was answered in that turn."""
        return self.replies[name][turn].text

    def prompt_ids(self, name: str, turn: int) -> Sequence[int] | None:
        """The tokens that were asked with, if they mean the same here."""
        return self.replies[name][turn].prompt_ids if self.by == BY_IDS else None

    def as_json(self) -> dict[str, object]:
        return {"file": self.path.name, "sha256": sha256(self.path), "by": self.by}


def read_replay(path: Path, prompts: PromptSet, model_hash: str | None) -> Replay:
    """The saved answers to ``prompts``; token ids are asked where the model file is the same.

    ``model_hash`` is None for a server, which takes texts only.

    Raises:
        UsageError: the file is no result of ``bench speed``, or lacks a prompt.
    """
    data = read_result(path)
    if data["kind"] != "speed":
        raise UsageError(f"--replay {path}: of kind {data['kind']}; allowed: a saved bench speed")
    saved: dict[str, Conversation] = {}
    for conversation in conversations_of(path, data):
        if conversation.error is None:
            saved.setdefault(conversation.id, conversation)
    lacking = [
        sample.id
        for sample in prompts.samples
        if sample.id not in saved or saved[sample.id].sha256 != sample.sha256
    ]
    if lacking:
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        raise UsageError(f"--replay {path}: no answer to the same prompt {lacking[0]}{more}")
    replies = {name: one.replies for name, one in saved.items()}
    return Replay(path, replies, _by(data, replies, model_hash))


def _by(
    data: Mapping[str, Any], replies: Mapping[str, Sequence[Reply]], model_hash: str | None
) -> str:
    if model_hash is None:
        return "text: a server takes no token ids"
    if not all(reply.prompt_ids for turns in replies.values() for reply in turns):
        return "text: no token ids are saved"
    try:
        same = data["arms"]["A"]["models"]["target"]["sha256"] == model_hash
    except (KeyError, TypeError):
        same = False
    return BY_IDS if same else "text: it is another model"
