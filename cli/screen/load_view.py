"""What is seen while models load: one live row that vanishes."""

from __future__ import annotations

from collections.abc import Callable

from outrider.cli.glyphs import Glyphs
from outrider.cli.screen.frame import Size
from outrider.cli.screen.panel import Row, progress_row, spread
from outrider.cli.screen.theme import Theme
from outrider.cli.screen.waiting_row import WaitingRow
from outrider.cli.stats_view import percent

_WORDS = {"target": "loading target ", "drafter": "loading drafter"}


class LoadView:
    """Paints progress as :meth:`outrider.speculative.engine.Engine.load` tells it."""

    def __init__(
        self,
        write: Callable[[str], None],
        size: Callable[[], Size],
        glyphs: Glyphs,
        theme: Theme,
    ) -> None:
        self._row = WaitingRow(write, size, theme)
        self._glyphs = glyphs

    def __call__(self, stage: str, share: float) -> None:
        elapsed_s = self._row.elapsed_s
        self._row.show(lambda columns: loading_row(stage, share, elapsed_s, columns, self._glyphs))

    def close(self) -> None:
        """Take the row away."""
        self._row.close()


def loading_row(stage: str, share: float, elapsed_s: float, columns: int, glyphs: Glyphs) -> Row:
    """How much of a model is loaded; what else is done at the start has no bar."""
    width = columns - 1
    if stage not in _WORDS:
        words = " measuring the cost of drafts on this machine"
        return [(words if len(words) <= width else " measuring", "dim")]
    figures = [f"{percent(round(100 * share), 100):>4}", f"{elapsed_s:.1f} s"]
    row = progress_row(f" {_WORDS[stage]}  ", share, figures, width, glyphs)
    return spread(row, "ctrl-c cancels", width)
