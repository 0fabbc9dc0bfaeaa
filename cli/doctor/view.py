"""The diagnosis as lines of text: each check with its verdict, the cost table, the advice."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from outrider.cli.bench.break_even import BreakEven
from outrider.cli.doctor.cost_curve import RESTLESS, CostCurve
from outrider.cli.doctor.diagnosis import Diagnosis
from outrider.cli.doctor.memory import MemoryNeed
from outrider.cli.doctor.processor import feature_words
from outrider.cli.glyphs import Glyphs
from outrider.cli.stats_view import fraction, plural

_NARROW = 60
_LABEL = 10
_COLUMN, _CELL = 20, 6
_SHOWN_ROWS = (1, 2, 4, 8, 16, 32, 64)
_MB, _MIB, _GIB = 1e6, 2**20, 2**30
_GAP = "   "
_SHOWN_DRAFTERS = 4


def doctor_lines(diagnosis: Diagnosis, glyphs: Glyphs, width: int) -> list[str]:
    """Everything, in lines of at most ``width`` cells where words allow it."""
    lines = []
    for label, parts in _checks(diagnosis):
        lines += _check(label, parts, width)
    if diagnosis.curve is not None:
        lines += _table(diagnosis, diagnosis.curve, glyphs, width)
    if diagnosis.drafters:
        lines += _check("drafters", _drafter_words(diagnosis), width, ", ")
    if diagnosis.advice is not None:
        for words in diagnosis.advice.words:
            lines += textwrap.wrap(words, width - 1)
        lines.append(f"  {diagnosis.advice.command}")
    return lines


def _checks(diagnosis: Diagnosis) -> Iterator[tuple[str, list[str]]]:
    processor, memory = diagnosis.processor, diagnosis.memory
    yield (
        "machine",
        [
            f"{plural(processor.cores, 'core')}, {feature_words(processor)}",
            *_free_words(memory),
            f"{plural(processor.threads, 'thread')}: {processor.advice or 'ok'}",
        ],
    )
    yield "model", [_model_name(diagnosis), _need_words(memory), _verdict(memory)]
    if diagnosis.curve is not None:
        yield "quiet", [quiet_words(diagnosis.curve)]


def quiet_words(curve: CostCurve) -> str:
    """Whether the figures can be believed."""
    if curve.spread is None:
        return "not known: a decode takes too long to be repeated"
    why = f"repeats differ by {100 * curve.spread:.0f} %"
    if curve.is_quiet:
        return f"yes, {why}"
    if curve.others is not None and curve.others > max(curve.spread, RESTLESS):
        why = f"other programs use {100 * curve.others:.0f} % of the cores"
    return f"no, {why}: figures below may be wrong"


def _model_name(diagnosis: Diagnosis) -> str:
    return diagnosis.facts.path.name if diagnosis.profile == "base" else diagnosis.profile


def _free_words(memory: MemoryNeed) -> list[str]:
    if memory.free is None:
        return []
    of = f" of {memory.total / _GIB:.0f}" if memory.total else ""
    return [f"{memory.free / _GIB:.0f}{of} GiB free"]


def _need_words(memory: MemoryNeed) -> str:
    words = f"file {memory.files / _MB:,.0f} MB + cache {memory.cache / _MIB:,.0f} MiB"
    return f"{words} + buffers {memory.buffers / _MIB:,.0f} MiB" if memory.is_allocated else words


def _verdict(memory: MemoryNeed) -> str:
    if memory.fits is None:
        return "partly on the GPU, not compared" if memory.on_gpu else "free memory not known"
    return "fits" if memory.fits else "does not fit"


def _drafter_words(diagnosis: Diagnosis) -> list[str]:
    words = [
        f"{one.path.name} ({one.kind}{', in the profile' if one.in_profile else ''})"
        for one in diagnosis.drafters
    ]
    more = len(words) - _SHOWN_DRAFTERS
    return [*words[:_SHOWN_DRAFTERS], *([f"{more} more"] if more > 0 else [])]


def _check(label: str, parts: Sequence[str], width: int, gap: str = _GAP) -> list[str]:
    """A check in one line, in more where it is too long; narrow: its name has a line of its own."""
    if width < _NARROW:
        return [label, *(f"  {line}" for line in textwrap.wrap(gap.join(parts), width - 3))]
    lines, line = [], f"{label:{_LABEL}}"
    for part in parts:
        joined = f"{line}{gap}{part}" if line.strip() != label and line.strip() else f"{line}{part}"
        if len(joined) > width and line.strip() not in ("", label):
            lines.append(line)
            joined = " " * _LABEL + part
        line = joined
    return [*lines, line]


def _table(diagnosis: Diagnosis, curve: CostCurve, glyphs: Glyphs, width: int) -> list[str]:
    """The cost by rows, and the acceptance that a draft of one token less needs."""
    rows = [count for count in _SHOWN_ROWS if count in curve.times]
    rows = rows[: max(2, (width - 1 - _COLUMN) // _CELL)]
    lines = [
        _row("rows in one step", [str(count) for count in rows]),
        _with_unit(_cost_row("verify cost", curve, rows, glyphs), curve, width),
    ]
    if diagnosis.far is not None:
        far = diagnosis.far
        line = _cost_row(f"behind {far.depth:,} tokens", far, rows, glyphs)
        lines.append(_with_unit(line, far, width))
    lengths = [count - 1 for count in rows]
    lines.append(_row("draft length", [str(length or glyphs.dash) for length in lengths]))
    lines += [_needs_row(one, lengths, glyphs) for one in diagnosis.break_even]
    return lines


def _cost_row(label: str, curve: CostCurve, rows: Sequence[int], glyphs: Glyphs) -> str:
    costs = [curve.cost(count) if count in curve.times else None for count in rows]
    return _row(label, [fraction(cost, glyphs) for cost in costs])


def _with_unit(line: str, curve: CostCurve, width: int) -> str:
    unit = f"  1.00 = {1000 * curve.plain_s:.1f} ms"
    return line + unit if len(line) + len(unit) <= width else line


def _needs_row(one: BreakEven, lengths: Sequence[int], glyphs: Glyphs) -> str:
    needs = {cost.length: cost.needs for cost in one.lengths}
    return _row(
        f"needs, {one.drafter}", [fraction(needs.get(length), glyphs) for length in lengths]
    )


def _row(label: str, cells: Sequence[str]) -> str:
    return f"{label:<{_COLUMN}}{''.join(f'{cell:>{_CELL}}' for cell in cells)}"
