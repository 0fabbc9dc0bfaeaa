"""LocalDrafter: the draft models that are on this machine and fit the target, by their headers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from outrider.profiles.fetched_models import fetched_models
from outrider.profiles.search import BUILT_IN
from outrider.speculative.errors import InputError
from outrider.speculative.gguf_file import GgufFile
from outrider.speculative.load_guard import check_loadable
from outrider.speculative.model_facts import drafter_kind
from outrider.speculative.pairing import examine

_BUDGET_S = 2.0  # a folder may hold hundreds of models


@dataclass(frozen=True, slots=True)
class LocalDrafter:
    """A file that can draft for the target; ``in_profile`` if the profile uses it already."""

    path: Path
    kind: str
    in_profile: bool

    def as_json(self) -> dict[str, object]:
        return {"file": str(self.path), "kind": self.kind, "in_profile": self.in_profile}


def local_drafters(target: GgufFile, of_profile: Iterable[Path]) -> tuple[LocalDrafter, ...]:
    """Those of the profile first, then built-in ones, fetched ones, those beside the target.

    Of copies of a file only the first. A whole model counts if its file is smaller than the
    target's: a larger one only costs. Only headers are read, for two seconds at most.
    """
    own = {path.resolve() for path in of_profile}
    seen = {_identity(target.path)}
    found = []
    deadline = time.monotonic() + _BUDGET_S
    for path in _candidates(target, own):
        if _identity(path) in seen or time.monotonic() > deadline:
            continue
        seen.add(_identity(path))
        word, kind = verdict(target, path)
        if word == "fits":
            found.append(LocalDrafter(path, kind, path.resolve() in own))
    return tuple(found)


def _identity(path: Path) -> tuple[str, int]:
    return path.name, path.stat().st_size


def _candidates(target: GgufFile, own: Iterable[Path]) -> Iterator[Path]:
    yield from sorted(own)
    yield from sorted(BUILT_IN.glob("*.gguf"))
    yield from fetched_models()
    yield from sorted(target.path.parent.glob("*.gguf"))


def verdict(target: GgufFile, path: Path) -> tuple[str, str]:
    """("fits", kind) for a file that can draft for the target, else ("refused", why)."""
    try:
        draft = GgufFile.open(path)
        check_loadable(draft)
    except InputError as error:
        return "refused", str(error).removeprefix(f"{path}: ")
    for finding in examine(target, draft):
        if finding.verdict == "refused":
            return "refused", f"{finding.subject}: {finding.text}"
    kind = drafter_kind(draft)
    if kind is None and draft.file_size >= target.file_size:
        return "refused", "size: it is no smaller than the target"
    return "fits", kind or "draft-simple"
