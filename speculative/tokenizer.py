"""Tokenizer: what a generation needs to know of the vocabulary."""

from __future__ import annotations

from typing import Protocol


class Tokenizer(Protocol):
    """Token ids to bytes, and which tokens end a text. Tests run the engine with a made-up one."""

    def piece(self, token_id: int) -> bytes: ...

    def is_end(self, token_id: int) -> bool: ...

    @property
    def end_ids(self) -> tuple[int, ...]: ...
