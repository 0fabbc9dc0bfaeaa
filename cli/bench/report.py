"""``bench report``: saved results beside each other, refused where they do not belong together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from outrider.cli.bench.result import SCHEMA
from outrider.cli.bench.saved_side import SavedSide, read_sides
from outrider.cli.bench.speed import OVERALL, Row, rows
from outrider.cli.errors import UsageError
from outrider.cli.glyphs import Glyphs
from outrider.cli.stats_view import SYNTHETIC, fraction, plural, three_digits

LABELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class Column:
    """A side and its rows by category."""

    side: SavedSide
    rows: Mapping[str, Row]

    def value(self, category: str, key: str) -> Any:
        return self.rows.get(category, {}).get(key)


@dataclass(frozen=True, slots=True)
class Report:
    """Columns with the first as the base, and what differs between them (with ``--force``)."""

    columns: Sequence[Column]
    differences: Sequence[str]

    @property
    def categories(self) -> list[str]:
        """Those of the base that another side has too, all of them together last."""
        base, *others = self.columns
        shared = [name for name in base.rows if any(name in other.rows for other in others)]
        return [*(name for name in shared if name != OVERALL), OVERALL]

    def ratio(self, column: Column, category: str) -> float | None:
        """Its speed over that of the base."""
        mine, base = (one.value(category, "avg_pred_t_s") for one in (column, self.columns[0]))
        return mine / base if mine and base else None

    def as_json(self) -> dict[str, object]:
        return {
            "schema": SCHEMA,
            "kind": "report",
            "differences": list(self.differences),
            "columns": [
                {
                    "name": column.side.name,
                    "files": [str(path) for path in column.side.paths],
                    "synthetic": column.side.is_synthetic,
                    "rows": list(column.rows.values()),
                    "ratio": {name: self.ratio(column, name) for name in self.categories},
                }
                for column in self.columns
            ],
        }

    def lines(self, glyphs: Glyphs) -> list[str]:
        """The tables, headed by what is compared and by what differs."""
        columns = list(zip(LABELS, self.columns, strict=False))
        speeds = [_Cells("category", self.categories, is_text=True)]
        rates = list(speeds)
        for label, column in columns:
            cells = [column.value(name, "avg_pred_t_s") for name in self.categories]
            speeds.append(_Cells(label, [three_digits(cell, glyphs) for cell in cells]))
            if column is not self.columns[0]:
                ratios = [self.ratio(column, name) for name in self.categories]
                speeds.append(_Cells(f"{label} to A", [fraction(r, glyphs) for r in ratios]))
            cells = [column.value(name, "accept_rate") for name in self.categories]
            rates.append(_Cells(f"acc {label}", [fraction(cell, glyphs) for cell in cells]))
        tables = [speeds + rates[1:]] if len(columns) == 2 else [speeds, rates]
        return [
            *([SYNTHETIC] if self.columns[0].side.is_synthetic else []),
            *(f"DIFFERENT {difference}" for difference in self.differences),
            *(_about(label, column) for label, column in columns),
            *(line for table in tables for line in _table(table)),
            "tok/s of separate runs: what else the machine did is in the ratios (bench compare"
            " interleaves)",
        ]


def read_report(paths: Sequence[Path], *, force: bool) -> Report:
    """Read and join saved results.

    Raises:
        UsageError: fewer than two sides, or what differs between them; ``force`` allows all but
            synthetic beside real figures.
    """
    sides: dict[str, SavedSide] = {}
    for side in (side for path in paths for side in read_sides(path)):
        sides[side.key] = _merged(sides[side.key], side) if side.key in sides else side
    base, *others = sides.values()
    if not others:
        raise UsageError(f"{paths[0]}: nothing to compare with; give results of another side too")
    if len(sides) > len(LABELS):
        raise UsageError(f"{len(sides)} sides; at most {len(LABELS)} fit a table")
    for other in others:
        if other.is_synthetic is not base.is_synthetic:
            odd = other if other.is_synthetic else base
            raise UsageError(f"{odd.paths[0]}: synthetic figures are never beside real ones")
    differences = list(
        dict.fromkeys(line for other in others for line in _differences(base, other))
    )
    if differences and not force:
        raise UsageError(f"{'; '.join(differences)} (--force compares all the same)")
    return Report(_join([base, *others]), differences)


def _merged(one: SavedSide, more: SavedSide) -> SavedSide:
    return replace(
        one,
        paths=[*one.paths, *more.paths],
        conversations=[*one.conversations, *more.conversations],
    )


def _differences(base: SavedSide, other: SavedSide) -> list[str]:
    """What differs, each with what it is on both sides."""
    return [
        f"{name}: {fact.words} in {base.paths[0]}, {other.facts[name].words} in {other.paths[0]}"
        for name, fact in base.facts.items()
        if fact.differs(other.facts[name])
    ]


def _join(sides: Sequence[SavedSide]) -> list[Column]:
    """The rows of each; of the same prompts those count that every side has answered."""
    good = [[one for one in side.conversations if one.error is None] for side in sides]
    if len({str(side.facts["prompts"].key) for side in sides}) == 1:
        shared = set.intersection(*({one.id for one in ones} for ones in good))
        good = [[one for one in ones if one.id in shared] for ones in good]
    made = ({str(row["category"]): row for row in rows(ones)} for ones in good)
    return [Column(side, table) for side, table in zip(sides, made, strict=True)]


@dataclass(frozen=True, slots=True)
class _Cells:
    """A column of a table."""

    head: str
    cells: Sequence[str]
    is_text: bool = False

    def lines(self) -> list[str]:
        width = max(len(text) for text in (self.head, *self.cells))
        side = "<" if self.is_text else ">"
        return [f"{text:{side}{width}}" for text in (self.head, *self.cells)]


def _table(columns: Sequence[_Cells]) -> list[str]:
    lines = zip(*(column.lines() for column in columns), strict=True)
    return ["  ".join(parts).rstrip() for parts in lines]


def _about(label: str, column: Column) -> str:
    """What a column is, and its counts."""
    runs = plural(len(column.side.paths), "run")
    counts = f"{plural(column.value(OVERALL, 'completion_tokens') or 0, 'token')}"
    drafted = column.value(OVERALL, "draft_n")
    if drafted:
        counts += f", {column.value(OVERALL, 'accepted'):,} of {drafted:,} drafted accepted"
    answered = plural(column.value(OVERALL, "requests") or 0, "prompt")
    return f"{label} {column.side.name}   {runs} of {answered}, {counts}"
