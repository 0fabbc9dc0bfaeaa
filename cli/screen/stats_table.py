"""``/stats``: a session, its turns, its drafters, its kinds of text; in tables or as JSON.

The columns of every table sum to the session line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from outrider.cli.glyphs import UNICODE, Glyphs
from outrider.cli.screen.text_kind import TEXT_KINDS, TextCounts, TextKind
from outrider.cli.stats_view import (
    SHORT_SYNTHETIC,
    SYNTHETIC,
    TurnRecord,
    fraction,
    plural,
    seconds,
    three_digits,
)
from outrider.speculative.statistics import DrafterCounts, SpeculationStats

SCHEMA = 1
_TURNS_SHOWN = 8


@dataclass(frozen=True, slots=True)
class _Table:
    """Labels with the format of their columns, and rows of cells."""

    columns: tuple[tuple[str, str], ...]
    rows: Sequence[Sequence[str]]

    def wide(self) -> list[str]:
        """One line a row below the labels."""
        formats = [form for _, form in self.columns]
        lines = [[label for label, _ in self.columns], *self.rows]
        return [
            "".join(f"{cell:{form}}" for cell, form in zip(cells, formats, strict=True))
            for cells in lines
        ]

    def narrow(self) -> list[str]:
        """One label and value a line, row after row."""
        labels = [label.strip() for label, _ in self.columns]
        return [
            f"{label} {cell.strip()}"
            for row in self.rows
            for label, cell in zip(labels, row, strict=True)
        ]


def stats_rows(
    turns: Sequence[TurnRecord], *, width: int, glyphs: Glyphs = UNICODE, all_turns: bool = False
) -> list[str]:
    """The session line and the tables; only the last turns unless ``all_turns``."""
    total, text = session_stats(turns), session_text(turns)
    session = [
        ("session", plural(len(turns), "turn")),
        ("tokens", f"{total.emitted:,}"),
        ("tok/s", three_digits(session_speed(turns), glyphs)),
        ("acceptance", fraction(total.acceptance_rate, glyphs)),
        ("mean length", fraction(total.mean_accepted_length, glyphs)),
    ]
    shown = list(enumerate(turns, 1))[0 if all_turns else -_TURNS_SHOWN :]
    tables = [_turn_table(shown, glyphs)]
    if total.per_drafter:
        tables.append(_drafter_table(total.per_drafter.items(), glyphs))
    if text:
        tables.append(_text_table(text.items(), glyphs))
    rows = ["  ".join(_in_words(label, value) for label, value in session)]
    rows += [row for table in tables for row in table.wide()]
    if max(map(len, rows)) >= width:
        rows = [f"{label} {value}" for label, value in session]
        rows += [row for table in tables for row in table.narrow()]
    if total.verification["synthetic"]:
        rows.insert(0, SYNTHETIC if len(SYNTHETIC) < width else SHORT_SYNTHETIC)
    return rows


def _in_words(label: str, value: str) -> str:
    """A value as the session line says it: the unit stands behind a count and a speed."""
    if label == "session":
        return f"{label}  {value}"
    if label == "tokens":
        return f"{value} {'token' if value == '1' else label}"
    return f"{value} {label}" if label == "tok/s" else f"{label} {value}"


def session_stats(turns: Iterable[TurnRecord]) -> SpeculationStats:
    """The counts of all turns together."""
    total = SpeculationStats()
    for turn in turns:
        total.merge(turn.stats)
    return total


def session_text(turns: Iterable[TurnRecord]) -> dict[TextKind, TextCounts]:
    """The counts of all turns by kind of text, kinds that did not occur left out."""
    total = {kind: TextCounts() for kind in TEXT_KINDS}
    for turn in turns:
        for kind, counts in turn.text.items():
            total[kind].add(counts)
    return {kind: counts for kind, counts in total.items() if counts.tokens}


def session_speed(turns: Sequence[TurnRecord]) -> float | None:
    """All tokens after the first step of each answer over all their time."""
    tokens = sum(turn.timings.tokens - turn.timings.first_step_tokens for turn in turns)
    time = sum(turn.timings.generation_s for turn in turns)
    return tokens / time if tokens > 0 < time else None


def _turn_table(turns: Iterable[tuple[int, TurnRecord]], glyphs: Glyphs) -> _Table:
    columns = (
        ("turn", ">4"),
        ("tokens", ">8"),
        ("tok/s", ">7"),
        ("drafted", ">9"),
        ("accepted", ">10"),
        ("rate", ">6"),
        ("length", ">8"),
        ("first", ">8"),
        ("   paused steps", ""),
    )
    return _Table(columns, [_turn_row(number, turn, glyphs) for number, turn in turns])


def _turn_row(number: int, turn: TurnRecord, glyphs: Glyphs) -> list[str]:
    stats = turn.stats
    paused = f"{stats.paused_steps:,} of {stats.steps:,}" if stats.paused_steps else glyphs.dash
    return [
        str(number),
        f"{stats.emitted:,}",
        three_digits(turn.timings.tokens_per_s, glyphs),
        f"{stats.drafted:,}",
        f"{stats.accepted:,}",
        fraction(stats.acceptance_rate, glyphs),
        fraction(stats.mean_accepted_length, glyphs),
        seconds(turn.first_token_s, glyphs),
        f"   {paused}",
    ]


def _drafter_table(drafters: Iterable[tuple[str, DrafterCounts]], glyphs: Glyphs) -> _Table:
    columns = (
        ("drafter", "<13"),
        ("drafts", ">7"),
        ("drafted", ">9"),
        ("accepted", ">10"),
        ("rate", ">6"),
        ("length", ">8"),
        ("discarded", ">11"),
        ("ms a draft", ">12"),
    )
    rows = [
        [
            name,
            f"{one.drafts:,}",
            f"{one.drafted:,}",
            f"{one.accepted:,}",
            fraction(one.acceptance_rate, glyphs),
            fraction(one.mean_accepted_length, glyphs),
            f"{one.discarded:,}",
            fraction(1000 * one.draft_s / one.drafts if one.drafts else None, glyphs),
        ]
        for name, one in drafters
    ]
    return _Table(columns, rows)


def _text_table(text: Iterable[tuple[TextKind, TextCounts]], glyphs: Glyphs) -> _Table:
    columns = (
        ("text", "<13"),
        ("tokens", ">7"),
        ("drafted", ">9"),
        ("accepted", ">10"),
        ("rate", ">6"),
    )
    rows = [
        [
            kind,
            f"{one.tokens:,}",
            f"{one.drafted:,}",
            f"{one.accepted:,}",
            fraction(one.acceptance_rate, glyphs),
        ]
        for kind, one in text
    ]
    return _Table(columns, rows)


def stats_json(turns: Sequence[TurnRecord]) -> dict[str, object]:
    """``/stats json``: the tables of all turns, ready for JSON; what does not exist is None."""
    total = session_stats(turns)
    return {
        "schema": SCHEMA,
        "synthetic": total.verification["synthetic"] > 0,
        "session": {
            "turns": len(turns),
            "tokens_per_s": session_speed(turns),
            **_stats_json(total),
        },
        "turns": [
            {
                "finish_reason": turn.finish_reason,
                "tokens_per_s": turn.timings.tokens_per_s,
                "first_token_s": turn.first_token_s,
                **_stats_json(turn.stats),
                "text": _text_json(turn.text.items()),
            }
            for turn in turns
        ],
        "text": _text_json(session_text(turns).items()),
    }


def _stats_json(stats: SpeculationStats) -> dict[str, object]:
    return {
        "tokens": stats.emitted,
        "steps": stats.steps,
        "paused_steps": stats.paused_steps,
        "drafts": stats.drafts,
        "drafted": stats.drafted,
        "accepted": stats.accepted,
        "acceptance_rate": stats.acceptance_rate,
        "mean_accepted_length": stats.mean_accepted_length,
        "per_drafter": {
            name: {
                "drafts": one.drafts,
                "drafted": one.drafted,
                "accepted": one.accepted,
                "discarded": one.discarded,
                "draft_s": one.draft_s,
            }
            for name, one in stats.per_drafter.items()
        },
    }


def _text_json(text: Iterable[tuple[TextKind, TextCounts]]) -> dict[str, object]:
    return {
        kind: {"tokens": one.tokens, "drafted": one.drafted, "accepted": one.accepted}
        for kind, one in text
    }
