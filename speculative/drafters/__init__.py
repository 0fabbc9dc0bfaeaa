"""Drafters: whatever proposes tokens. One file a kind."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DrafterKind:
    """What is fixed for a kind: default lengths, whether it is a model, whether it can give q."""

    name: str
    n_max: int
    n_max_adaptive: int
    is_model: bool = False
    gives_law: bool = False


KINDS: dict[str, DrafterKind] = {
    kind.name: kind
    for kind in (
        DrafterKind("draft-simple", 3, 8, is_model=True, gives_law=True),
        DrafterKind("ngram-simple", 48, 48),
        # for tests and benchmarks
        DrafterKind("script", 64, 64),
        DrafterKind("oracle", 64, 64),
        DrafterKind("filler", 3, 8),
    )
}
