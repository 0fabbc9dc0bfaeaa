"""Vocabulary: text to token ids and back, and which tokens end a text."""

from __future__ import annotations

from functools import cache, cached_property

from outrider.speculative.llama import ATTR_CONTROL, ATTR_UNKNOWN, NativeModel


class Vocabulary:
    """The tokenizer of a model. Pieces and end tokens are remembered as they are asked for."""

    def __init__(self, native: NativeModel) -> None:
        self._native = native
        self.size = native.vocab_size
        # a dictionary of C: what is asked for each token has no frame of Python's
        self.piece = cache(native.piece)
        """The bytes a token prints; nothing for control tokens."""
        self.is_end = cache(native.is_end)
        """True for every end-of-generation token of the model."""

    def encode(self, text: str, *, parse_special: bool) -> list[int]:
        """Token ids of ``text``; control tokens written in it count only if ``parse_special``."""
        data = text.encode("utf-8", "surrogatepass")
        return self._native.tokenize(data, parse_special=parse_special) if data else []

    def encode_bytes(self, data: bytes) -> list[int]:
        """Token ids of plain text."""
        return self._native.tokenize(data, parse_special=False) if data else []

    def with_bos(self, token_ids: list[int]) -> list[int]:
        """The same ids with exactly one beginning-of-sequence token where the model wants it."""
        native = self._native
        if not native.add_bos or native.bos < 0 or token_ids[:1] == [native.bos]:
            return token_ids
        return [native.bos, *token_ids]

    def written(self, token_id: int) -> bytes:
        """The bytes of a text of this token alone, a control token's own text included."""
        return self._native.detokenize(token_id)

    @cached_property
    def end_ids(self) -> tuple[int, ...]:
        """All end-of-generation tokens (asks for each token: only for ``ignore_eos``)."""
        return tuple(i for i in range(self.size) if self._native.is_end(i))

    @cached_property
    def suppressed_ids(self) -> tuple[int, ...]:
        """Tokens the model's file says are never to be drawn."""
        return tuple(self._native.suppressed)

    def text(self, token_id: int) -> str:
        """The token as the vocabulary writes it, control tokens too."""
        return self._native.text(token_id)

    @cached_property
    def control_texts(self) -> tuple[str, ...]:
        """The spellings that become control tokens when special tokens are parsed."""
        wanted = ATTR_CONTROL | ATTR_UNKNOWN
        ids = (i for i in range(self.size) if self._native.attributes(i) & wanted)
        return tuple(sorted({text for i in ids if (text := self._native.text(i))}))

    @property
    def bos_text(self) -> str:
        return self._native.text(self._native.bos) if self._native.bos >= 0 else ""

    @property
    def eos_text(self) -> str:
        return self._native.text(self._native.eos) if self._native.eos >= 0 else ""
