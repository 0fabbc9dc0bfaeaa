"""Drafters: whatever proposes tokens. One file a kind."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DrafterKind:
    """What is fixed for a kind: default lengths, and what it needs.

    ``needs_model`` is a file of its own; ``reads_states`` are hidden states of the target.
    """

    name: str
    n_max: int
    n_max_adaptive: int
    needs_model: bool = False
    reads_states: bool = False

    @property
    def is_model(self) -> bool:
        """True if it computes with weights, of its own or the target's."""
        return self.needs_model or self.reads_states


KINDS: dict[str, DrafterKind] = {
    kind.name: kind
    for kind in (
        DrafterKind("draft-simple", 3, 8, needs_model=True),
        DrafterKind("draft-eagle3", 3, 8, needs_model=True, reads_states=True),
        DrafterKind("draft-mtp", 3, 8, reads_states=True),
        DrafterKind("draft-dflash", 3, 8, needs_model=True, reads_states=True),
        DrafterKind("draft-dspark", 3, 8, needs_model=True, reads_states=True),
        DrafterKind("ngram-simple", 48, 48),
        DrafterKind("ngram-map-k", 48, 48),
        DrafterKind("ngram-map-k4v", 48, 48),
        DrafterKind("ngram-mod", 64, 64),
        DrafterKind("ngram-cache", 8, 8),
        DrafterKind("ngram-edit", 64, 64),
        DrafterKind("grammar", 64, 64),
        # for tests and benchmarks
        DrafterKind("script", 64, 64),
        DrafterKind("oracle", 64, 64),
        DrafterKind("filler", 3, 8),
    )
}
