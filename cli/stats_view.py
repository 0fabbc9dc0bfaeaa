"""Statistics in words: numbers as every screen writes them, and the summary line.

The definitions are those of ``outrider.speculative.statistics``; a value that does not exist
is a dash, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from outrider.cli.glyphs import UNICODE, Glyphs
from outrider.cli.screen.text_kind import TextCounts, TextKind
from outrider.speculative.events import FinishReason
from outrider.speculative.statistics import Pause, SpeculationStats, Timings


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """What one answer cost: its counts, its times and how it ended; ``text`` by kind of text."""

    stats: SpeculationStats
    timings: Timings
    finish_reason: FinishReason
    first_token_s: float | None
    text: Mapping[TextKind, TextCounts] = field(default_factory=dict)


SYNTHETIC = "SYNTHETIC acceptance: coins decide, the text is not the model's"
"""What heads everything a synthetic run shows."""
SHORT_SYNTHETIC = "SYNTHETIC, not the model's text"


_NARROW, _WIDE = 60, 100  # columns


def three_digits(value: float | None, glyphs: Glyphs = UNICODE) -> str:
    """Tokens/s and seconds: ``9.87``, ``24.6``, ``118``."""
    if value is None:
        return glyphs.dash
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:,.{digits}f}"


def seconds(value: float | None, glyphs: Glyphs = UNICODE) -> str:
    """``0.38 s``, or a dash."""
    return glyphs.dash if value is None else f"{three_digits(value)} s"


def fraction(value: float | None, glyphs: Glyphs = UNICODE) -> str:
    """A rate or a length with two decimals: ``0.63``."""
    return glyphs.dash if value is None else f"{value:.2f}"


def short_fraction(value: float | None, glyphs: Glyphs = UNICODE) -> str:
    """A rate in three cells: ``.63``, ``1.0``."""
    if value is None:
        return glyphs.dash
    text = f"{value:.2f}"
    return text[1:] if text.startswith("0") else text[:3]


def percent(used: int, total: int) -> str:
    """``16 %``: only for context and progress."""
    return f"{100 * used / total:.0f} %" if total else "0 %"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def fit(parts: Sequence[str], separator: str, width: int) -> str:
    """The parts that fit, left out from the right; the first is never left out."""
    kept = list(parts)
    while len(kept) > 1 and len(separator.join(kept)) > width:
        kept.pop()
    return separator.join(kept)


def pause_words(pause: Pause, *, short: bool = False) -> str:
    """Why no draft is made: ``speculation paused: needs 0.71 to pay, has 0.38``."""
    if pause.needed is None or pause.measured is None:
        if " dropped" in pause.reason:
            return "drafter dropped" if short else f"{pause.reason}; the answer goes on"
        return f"paused: {pause.reason}" if short else f"speculation paused: {pause.reason}"
    if short:
        if pause.needed > 1:
            return "paused: cannot pay here"
        needs, has = short_fraction(pause.needed), short_fraction(pause.measured)
        return f"paused: needs {needs} has {has}"
    if pause.needed > 1:
        return "speculation paused: here a draft costs more than it can bring"
    needs, has = fraction(pause.needed), fraction(pause.measured)
    return f"speculation paused: needs {needs} to pay, has {has}"


def summary_line(
    record: TurnRecord,
    *,
    predict: int,
    width: int,
    glyphs: Glyphs = UNICODE,
    context: str = "",
) -> str:
    """The line an answer leaves in the scrollback; ``context`` is the share in use after it."""
    if width < _NARROW:
        return _narrow_summary(record, width, glyphs)
    stats, separator = record.stats, f" {glyphs.separator} "
    parts = [_ending(record, predict), f"{_speed(record, glyphs)} tok/s"]
    if len(separator.join(parts)) >= width:
        parts[0] = parts[0].partition(" (")[0]
    if stats.drafts:
        counts = f" ({stats.accepted:,} of {stats.drafted:,})" if width >= _WIDE else ""
        parts.append(f"acceptance {fraction(stats.acceptance_rate)}{counts}")
        parts.append(f"mean length {fraction(stats.mean_accepted_length)}")
    else:
        parts.append("no drafts")
    parts.append(f"first {seconds(record.first_token_s, glyphs)}")
    if stats.paused_steps:
        parts.append(f"paused {stats.paused_steps:,} of {stats.steps:,}")
    if context and width >= _WIDE:
        parts.append(f"context {context}")
    if stats.verification["synthetic"]:
        parts.insert(0, "synthetic")
    return fit(parts, separator, width - 1)


def _ending(record: TurnRecord, predict: int) -> str:
    tokens = plural(record.stats.emitted, "token")
    return {
        "stop": tokens,
        "length": f"limit of {predict:,} tokens (/set predict={4 * predict}, /regen)",
        "context": f"context full after {tokens}",
        "cancelled": f"stopped at {tokens}",
        "error": f"failed after {tokens}",
    }[record.finish_reason]


def _narrow_summary(record: TurnRecord, width: int, glyphs: Glyphs) -> str:
    stats, separator = record.stats, f" {glyphs.separator} "
    words = {"cancelled": "stopped ", "context": "full ", "length": "limit ", "error": "failed "}
    count = f"{words.get(record.finish_reason, '')}{stats.emitted:,}"
    if stats.verification["synthetic"]:
        count = f"synthetic{separator}{count}"
    parts = [f"{count} tok", f"{_speed(record, glyphs)} tok/s"]
    rates = []
    if stats.drafts:
        rate = f"acc {short_fraction(stats.acceptance_rate)}"
        rates = [f"{rate} len {fraction(stats.mean_accepted_length)}", rate]
    lines = [separator.join([*parts, each]) for each in rates]
    lines += [separator.join(parts), separator.join([count, parts[1]])]
    return next((line for line in lines if len(line) < width), parts[1])


def _speed(record: TurnRecord, glyphs: Glyphs) -> str:
    return three_digits(record.timings.tokens_per_s, glyphs)
