"""CostCurve: what a decode of several rows costs here, and whether the machine was quiet."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from outrider.cli.doctor.neighbours import CoreTime, others_share

RESTLESS = 0.10
"""The most that repeats may differ by, and that others may use of the cores."""

SIZES = (1, 2, 4, 8, 16, 3, 5, 9, 32, 64)
"""Rows of a decode, the most telling first: a slow model does not get to the others."""

_LARGE, _TURN = 16, 3  # larger ones take their turn in every third round only
_RUN = 3  # decodes of a size in a row; the first, after another size, takes longer
_MIN_REPEATS = 3
_FIRST_SHARE = 0.25  # of the time for the first decodes, so that there are repeats
_PATIENCE = 3  # times the budget, for the least number of repeats


@dataclass(frozen=True, slots=True)
class CostCurve:
    """``times`` are the seconds of each repeat by rows, behind ``depth`` cached tokens.

    ``others`` is the part of the cores that other programs used meanwhile, None if unknown.
    """

    times: Mapping[int, tuple[float, ...]]
    depth: int = 0
    others: float | None = None

    @property
    def verify_s(self) -> dict[int, float]:
        """Seconds by rows, medians."""
        return {rows: median(seconds) for rows, seconds in self.times.items()}

    @property
    def plain_s(self) -> float:
        return median(self.times[1])

    def cost(self, rows: int) -> float:
        """Times a decode of one row."""
        return median(self.times[rows]) / self.plain_s

    @property
    def spread(self) -> float | None:
        """By how much repeats of the same decode differ, over their median; None if unknown.

        The distance between the quartiles, for the middle one of the row counts: a single
        interruption leaves it as it is, as it does the medians that are shown.
        """
        spreads = [
            (quarters[2] - quarters[0]) / quarters[1]
            for quarters in (_quarters(s) for s in self.times.values() if len(s) >= _MIN_REPEATS)
        ]
        return median(spreads) if spreads else None

    @property
    def is_quiet(self) -> bool:
        """True if the figures can be believed.

        Repeats alone do not tell: a neighbour that computes all the time slows all of them, and
        long decodes more than short ones.
        """
        spread = self.spread
        return spread is not None and spread <= RESTLESS and (self.others or 0.0) <= RESTLESS


def measure_curve(
    time_batch: Callable[[int], float],
    most_rows: int,
    budget_s: float,
    depth: int = 0,
    sizes: Sequence[int] = SIZES,
) -> CostCurve:
    """Time decodes of up to ``most_rows`` rows in turns, for about ``budget_s`` seconds.

    Each size is decoded once before it counts: the first decode of a size allocates. A turn is a
    few decodes in a row, as in an answer. Sizes that the time does not suffice for are left out,
    one row never.
    """
    started, before = time.perf_counter(), CoreTime.now()
    times: dict[int, list[float]] = {}
    for rows in sizes:
        is_late = time.perf_counter() - started > _FIRST_SHARE * budget_s
        if rows <= most_rows and not (times and is_late):
            time_batch(rows)
            times[rows] = []
    for number in itertools.count():
        turn = [rows for rows in times if rows <= _LARGE or number % _TURN == 0]
        for rows in turn:
            spent = time.perf_counter() - started
            is_enough = min(map(len, times.values())) >= _MIN_REPEATS
            is_over = spent > budget_s * (1 if is_enough else _PATIENCE)
            if is_over and all(times.values()):
                by_size = {size: tuple(times[size]) for size in sorted(times)}
                return CostCurve(by_size, depth, others_share(before, CoreTime.now()))
            times[rows] += [time_batch(rows) for _ in range(_RUN)][1:]
    raise AssertionError("the rounds end by time")


def _quarters(seconds: Sequence[float]) -> list[float]:
    return quantiles(seconds, n=4, method="inclusive")
