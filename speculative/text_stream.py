"""TextStream: token bytes to text that may be shown."""

from __future__ import annotations

import codecs
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence

from outrider.speculative.events import Spans


class TextStream:
    """Collects the bytes of emitted tokens and gives out complete characters.

    A character split over tokens waits for its last byte, and is no text if that never comes; an
    invalid byte becomes U+FFFD. Text that could be the beginning of a stop string is held back
    until it is known. The stop string that is complete first ends the text, at its beginning; of
    several that are complete with the same character, the longest. So the text does not depend
    on how it is cut into tokens (llama.cpp takes the first beginning within each token).
    """

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self._stops = [_StopString(text) for text in stop if text]
        self._undecoded = b""
        self._shown: list[str] = []
        self._num_shown = 0
        self._held = ""
        self._ends: list[int] = []  # characters complete after each token, if anything can stop
        self.is_stopped = False

    @property
    def text(self) -> str:
        """All text so far, what is held back included."""
        return "".join(self._shown) + self._held

    @property
    def num_complete(self) -> int:
        """Characters of the text so far."""
        return self._num_shown + len(self._held)

    @property
    def num_shown(self) -> int:
        """Characters that were given out."""
        return self._num_shown

    def push(self, piece: bytes) -> bool:
        """Add one token's bytes; True if a stop string is complete (nothing may follow then)."""
        data = self._undecoded + piece
        text, num_decoded = codecs.utf_8_decode(data, "replace")
        self._undecoded = data[num_decoded:]
        self._held += text
        if self._stops:
            self._look_for_stop(text)
        return self.is_stopped

    def _look_for_stop(self, text: str) -> None:
        """Cut what is held where a stop string ends in ``text``, which was just added."""
        self._ends.append(self.num_complete)
        for index, character in enumerate(text, len(self._held) - len(text) + 1):
            found = [len(stop.text) for stop in self._stops if stop.advance(character)]
            if found:
                self._held = self._held[: index - max(found)]
                self.is_stopped = True
                break

    def num_tokens_kept(self) -> int:
        """How many tokens hold the text: up to the one with the last kept character."""
        length = self.num_complete
        return bisect_left(self._ends, length) + 1 if length else 0

    def release(self) -> str:
        """The text that can no longer become part of a stop string, once."""
        text, self._held = self._held, ""
        if self._stops and not self.is_stopped:
            count = len(text) - max(stop.matched for stop in self._stops)
            text, self._held = text[:count], text[count:]
        self._shown.append(text)
        self._num_shown += len(text)
        return text

    def finish(self) -> str:
        """The rest of the text; bytes of an incomplete character are dropped."""
        self._stops = []
        return self.release()


class AcceptedText:
    """Which characters of a text came from accepted draft tokens, until they are asked for."""

    def __init__(self) -> None:
        self._pieces: deque[tuple[int, bool]] = deque()  # the end of each, is it accepted
        self._start = 0  # of the first piece

    def add(self, end: int, is_accepted: bool) -> None:
        """The next token completes the text up to ``end``."""
        self._pieces.append((end, is_accepted))

    def take(self, start: int, end: int) -> Spans:
        """The accepted parts of the text from ``start`` to ``end``, counted from ``start``.

        Each call begins where the one before ended, or later.
        """
        spans: list[tuple[int, int]] = []
        while self._pieces and self._start < end:
            piece_end, is_accepted = self._pieces[0]
            first, last = max(self._start, start) - start, min(piece_end, end) - start
            if is_accepted and first < last:
                if spans and spans[-1][1] == first:
                    first = spans.pop()[0]
                spans.append((first, last))
            if piece_end > end:
                break
            self._start = piece_end
            self._pieces.popleft()
        return tuple(spans)


class _StopString:
    """How much of a stop string ends the text, character by character (Knuth, Morris, Pratt)."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.matched = 0
        # after n matched characters: the longest shorter beginning that ends them
        self._shorter = [0, 0]
        for character in text[1:]:
            self._shorter.append(self._extended(self._shorter[-1], character))

    def advance(self, character: str) -> bool:
        """Read one character of the text; True if the stop string is complete with it."""
        self.matched = self._extended(self.matched, character)
        return self.matched == len(self.text)

    def _extended(self, matched: int, character: str) -> int:
        while matched and self.text[matched] != character:
            matched = self._shorter[matched]
        return matched + (self.text[matched] == character)
