"""The few characters beyond ASCII that the screens use, and what stands in for them."""

from __future__ import annotations

import math
import os
import sys
from dataclasses import dataclass
from typing import Literal

GlyphSetting = Literal["auto", "unicode", "ascii"]


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One set of characters; ``spark`` rises from nothing to full."""

    prompt: str
    separator: str
    dash: str
    ellipsis: str
    rule: str
    spark: str
    gauge_full: str
    gauge_empty: str
    gauge_ends: tuple[str, str]
    position_bars: bool

    def gauge(self, fraction: float, cells: int) -> tuple[str, str]:
        """The filled and the empty part of a bar, its ends included."""
        left, right = self.gauge_ends
        filled = max(0, min(cells, math.ceil(fraction * cells)))
        return left + self.gauge_full * filled, self.gauge_empty * (cells - filled) + right

    def bar(self, value: float, maximum: float = 1.0) -> str:
        """One cell as high as ``value`` of ``maximum``."""
        share = value / maximum if maximum > 0 else 0.0
        return self.spark[max(0, min(len(self.spark) - 1, int(share * len(self.spark))))]


UNICODE = Glyphs("›", "·", "–", "…", "─", "▁▂▃▄▅▆▇█", "█", "░", ("", ""), True)
ASCII = Glyphs(">", "|", "-", "...", "-", "_.-:=+*#", "#", "-", ("[", "]"), False)


def glyphs_for(
    encoding: str | None = None, term: str | None = None, setting: GlyphSetting = "auto"
) -> Glyphs:
    """What the terminal can draw, by the encoding of stdout and ``TERM``, or what is wanted."""
    if setting != "auto":
        return UNICODE if setting == "unicode" else ASCII
    encoding = sys.stdout.encoding if encoding is None else encoding
    term = os.environ.get("TERM", "") if term is None else term
    is_utf8 = (encoding or "").lower().replace("-", "").replace("_", "") == "utf8"
    return UNICODE if is_utf8 and term != "linux" else ASCII
