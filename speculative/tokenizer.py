"""Tokenizer: what a generation needs to know of the vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from outrider.speculative.settings import ReasoningSettings


class Tokenizer(Protocol):
    """Token ids to bytes and back, and which tokens end a text or are never drawn.

    Tests run the engine with a made-up one.
    """

    @property
    def size(self) -> int: ...

    def __hash__(self) -> int: ...

    def piece(self, token_id: int) -> bytes: ...

    def written(self, token_id: int) -> bytes:
        """The bytes of a text of this token alone, a control token's own text included."""
        ...

    def text(self, token_id: int) -> str:
        """The token as the vocabulary writes it, control tokens too."""
        ...

    def encode(self, text: str, *, parse_special: bool) -> list[int]: ...

    def encode_bytes(self, data: bytes) -> list[int]:
        """Token ids of plain text, control tokens not parsed."""
        ...

    def is_end(self, token_id: int) -> bool: ...

    @property
    def end_ids(self) -> tuple[int, ...]: ...

    @property
    def suppressed_ids(self) -> tuple[int, ...]:
        """Tokens the model's file says are never to be drawn."""
        ...


def printed_pieces(
    tokenizer: Tokenizer, reasoning: ReasoningSettings | None
) -> Callable[[int], bytes]:
    """What each token prints, with the control tokens of the reasoning's tags, which by
    themselves print nothing."""
    if reasoning is None:
        return tokenizer.piece
    ids = tokenizer.encode(reasoning.start + reasoning.end, parse_special=True)
    tags = {i: tokenizer.text(i).encode() for i in ids if not tokenizer.piece(i)}
    return lambda token_id: tags.get(token_id) or tokenizer.piece(token_id)
