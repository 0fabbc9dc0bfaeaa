"""DRY: what a token costs that would go on with a repetition.

The rules are those of llama.cpp (src/llama-sampler.cpp, llama_sampler_dry_apply).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.settings import SamplingSettings

F64 = NDArray[np.float64]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]

_MAX_TEXT_BYTES = 40
_MAX_TAIL_TOKENS = 20
# llama.cpp's constants, in its precision: at base 2 the last bit decides
_LOG_FLOAT_MAX = np.float32(88.7228391)
_LEAST_BASE = np.float32(1.000001)


@dataclass(frozen=True, slots=True)
class DryBreakers:
    """Texts that end a repetition, as tokens.

    ``tails``: a token in which a breaker begins, and what may follow to complete it; nothing
    if the token holds all of it.
    """

    tails: Mapping[int, frozenset[tuple[int, ...]]] = field(default_factory=dict)

    @classmethod
    def find(
        cls,
        texts: Sequence[str],
        num_tokens: int,
        piece: Callable[[int], bytes],
        encode: Callable[[str], list[int]],
    ) -> DryBreakers:
        """Look for the texts in all tokens.

        Args:
            texts: the breakers; "none" forgets those before it.
            num_tokens: the size of the vocabulary.
            piece: the bytes a token has by itself, control tokens spelled out.
            encode: tokens of a plain text; where a token splits a character, its other bytes
                are there as Python's surrogate escapes.
        """
        while "none" in texts:
            texts = texts[texts.index("none") + 1 :]
        if not any(texts):
            return cls()
        pieces = _Pieces([piece(token) for token in range(num_tokens)])
        tails: dict[int, set[tuple[int, ...]]] = defaultdict(set)
        for text in filter(None, texts):
            data = text.encode("utf-8", "surrogateescape")[:_MAX_TEXT_BYTES]
            whole = pieces.holding(data)
            for token in whole:
                tails[token].add(())
            for length in range(1, len(data)):
                heads = pieces.ending_with(data[:length]) - whole
                if heads:
                    rest = data[length:].decode("utf-8", "surrogateescape")
                    tail = tuple(encode(rest)[:_MAX_TAIL_TOKENS])
                    for token in heads:
                        tails[token].add(tail)
        return cls({token: frozenset(ends) for token, ends in tails.items()})

    def is_one(self, token_id: int) -> bool:
        """True for a token that is a breaker by itself."""
        return () in self.tails.get(token_id, ())

    def limit(self, recent: list[int]) -> int:
        """How many tokens there are after the last breaker; ``recent`` has the newest first."""
        if not self.tails:
            return len(recent)
        for place, token in enumerate(recent):
            matching = [
                len(tail)
                for tail in self.tails.get(token, ())
                if len(tail) <= place and tuple(recent[place - len(tail) : place][::-1]) == tail
            ]
            if matching:
                return place - max(matching)
        return len(recent)


NO_BREAKERS = DryBreakers()


def is_dry_on(settings: SamplingSettings) -> bool:
    """False where llama.cpp leaves DRY out of the chain."""
    return (
        settings.dry_multiplier != 0 and settings.dry_base >= 1 and settings.dry_penalty_last_n > 0
    )


def dry_penalties(
    history: I32, settings: SamplingSettings, breakers: DryBreakers
) -> tuple[I64, F64]:
    """The tokens that would lengthen a repetition, and what is taken off their logits.

    Args:
        history: the tokens so far; the last ``dry_penalty_last_n`` count.
        settings: DRY must be on.
        breakers: repetitions do not reach across them, and they cost nothing themselves.

    Returns:
        token ids [n], ascending, and penalties [n].
    """
    longest = _longest_repeats(
        history[-settings.dry_penalty_last_n :][::-1].tolist(),
        settings.dry_allowed_length,
        breakers,
    )
    ids = sorted(token for token in longest if not breakers.is_one(token))
    lengths = np.array([longest[token] for token in ids], np.int64)
    penalties = _penalties(lengths - settings.dry_allowed_length, settings)
    return np.array(ids, np.int64), penalties


def _penalties(exponents: I64, settings: SamplingSettings) -> F64:
    base = np.float32(settings.dry_base)
    most = int(_LOG_FLOAT_MAX / np.log(base)) if base > _LEAST_BASE else 0
    if most > 0:
        exponents = np.minimum(exponents, most)
    with np.errstate(over="ignore"):
        return settings.dry_multiplier * np.power(float(base), exponents)


def _longest_repeats(recent: list[int], allowed: int, breakers: DryBreakers) -> dict[int, int]:
    """For each token that would go on with a repetition of ``allowed`` tokens: its length."""
    if len(recent) <= max(allowed, 0):
        return {}
    limit = breakers.limit(recent)
    if limit < allowed:
        return {}
    repeats = _repeats(recent)
    longest: dict[int, int] = {}
    for start in repeats if allowed > 0 else range(1, len(recent)):
        length = min(repeats.get(start, 0), limit)
        token = recent[start - 1]
        if length >= allowed and length > longest.get(token, -1):
            longest[token] = length
    return longest


def _repeats(text: list[int]) -> dict[int, int]:
    """Where the beginning of ``text`` comes again, and for how many tokens (Z algorithm)."""
    lengths: dict[int, int] = {}
    size, first, left, right = len(text), text[0], 0, 0
    start = 0
    while (start := start + 1) < size:
        if start >= right:
            try:
                start = text.index(first, start)
            except ValueError:
                break
        length = min(lengths.get(start - left, 0), right - start) if start < right else 1
        if start + length >= right:
            while start + length < size and text[length] == text[start + length]:
                length += 1
            left, right = start, start + length
        if length:
            lengths[start] = length
    return lengths


class _Pieces:
    """The bytes of all tokens in a row: searches run over the whole vocabulary at once."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._bytes = np.frombuffer(b"".join(pieces), np.uint8)
        self._lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
        self._ends = self._lengths.cumsum()

    def holding(self, part: bytes) -> set[int]:
        """The tokens that contain ``part``."""
        places = np.arange(max(0, len(self._bytes) - len(part) + 1))
        for offset, byte in enumerate(part):
            places = places[self._bytes[places + offset] == byte]
        tokens = self._ends.searchsorted(places, side="right")
        return set(tokens[places + len(part) <= self._ends[tokens]].tolist())

    def ending_with(self, part: bytes) -> set[int]:
        """The tokens that end with ``part``."""
        tokens = np.flatnonzero(self._lengths >= len(part))
        for back, byte in enumerate(reversed(part), start=1):
            tokens = tokens[self._bytes[self._ends[tokens] - back] == byte]
        return set(tokens.tolist())
