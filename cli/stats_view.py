"""Statistics in words: numbers as every screen writes them, the summary line, ``/stats``.

The definitions are those of ``outrider.speculative.statistics``; a value that does not exist
is a dash, never 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.cli.glyphs import UNICODE, Glyphs
from outrider.speculative.events import FinishReason
from outrider.speculative.statistics import Decision, Pause, SpeculationStats, Timings

_TURNS_SHOWN = 8


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """What one answer cost: its counts, its times and how it ended."""

    stats: SpeculationStats
    timings: Timings
    finish_reason: FinishReason
    first_token_s: float | None


SYNTHETIC = "SYNTHETIC acceptance: coins decide, the text is not the model's"
"""What heads everything a synthetic run shows."""


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


def decision_words(decisions: Sequence[Decision]) -> str:
    """What each drafter of a chain does: ``ngram-mod 12, draft-eagle3 needs 0.64, has 0.31``."""
    return ", ".join(f"{one.drafter} {_length_words(one)}" for one in decisions)


def _length_words(decision: Decision) -> str:
    pause = decision.pause
    if pause is None or pause.needed is None:
        return str(decision.length)
    return f"needs {fraction(pause.needed)}, has {fraction(pause.measured)}"


def summary_line(record: TurnRecord, *, predict: int, width: int, glyphs: Glyphs = UNICODE) -> str:
    """The line an answer leaves in the scrollback."""
    if width < 60:
        return _narrow_summary(record, width, glyphs)
    stats, separator = record.stats, f" {glyphs.separator} "
    parts = [_ending(record, predict), f"{_speed(record, glyphs)} tok/s"]
    if len(separator.join(parts)) >= width:
        parts[0] = parts[0].partition(" (")[0]
    if stats.drafts:
        counts = f" ({stats.accepted:,} of {stats.drafted:,})" if width >= 100 else ""
        parts.append(f"acceptance {fraction(stats.acceptance_rate)}{counts}")
        parts.append(f"mean length {fraction(stats.mean_accepted_length)}")
    else:
        parts.append("no drafts")
    parts.append(f"first {seconds(record.first_token_s, glyphs)}")
    if stats.paused_steps:
        parts.append(f"paused {stats.paused_steps:,} of {stats.steps:,}")
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
    stats, ending = record.stats, record.finish_reason
    words = {"cancelled": "stopped ", "context": "full ", "length": "limit ", "error": "failed "}
    parts = [
        f"{words.get(ending, '')}{stats.emitted:,} tok",
        f"{_speed(record, glyphs)} tok/s",
    ]
    if stats.verification["synthetic"]:
        parts.insert(0, "synthetic")
    if stats.drafts:
        rate = short_fraction(stats.acceptance_rate)
        parts.append(f"acc {rate} len {fraction(stats.mean_accepted_length)}")
    return fit(parts, f" {glyphs.separator} ", width - 1)


def _speed(record: TurnRecord, glyphs: Glyphs) -> str:
    return three_digits(record.timings.tokens_per_s, glyphs)


def stats_rows(turns: Sequence[TurnRecord], *, width: int, glyphs: Glyphs = UNICODE) -> list[str]:
    """``/stats``: the session, its last turns, its drafters; columns sum to the session line."""
    total = SpeculationStats()
    for turn in turns:
        total.merge(turn.stats)
    speed = three_digits(session_speed(turns), glyphs)
    session = [
        f"session  {plural(len(turns), 'turn')}",
        f"{plural(total.emitted, 'token')}",
        f"{speed} tok/s",
        f"acceptance {fraction(total.acceptance_rate, glyphs)}",
        f"mean length {fraction(total.mean_accepted_length, glyphs)}",
    ]
    if width < 60:
        return [*session, *_narrow_drafters(total, glyphs)]
    rows = ["  ".join(session)]
    return rows + _turn_table(turns, glyphs) + _drafter_table(total, glyphs)


def session_speed(turns: Sequence[TurnRecord]) -> float | None:
    """All tokens after the first step of each answer over all their time."""
    tokens = sum(turn.timings.tokens - turn.timings.first_step_tokens for turn in turns)
    time = sum(turn.timings.generation_s for turn in turns)
    return tokens / time if tokens > 0 < time else None


def _turn_table(turns: Sequence[TurnRecord], glyphs: Glyphs) -> list[str]:
    rows = ["turn  tokens  tok/s  drafted  accepted  rate  length   first   paused steps"]
    for number, turn in list(enumerate(turns, 1))[-_TURNS_SHOWN:]:
        stats = turn.stats
        paused = f"{stats.paused_steps} of {stats.steps}" if stats.paused_steps else glyphs.dash
        rows.append(
            f"{number:>4}{stats.emitted:>8,}{_speed(turn, glyphs):>7}{stats.drafted:>9,}"
            f"{stats.accepted:>10,}{fraction(stats.acceptance_rate, glyphs):>6}"
            f"{fraction(stats.mean_accepted_length, glyphs):>8}"
            f"{seconds(turn.first_token_s, glyphs):>8}   {paused}"
        )
    return rows


def _drafter_table(total: SpeculationStats, glyphs: Glyphs) -> list[str]:
    if not total.per_drafter:
        return []
    rows = ["drafter       drafts  drafted  accepted  rate  length  discarded  ms a draft"]
    for name, counts in total.per_drafter.items():
        cost = f"{1000 * counts.draft_s / counts.drafts:.2f}" if counts.drafts else glyphs.dash
        rows.append(
            f"{name:<13}{counts.drafts:>7,}{counts.drafted:>9,}{counts.accepted:>10,}"
            f"{fraction(counts.acceptance_rate, glyphs):>6}"
            f"{fraction(counts.mean_accepted_length, glyphs):>8}{counts.discarded:>11,}{cost:>12}"
        )
    return rows


def _narrow_drafters(total: SpeculationStats, glyphs: Glyphs) -> list[str]:
    rows = [f"drafted {total.drafted:,}", f"accepted {total.accepted:,}"]
    for name, counts in total.per_drafter.items():
        rows.append(f"{name} {fraction(counts.acceptance_rate, glyphs)}")
    return rows
