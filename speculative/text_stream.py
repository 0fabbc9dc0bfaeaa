"""TextStream: token bytes to text that may be shown."""

from __future__ import annotations

import codecs
from bisect import bisect_left
from collections.abc import Sequence


class TextStream:
    """Collects the bytes of emitted tokens and gives out complete characters.

    A character split over tokens waits for its last byte; an invalid byte becomes U+FFFD. Text
    that could be the beginning of a stop string is held back until it is known.
    """

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self._stop = tuple(s for s in stop if s)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._shown: list[str] = []
        self._num_shown = 0
        self._held = ""
        self._ends: list[int] = []  # characters complete after each token
        self.is_stopped = False

    @property
    def text(self) -> str:
        """All text so far, what is held back included."""
        return "".join(self._shown) + self._held

    def push(self, piece: bytes) -> bool:
        """Add one token's bytes; True if a stop string is complete (nothing may follow then)."""
        self._held += self._decoder.decode(piece)
        self._ends.append(self._num_shown + len(self._held))
        found = [at for s in self._stop if (at := self._held.find(s)) >= 0]
        if found:
            self._held = self._held[: min(found)]
            self.is_stopped = True
        return self.is_stopped

    def num_tokens_kept(self) -> int:
        """How many tokens hold the text: up to the one with the last kept character."""
        length = self._num_shown + len(self._held)
        return bisect_left(self._ends, length) + 1 if length else 0

    def release(self) -> str:
        """The text that can no longer become part of a stop string, once."""
        if self.is_stopped:
            return self.finish()
        held_back = max((self._overlap(s) for s in self._stop), default=0)
        return self._give(len(self._held) - held_back)

    def finish(self) -> str:
        """The rest of the text; bytes of an incomplete character are dropped."""
        return self._give(len(self._held))

    def _give(self, count: int) -> str:
        text, self._held = self._held[:count], self._held[count:]
        self._shown.append(text)
        self._num_shown += count
        return text

    def _overlap(self, stop: str) -> int:
        """Length of the longest beginning of ``stop`` that ends the held text."""
        for length in range(min(len(stop) - 1, len(self._held)), 0, -1):
            if self._held.endswith(stop[:length]):
                return length
        return 0
