"""ReasoningSplitter and ReasoningTracker: where a thought ends and the answer begins.

An answer is: white space, the start tag, the thought, the end tag, newlines, the answer proper.
White space on either side of the thought belongs to neither; llama.cpp takes as much of it as
the template writes. Without a start tag all of it is answer, white space included.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from enum import IntEnum
from typing import Self

from outrider.speculative.settings import ReasoningSettings

# ASCII only, so that text and the bytes of text are cut at the same places
_SPACE = " \t\n\r\f\v"
_NEWLINES = "\r\n"


class _Phase(IntEnum):
    BEFORE = 0  # white space, or what may become the start tag
    OPENED = 1  # white space before the thought
    THINKING = 2
    CLOSED = 3  # newlines before the answer
    ANSWER = 4


class _Scanner:
    """Takes an answer apart as it comes; what may become a tag is held back."""

    def __init__(self, start: str, end: str, is_open: bool) -> None:
        assert end, "a thought without an end tag would never end"
        self._start = start
        self.end = end
        self._phase = _Phase.OPENED if is_open else _Phase.BEFORE
        self._held = ""

    @property
    def is_thinking(self) -> bool:
        """True inside of the tags."""
        return self._phase in (_Phase.OPENED, _Phase.THINKING)

    @property
    def is_over(self) -> bool:
        """True once nothing can be reasoning any more."""
        return self._phase >= _Phase.CLOSED

    @property
    def num_ending(self) -> int:
        """How much of the end tag has come, inside of a thought."""
        return _overlap(self._held, self.end) if self.is_thinking else 0

    def push(self, text: str) -> tuple[str, str]:
        """What is known now to be (reasoning, answer)."""
        self._held += text
        reasoning = answer = ""
        if self._phase is _Phase.BEFORE:
            self._look_for_start()
        if self._phase is _Phase.OPENED:
            self._skip(_SPACE, _Phase.THINKING)
        if self._phase is _Phase.THINKING:
            reasoning = self._think()
        if self._phase is _Phase.CLOSED:
            self._skip(_NEWLINES, _Phase.ANSWER)
        if self._phase is _Phase.ANSWER:
            answer, self._held = self._held, ""
        return reasoning, answer

    def finish(self) -> tuple[str, str]:
        """The rest, when nothing more comes: half a tag is text."""
        rest, self._held = self._held, ""
        return (rest.rstrip(_SPACE), "") if self.is_thinking else ("", rest)

    def _look_for_start(self) -> None:
        text = self._held.lstrip(_SPACE)
        if text.startswith(self._start):
            self._held = text[len(self._start) :]
            self._phase = _Phase.OPENED
        elif not self._start.startswith(text):
            self._phase = _Phase.ANSWER

    def _skip(self, characters: str, following: _Phase) -> None:
        self._held = self._held.lstrip(characters)
        if self._held:
            self._phase = following

    def _think(self) -> str:
        thought, end, rest = self._held.partition(self.end)
        if end:
            self._held = rest
            self._phase = _Phase.CLOSED
            return thought.rstrip(_SPACE)
        # white space before the end tag goes with it
        num_held = _overlap(self._held, self.end)
        known = self._held[: len(self._held) - num_held].rstrip(_SPACE)
        self._held = self._held[len(known) :]
        return known


class ReasoningSplitter:
    """Text in pieces of any size to (reasoning, answer), each given out once."""

    def __init__(self, settings: ReasoningSettings) -> None:
        self._scanner = _Scanner(
            settings.start.strip(_SPACE), settings.end.strip(_SPACE), settings.is_open
        )

    @property
    def is_thinking(self) -> bool:
        """True inside of the tags."""
        return self._scanner.is_thinking

    def push(self, text: str) -> tuple[str, str]:
        """What is known now to be (reasoning, answer)."""
        return self._scanner.push(text)

    def finish(self) -> tuple[str, str]:
        """The rest of both: a thought that was not ended is all reasoning."""
        return self._scanner.finish()


class ReasoningTracker:
    """Follows the tokens of an answer through its reasoning, and says what a budget forces.

    The budget counts tokens inside of the tags. When it is used up the message and the end tag
    are forced, token by token, once the last character is complete (llama.cpp's
    common/reasoning-budget.cpp, which looks at the last token alone and not at the character).
    """

    def __init__(
        self,
        settings: ReasoningSettings,
        piece: Callable[[int], bytes],
        encode: Callable[[str], list[int]],
    ) -> None:
        """``piece`` gives control tokens as their text; ``encode`` parses them."""
        start, end = settings.start.strip(_SPACE), settings.end.strip(_SPACE)
        self._scanner = _Scanner(_as_text(start.encode()), _as_text(end.encode()), settings.is_open)
        self._piece = piece
        self._opening = () if settings.is_open else tuple(encode(start))
        self._budget = settings.budget
        message = encode(settings.message) if settings.message else []
        self._closing = (*message, *encode(end))
        self._num_pushed = 0
        self._num_thought = 0
        self._num_forced = -1  # tokens of the closing that came; -1 while none is due
        self._tail = b""
        self.rest = b""
        """Bytes of the last token that are answer: those after the end tag, or all that was held
        back when it turned out not to be the start tag."""
        self._force_if_spent()

    @property
    def is_thinking(self) -> bool:
        """True inside of the tags."""
        return self._scanner.is_thinking

    @property
    def is_over(self) -> bool:
        """True from the answer proper on."""
        return self._scanner.is_over

    @property
    def forced(self) -> int | None:
        """The token that must come next because the budget is used up."""
        if self.is_thinking and 0 <= self._num_forced < len(self._closing):
            return self._closing[self._num_forced]
        return None

    @property
    def end(self) -> bytes:
        """The end tag."""
        return self._scanner.end.encode("latin-1")

    @property
    def num_ending(self) -> int:
        """How many bytes of the end tag have come, inside of a thought."""
        return self._scanner.num_ending

    @property
    def opening(self) -> int | None:
        """The token with which a thought begins or its start tag goes on, while nothing else has
        come: what a grammar has to let through."""
        is_open = self.is_thinking or self.is_over
        if is_open or not 0 <= self._num_pushed < len(self._opening):
            return None
        return self._opening[self._num_pushed]

    def push(self, token_id: int) -> None:
        """Go on after ``token_id``."""
        was_thinking = self.is_thinking
        self._num_pushed = self._num_pushed + 1 if token_id == self.opening else -1
        data = self._piece(token_id)
        _, answer = self._scanner.push(_as_text(data))
        self.rest = answer.encode("latin-1")
        if self._num_forced >= 0:
            self._num_forced += 1
        else:
            self._num_thought += was_thinking
            self._tail = (self._tail + data)[-3:]
            self._force_if_spent()

    def copy(self) -> Self:
        """An equal tracker that goes its own way."""
        twin = copy.copy(self)
        twin._scanner = copy.copy(self._scanner)
        return twin

    def _force_if_spent(self) -> None:
        is_spent = self.is_thinking and 0 <= self._budget <= self._num_thought
        if is_spent and _is_complete(self._tail):
            self._num_forced = 0


def _as_text(data: bytes) -> str:
    """One character for each byte, so that bytes are scanned as text is."""
    return data.decode("latin-1")


def _overlap(text: str, tag: str) -> int:
    """Length of the longest beginning of ``tag``, but not all of it, that ends ``text``."""
    for length in range(min(len(tag) - 1, len(text)), 0, -1):
        if text.endswith(tag[:length]):
            return length
    return 0


def _is_complete(tail: bytes) -> bool:
    """True if UTF-8 that ends with ``tail`` (3 bytes are enough) ends with a whole character."""
    for num_bytes, byte in enumerate(reversed(tail), 1):
        if byte & 0xC0 != 0x80:  # a first byte
            return num_bytes >= 1 + (byte >= 0xC0) + (byte >= 0xE0) + (byte >= 0xF0)
    return True
