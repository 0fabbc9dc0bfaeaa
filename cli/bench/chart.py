"""Charts of text: bars that start at 0, and curves as points on a grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from outrider.cli.glyphs import UNICODE, Glyphs

_EIGHTHS = " ▏▎▍▌▋▊▉"
_LEVELS = 10  # rows of a curve above 0


@dataclass(frozen=True, slots=True)
class Curve:
    """One value for each place of the horizontal axis; None where there is none."""

    name: str
    values: Sequence[float | None]


def bar(value: float, maximum: float, cells: int, glyphs: Glyphs) -> str:
    """A bar as long as ``value`` of ``maximum``, which has all ``cells``; eighths in Unicode."""
    share = min(max(value / maximum, 0.0), 1.0) if maximum > 0 else 0.0
    if glyphs is not UNICODE:
        return glyphs.gauge_full * math.floor(share * cells + 0.5)
    full, eighths = divmod(math.floor(share * cells * 8 + 0.5), 8)
    return glyphs.gauge_full * full + (_EIGHTHS[eighths] if eighths else "")


def curves(
    places: Sequence[str], lines: Sequence[Curve], glyphs: Glyphs, step: int = 6
) -> list[str]:
    """Points over ``places``, ``step`` columns each, between 0 and 1; what is above 1 is at 1.

    At most two curves; a place where both are in the same row has a mark of its own.
    """
    marks, both = ("●○", "◉") if glyphs is UNICODE else ("*o", "@")
    corner, side, floor = ("└", "┤", "─") if glyphs is UNICODE else ("+", "|", "-")
    canvas = [[" "] * (step * len(places) + 1) for _ in range(_LEVELS + 1)]
    for line, mark in zip(lines, marks, strict=False):
        for place, value in enumerate(line.values):
            if value is None:
                continue
            row = canvas[_LEVELS - round(_LEVELS * min(max(value, 0.0), 1.0))]
            column = step * (place + 1) - 1
            row[column] = both if row[column] in marks else mark
    rows = [
        f"{1 - i / _LEVELS:4.2f} {side}{''.join(cells)}".rstrip() for i, cells in enumerate(canvas)
    ]
    axis = "".join(f"{place:>{step}}" for place in places)
    legend = "   ".join(f"{mark} {line.name}" for line, mark in zip(lines, marks, strict=False))
    return [*rows, f"     {corner}{floor * (step * len(places) + 1)}", f"      {axis}   {legend}"]
