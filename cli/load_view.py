"""What is seen while models load: one live row that vanishes."""

from __future__ import annotations

import time
from collections.abc import Callable

from outrider.cli.frame import Frame, LiveRow, Size
from outrider.cli.glyphs import Glyphs

_UNSEEN_S = 0.3
_PAINT_S = 0.25
_CELLS = 20
_WORDS = {"target": "loading target ", "drafter": "loading drafter"}


class LoadView:
    """Paints progress as :meth:`outrider.speculative.engine.Engine.load` tells it.

    Nothing is shown for a wait shorter than 0.3 s.
    """

    def __init__(
        self, write: Callable[[str], None], size: Callable[[], Size], glyphs: Glyphs
    ) -> None:
        self._frame = Frame(write, size)
        self._size = size
        self._glyphs = glyphs
        self._started = time.monotonic()
        self._next_paint = self._started + _UNSEEN_S

    def __call__(self, stage: str, share: float) -> None:
        now = time.monotonic()
        if now < self._next_paint:
            return
        self._next_paint = now + _PAINT_S
        columns, _ = self._size()
        row = self._row(stage, share, now)[: columns - 1]
        self._frame.paint([], [LiveRow(row, len(row))])

    def close(self) -> None:
        """Take the row away."""
        self._frame.settle()

    def _row(self, stage: str, share: float, now: float) -> str:
        if stage not in _WORDS:
            return " measuring the cost of drafts on this machine"
        full, empty = self._glyphs.gauge(share, _CELLS)
        elapsed = f"{now - self._started:.1f} s"
        return f" {_WORDS[stage]}  {full}{empty}  {100 * share:3.0f} %  {elapsed}   ctrl-c cancels"
