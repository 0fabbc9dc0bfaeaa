"""SavedSide: one side of a saved result, with what must be the same to compare it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from outrider.cli.bench.machine import machine_line
from outrider.cli.bench.reply import Conversation, Reply, conversations_of
from outrider.cli.bench.result import read_result
from outrider.cli.errors import UsageError

_HASH = 12  # digits of a hash that are shown


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that must be the same on all sides; ``key`` None is not known, equal to nothing."""

    key: object
    words: str

    def differs(self, other: Fact) -> bool:
        return self.key is None or self.key != other.key


@dataclass(frozen=True, slots=True)
class SavedSide:
    """Runs of one side; other runs of it have the same ``key``."""

    name: str
    key: str
    paths: Sequence[Path]
    facts: Mapping[str, Fact]
    is_synthetic: bool
    conversations: Sequence[Conversation]


def read_sides(path: Path) -> list[SavedSide]:
    """The one side of a ``bench speed``, the two of a ``bench compare``.

    Raises:
        UsageError: the file is neither.
    """
    result = read_result(path)
    kind = result["kind"]
    if kind not in ("speed", "compare"):
        raise UsageError(f"{path}: of kind {kind}; allowed: speed, compare")
    try:
        if kind == "speed":
            return [_speed_side(path, result)]
        return [_compare_side(path, result, label) for label in ("A", "B")]
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: not a saved bench {kind}: {error!r}") from None


def _speed_side(path: Path, result: Mapping[str, Any]) -> SavedSide:
    settings = result["settings"]
    prompts = settings["prompts"]
    return _side(
        path,
        result,
        "A",
        conversations_of(path, result),
        prompts=_hashed(f"{prompts['samples']} of {prompts['file']}", prompts["sha256"]),
        osl=_same(settings["osl"]),
        temperature=_same(settings["temp"]),
        system=_same(settings["system"] or ""),
    )


def _compare_side(path: Path, result: Mapping[str, Any], label: str) -> SavedSide:
    settings, arm = result["settings"], result["arms"][label]
    answers = [one for one in result["rounds"] if one["arm"] == label and not one["warm_up"]]
    return _side(
        path,
        result,
        label,
        [_conversation(one) for one in answers],
        prompts=_hashed(str(settings["prompts"]), settings["prompts_sha256"]),
        osl=_same(settings["predict"]),
        temperature=_same(arm["flags"].get("sampling.temp", 0.0)),
        system=_same(arm["profile"]["chat"]["system"] or ""),
    )


def _conversation(answer: Mapping[str, Any]) -> Conversation:
    """An answer of ``bench compare`` as one of a single turn."""
    seconds = answer["seconds"]
    reply = Reply(
        text="",
        finish_reason="",
        prompt_tokens=0,
        cached_tokens=0,
        completion_tokens=answer["tokens"],
        latency_s=answer["first_token_s"] + seconds,
        prompt_s=None,
        first_token_s=answer["first_token_s"],
        timed_tokens=round((answer["tokens_per_s"] or 0) * seconds),
        timed_s=seconds,
        speed_from="engine",
        drafts=answer["drafts"],
        drafted=answer["drafted"],
        accepted=answer["accepted"],
    )
    category = answer.get("category", "prompts")
    return Conversation(answer["round"], answer["prompt"], category, "", [reply])


def _side(
    path: Path,
    result: Mapping[str, Any],
    label: str,
    conversations: Sequence[Conversation],
    **asked: Fact,
) -> SavedSide:
    arm = result["arms"][label]
    target = arm["models"]["target"]
    clocks = {reply.speed_from == "latency" for one in conversations for reply in one.replies}
    clock = "whole requests" if True in clocks else "tokens after the first"
    facts = {
        "kind": _same(result["kind"]),
        **asked,
        "model": _hashed(target["file"], target["sha256"]),
        "machine": _machine(result["machine"], arm.get("server")),
        "clock": Fact(sorted(clocks), clock),
    }
    words = {name: fact.words for name, fact in facts.items()}
    key = json.dumps([arm, result["settings"], words], sort_keys=True)
    return SavedSide(arm["text"], key, [path], facts, result["synthetic"], conversations)


def _same(value: object) -> Fact:
    return Fact(value, repr(value) if isinstance(value, str) else f"{value:g}")


def _hashed(name: str, digits: str | None) -> Fact:
    return Fact(digits, f"{name} ({digits[:_HASH] if digits else 'hash not known'})")


def _machine(machine: Mapping[str, Any], server: Mapping[str, Any] | None) -> Fact:
    if server is not None and not server["is_local"]:
        host = urlsplit(server["url"]).netloc
        return Fact(host, f"the server at {host}")
    key = [machine["cpu"], machine["cores"], machine["memory_bytes"]]
    return Fact(key, machine_line(machine))
