"""A sweep on the screen: the table with bars, what can be told apart, break-even."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence

from outrider.cli.bench.break_even import BreakEven
from outrider.cli.bench.chart import Curve, bar, curves
from outrider.cli.bench.sweep_outcome import SweepOutcome
from outrider.cli.glyphs import Glyphs
from outrider.cli.stats_view import fraction, plural, three_digits

_WIDE = 80  # of a stdout that is no terminal
_MOST_BAR, _LEAST_BAR = 40, 8
_STEP = 6  # columns of one draft length


def sweep_lines(outcome: SweepOutcome, glyphs: Glyphs, *, name: str, hint: bool) -> list[str]:
    """Everything for stdout; with ``hint`` how to save the winner."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDE
    lines = [heading(outcome, name), *table(outcome, glyphs, width)]
    for remark in remarks(outcome):
        lines += textwrap.wrap(remark, width)
    for one in outcome.break_even:
        lines += ["", *break_even_rows(one, glyphs, width)]
    if not outcome.snippet:
        return [*lines, "", f"{name} has the best settings already"]
    end = [] if not hint else ["# --write NAME saves this as a profile"]
    return [*lines, "", *end, *outcome.snippet.rstrip("\n").split("\n")]


def heading(outcome: SweepOutcome, name: str) -> str:
    counts = sorted({row.num_answers for row in outcome.rows})
    prompts = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    return (
        f"{name}  {len(outcome.rows)} candidates, {prompts} prompts each, in turn there and back,"
        " no warm-up"
    )


def table(outcome: SweepOutcome, glyphs: Glyphs, width: int) -> list[str]:
    """One row a candidate; the bars start at 0, the longest is the fastest."""
    axes = list(outcome.rows[0].candidate.values)
    cells = [[_cell(row.candidate.values[axis], glyphs) for axis in axes] for row in outcome.rows]
    widths = [max(len(axis), *(len(row[i]) for row in cells)) for i, axis in enumerate(axes)]
    head = "  ".join(f"{axis:>{w}}" for axis, w in zip(axes, widths, strict=True)) + "  tok/s"
    right = "  acceptance  mean length"
    room = min(width - len(head) - 2 - len(right) - len("   best") - 1, _MOST_BAR)
    room = room if room >= _LEAST_BAR else 0
    gap = " " * (room + 2) if room else ""
    fastest = outcome.best.tokens_per_s or 0.0
    lines = [f"{head}{gap}{right}"]
    for row, own in zip(outcome.rows, cells, strict=True):
        left = "  ".join(f"{cell:>{w}}" for cell, w in zip(own, widths, strict=True))
        drawn = f"  {bar(row.tokens_per_s or 0.0, fastest, room, glyphs):<{room}}" if room else ""
        end = "   best" if row is outcome.best else ""
        lines.append(
            f"{left}{three_digits(row.tokens_per_s, glyphs):>7}{drawn}"
            f"{fraction(row.stats.acceptance_rate, glyphs):>12}"
            f"{fraction(row.stats.mean_accepted_length, glyphs):>13}{end}"
        )
    return lines


def remarks(outcome: SweepOutcome) -> list[str]:
    """What can be told apart, who left early, whether the texts were the same."""
    best = outcome.best
    label, others = best.candidate.label, [row for row in outcome.rows if row is not best]
    equal = [row.candidate.label for row in outcome.rows if row is best or row in outcome.equal]
    if len(equal) > 1:
        lines = [f"{_and(equal)} are not distinguishable"]
    else:
        next_best = max(others, key=lambda row: row.tokens_per_s or 0.0)
        ratio = next_best.standing.ratio
        lines = [
            f"{label} is the fastest: {1 / ratio.value:.2f} times {next_best.candidate.label}"
            f" ({1 / ratio.high:.2f} to {1 / ratio.low:.2f})"
        ]
    for number in sorted({row.standing.left_after for row in others if row.standing.left_after}):
        left = [row for row in others if row.standing.left_after == number]
        names = _and([row.candidate.label for row in left])
        lines.append(f"left after round {number}, {left[0].num_answers} prompts each: {names}")
    if outcome.same_text is not None:
        same, of = outcome.same_text
        lines.append(f"same text at temperature 0: {same:,} of {of:,}")
    return lines


def break_even_rows(one: BreakEven, glyphs: Glyphs, width: int) -> list[str]:
    """Costs by draft length, and the curve of what each needs beside what it has."""
    shown = one.lengths[: (min(width, _WIDE) - 11) // _STEP]
    cells = {
        "length": [str(cost.length) for cost in shown],
        "step cost": [fraction(cost.step_cost) for cost in shown],
        "needs": [fraction(cost.needs) for cost in shown],
        "has": [fraction(cost.has, glyphs) for cost in shown],
        "gain": [fraction(cost.gain, glyphs) for cost in shown],
    }
    rows = [
        f"{name:<9}{''.join(f'{cell:>{_STEP}}' for cell in row)}" for name, row in cells.items()
    ]
    token = f"{1000 * one.draft_token_s:.2f} ms"
    head = f"{one.drafter}   a draft token {token}, a plain step {1000 * one.plain_s:.1f} ms = 1.00"
    drawn = curves(
        cells["length"],
        [
            Curve("has", [cost.has for cost in shown]),
            Curve("needs", [cost.needs for cost in shown]),
        ],
        glyphs,
        _STEP,
    )
    return [head, *rows, *drawn]


def winner_words(outcome: SweepOutcome) -> str:
    """Why the winner was written down, for its profile."""
    row = outcome.best
    speed = three_digits(row.tokens_per_s)
    equal = [other.candidate.label for other in outcome.equal]
    apart = f", not distinguishable from {_and(equal)}" if equal else ""
    return (
        f"outrider bench sweep: {row.candidate.label} of"
        f" {plural(len(outcome.rows), 'candidate')}, {speed} tok/s{apart}"
    )


def _cell(value: object, glyphs: Glyphs) -> str:
    return glyphs.dash if value is None else str(value)


def _and(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
