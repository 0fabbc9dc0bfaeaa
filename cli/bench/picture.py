"""The charts of a sweep as a picture: SVG or PNG, drawn by matplotlib (an extra)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from outrider.cli.bench.break_even import BreakEven
from outrider.cli.bench.sweep_outcome import SweepOutcome
from outrider.cli.errors import UsageError

_FORMATS = (".svg", ".png")


def picture(path: Path) -> Callable[[SweepOutcome, str], None]:
    """What draws an outcome, under a title, into ``path``; checked before anything is measured.

    Raises:
        UsageError: the ending is not one of a picture, no such folder, or no matplotlib.
    """
    if path.suffix.lower() not in _FORMATS:
        raise UsageError(f"--chart {path}: allowed: a file that ends in {' or '.join(_FORMATS)}")
    if not path.parent.is_dir():
        raise UsageError(f"--chart {path}: {path.parent}: no such folder")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError(
            '--chart: pictures need matplotlib: pip install "outrider[charts]"'
        ) from None

    def draw(outcome: SweepOutcome, title: str) -> None:
        costs = outcome.break_even
        figure = Figure(figsize=(7, 3 + 3 * len(costs)), layout="constrained")
        axes = figure.subplots(1 + len(costs), squeeze=False)[:, 0]
        figure.suptitle(title)
        _speeds(axes[0], outcome)
        for one, axis in zip(costs, axes[1:], strict=True):
            _costs(axis, one)
        try:
            figure.savefig(path)
        except OSError as error:
            raise UsageError(f"--chart {path}: {error.strerror}") from None

    return draw


def _speeds(axis: Any, outcome: SweepOutcome) -> None:
    rows = [row for row in outcome.rows if row.standing.ratio.num_pairs]
    speeds = [row.tokens_per_s or 0.0 for row in rows]
    best = outcome.best.tokens_per_s or 0.0
    ends = [(row.standing.ratio.low * best, row.standing.ratio.high * best) for row in rows]
    errors = [
        [max(speed - low, 0.0) for speed, (low, _) in zip(speeds, ends, strict=True)],
        [max(high - speed, 0.0) for speed, (_, high) in zip(speeds, ends, strict=True)],
    ]
    colours = ["#1b7837" if row is outcome.best else "#7f9fbf" for row in rows]
    axis.barh([row.candidate.label for row in rows], speeds, xerr=errors, color=colours)
    axis.invert_yaxis()
    axis.set_xlim(left=0)
    axis.set_xlabel("tokens/s; the line is the 99 % interval against the best")
    axis.set_ylabel(", ".join(outcome.best.candidate.values))


def _costs(axis: Any, one: BreakEven) -> None:
    lengths = [cost.length for cost in one.lengths]
    has = [(cost.length, cost.has) for cost in one.lengths if cost.has is not None]
    axis.plot(lengths, [cost.needs for cost in one.lengths], "o--", color="#b2182b", label="needs")
    axis.plot([n for n, _ in has], [rate for _, rate in has], "o-", color="#1b7837", label="has")
    axis.set_ylim(0, max(1.0, *(cost.needs for cost in one.lengths)))
    axis.set_xticks(lengths)
    axis.set_xlabel("draft length")
    axis.set_ylabel("acceptance rate")
    axis.set_title(one.drafter)
    axis.legend()
