"""Keys out of what a terminal sends, with pastes of any size."""

from __future__ import annotations

import re

from prompt_toolkit.input import Input
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys

PASTE_END = "\x1b[201~"
BACKGROUND = "\x1b]11;"  # how the answer to a question after the background colour begins
_ANSWER = re.compile(r"\x1b\]11;[^\x07\x1b]*(?:\x07|\x1b\\)")
_LONGEST_ANSWER = 64


def read_large_pastes(keys: Input) -> None:
    """Let ``keys``, if it reads what a terminal sends, take a long paste in one go."""
    parser = getattr(keys, "vt100_parser", None)
    if isinstance(parser, Vt100Parser):
        keys.vt100_parser = PasteParser(parser.feed_key_callback)  # type: ignore[attr-defined]


class PasteParser(Vt100Parser):
    """A parser that looks at each chunk of a paste once, and drops an end mark without a paste.

    The stock one searches all of the paste again at every chunk: minutes for some megabytes.
    What the terminal answers about its background is no typed text, however late it comes: it
    becomes a key that does nothing.
    """

    def reset(self, request: bool = False) -> None:
        self._chunks: list[str] = []
        self._end = ""
        self._half_answer = ""
        super().reset(request)

    def feed(self, data: str) -> None:
        if not self._in_bracketed_paste:
            super().feed(self._without_answers(data))
            return
        self._chunks.append(data)
        # the mark may come in two parts
        seen = self._end + data
        self._end = seen[1 - len(PASTE_END) :]
        if PASTE_END not in seen:
            return
        text, _, rest = "".join(self._chunks).partition(PASTE_END)
        self._chunks, self._end, self._in_bracketed_paste = [], "", False
        self.feed_key_callback(KeyPress(Keys.BracketedPaste, text))
        self.feed(rest)

    def _without_answers(self, data: str) -> str:
        data, self._half_answer = self._half_answer + data, ""
        for answer in _ANSWER.findall(data):
            self.feed_key_callback(KeyPress(Keys.Ignore, answer))
        data = _ANSWER.sub("", data)
        start = data.find(BACKGROUND)
        if start >= 0 and len(data) - start < _LONGEST_ANSWER:
            data, self._half_answer = data[:start], data[start:]
        return data

    def _get_match(self, prefix: str) -> Keys | tuple[Keys, ...] | None:
        return Keys.Ignore if prefix == PASTE_END else super()._get_match(prefix)
