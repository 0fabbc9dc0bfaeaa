"""Pearson's test of counts against a law that was enumerated."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import TypeVar

T = TypeVar("T", bound=Hashable)

_MIN_EXPECTED = 5.0


def p_value(counts: Mapping[T, int], law: Mapping[T, float]) -> float:
    """The chance of counts at least as far from ``law``; 0 for anything ``law`` forbids.

    Cells are counted together until five are expected, rare ones with rare ones.
    """
    if any(count and not law.get(cell) for cell, count in counts.items()):
        return 0.0
    total = sum(counts.values())
    statistic = expected = counted = 0.0
    num_cells = 0
    for cell, chance in sorted(law.items(), key=lambda item: item[1]):
        expected += total * chance
        counted += counts.get(cell, 0)
        if expected >= _MIN_EXPECTED:
            statistic += (counted - expected) ** 2 / expected
            num_cells += 1
            expected = counted = 0.0
    return upper_tail(statistic, num_cells - 1)


def upper_tail(statistic: float, degrees: int) -> float:
    """Chance that chi-square exceeds ``statistic`` (Wilson and Hilferty 1931)."""
    spread = 2 / (9 * degrees)
    z = ((statistic / degrees) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)
    return math.erfc(z / math.sqrt(2)) / 2
