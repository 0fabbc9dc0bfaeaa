"""Uniforms: the random numbers of one generation, addressed by emitted-token index."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import numpy as np

_CHUNK = 1024
_TARGET, _ACCEPTANCE, _PROPOSAL, _CHAIN = range(4)


class Uniforms:
    """Independent streams of float64 in [0, 1) from one seed.

    Those of the target, of acceptance and of the chain (samplers that throw a coin of their
    own: XTC) are read by index of the emitted token, one number of each for every token from
    the first on: draft lengths, cancels, forced tokens and restores cannot shift them, and
    plain decoding draws the same tokens as ``match``. Proposals have a stream of their own that
    only moves forward: a value used twice would correlate a draft with a later draw.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._chunks: dict[tuple[int, int], list[float]] = {}
        self._num_proposals = 0

    def target(self, index: int) -> float:
        return self._at(_TARGET, index)

    def acceptance(self, index: int) -> float:
        return self._at(_ACCEPTANCE, index)

    def chain(self, index: int) -> float:
        return self._at(_CHAIN, index)

    def proposal(self) -> float:
        """The next number of the proposal stream."""
        self._num_proposals += 1
        return self._at(_PROPOSAL, self._num_proposals - 1)

    def _at(self, stream: int, index: int) -> float:
        chunk, offset = divmod(index, _CHUNK)
        numbers = self._chunks.get((stream, chunk))
        if numbers is None:
            # counter-based: chunk and stream are words of the counter, so that no two overlap
            generator = np.random.Philox(key=self.seed, counter=[0, chunk, stream, 0])
            numbers = np.random.Generator(generator).random(_CHUNK).tolist()
            self._chunks[stream, chunk] = numbers
        return numbers[offset]


@dataclass(slots=True, eq=False)
class Coins:
    """The uniforms of one block: those of the token that would be emitted ``offset``-th."""

    uniforms: Uniforms
    first_index: int

    def target(self, offset: int) -> float:
        return self.uniforms.target(self.first_index + offset)

    def acceptance(self, offset: int) -> float:
        return self.uniforms.acceptance(self.first_index + offset)

    def chain(self, offset: int) -> float:
        return self.uniforms.chain(self.first_index + offset)


def fresh_seed() -> int:
    """A seed for a generation that was given none."""
    return secrets.randbits(32)
