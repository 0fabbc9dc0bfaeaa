"""Charts: bars that start at 0 and curves on a grid, in Unicode and ASCII; pictures."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from outrider.cli.bench.break_even import BreakEven, Drafts, break_even
from outrider.cli.bench.candidates import Axes, grid
from outrider.cli.bench.chart import Curve, bar, curves
from outrider.cli.bench.picture import picture
from outrider.cli.bench.ratio import Ratio
from outrider.cli.bench.sweep import Standing
from outrider.cli.bench.sweep_outcome import SweepOutcome, SweepRow
from outrider.cli.bench.sweep_view import break_even_rows, remarks, table
from outrider.cli.errors import UsageError
from outrider.cli.glyphs import ASCII, UNICODE
from outrider.profiles.load import load_profile
from outrider.speculative.statistics import SpeculationStats, StepRecord


def test_a_bar_is_in_proportion_from_zero() -> None:
    """61.2 of 90 over 30 cells is 20.4: twenty cells and three eighths, as the screens have it."""
    assert bar(61.2, 90, 30, UNICODE) == "█" * 20 + "▍"
    assert bar(78.9, 90, 30, UNICODE) == "█" * 26 + "▎"
    assert bar(61.2, 90, 30, ASCII) == "#" * 20
    assert bar(0, 90, 30, UNICODE) == ""
    assert bar(90, 90, 30, UNICODE) == "█" * 30
    assert bar(99, 90, 30, ASCII) == "#" * 30


def test_half_is_half() -> None:
    assert 2 * len(bar(50, 100, 16, UNICODE)) == len(bar(100, 100, 16, UNICODE))


def test_curves_stand_where_their_values_are() -> None:
    rows = curves(
        ["1", "2", "4"],
        [Curve("has", [0.8, None, 0.5]), Curve("needs", [0.2, 1.7, 0.5])],
        ASCII,
        step=4,
    )
    assert rows == [
        "1.00 |       o",
        "0.90 |",
        "0.80 |   *",
        "0.70 |",
        "0.60 |",
        "0.50 |           @",
        "0.40 |",
        "0.30 |",
        "0.20 |   o",
        "0.10 |",
        "0.00 |",
        "     +-------------",
        "         1   2   4   * has   o needs",
    ]


def test_ascii_is_ascii() -> None:
    drawn = break_even_rows(costs(), ASCII, 80)
    assert all(line.isascii() for line in drawn)
    assert not all(line.isascii() for line in break_even_rows(costs(), UNICODE, 80))


def test_the_break_even_table() -> None:
    assert break_even_rows(costs(), UNICODE, 80)[:6] == [
        "draft-eagle3   a draft token 1.00 ms, a plain step 10.0 ms = 1.00",
        "length        1     4",
        "step cost  1.30  2.00",
        "needs      0.30  0.25",
        "has           –  0.75",
        "gain          –  2.00",
    ]


def test_the_table_of_a_sweep() -> None:
    lines = table(outcome(), UNICODE, 80)
    assert [len(line) <= 80 for line in lines] == [True] * 4
    assert lines[0].split() == ["length", "tok/s", "acceptance", "mean", "length"]
    assert [line.split() for line in lines[1:]] == [
        ["0", "50.0", "█" * 16, "–", "–"],
        ["3", "100", "█" * 32, "0.50", "2.50", "best"],
        ["4", "98.0", "█" * 31 + "▍", "0.50", "2.50"],
    ]
    plain = table(outcome(), ASCII, 80)
    assert all(line.isascii() for line in plain)
    assert "█" not in "".join(table(outcome(), UNICODE, 45))  # no room for bars


def test_what_can_be_told_apart() -> None:
    assert remarks(outcome()) == [
        "3 and 4 are not distinguishable",
        "left after round 1, 9 prompts each: 0",
        "same text at temperature 0: 27 of 27",
    ]
    assert remarks(outcome(four_is_slower=True))[0] == (
        "3 is the fastest: 1.02 times 4 (1.01 to 1.05)"
    )


def test_a_picture_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UsageError) as error:
        picture(Path("x.svg"))
    assert error.value.message == (
        '--chart: pictures need matplotlib: pip install "outrider[charts]"'
    )


@pytest.mark.parametrize("name", ["x.pdf", "x", "no/x.svg"])
def test_a_picture_that_cannot_be(name: str) -> None:
    with pytest.raises(UsageError, match="--chart"):
        picture(Path(name))


@pytest.mark.parametrize(("name", "begins"), [("x.svg", b"<?xml"), ("x.PNG", b"\x89PNG")])
def test_a_picture(name: str, begins: bytes) -> None:
    pytest.importorskip("matplotlib")
    picture(Path(name))(outcome(), "a sweep")
    assert Path(name).read_bytes().startswith(begins)


def costs() -> BreakEven:
    drafts = {1: Drafts(), 4: Drafts(drafted=40, accepted=30, token_s=0.001)}
    return break_even("draft-eagle3", {1: 0.010, 2: 0.012, 5: 0.016}, 0.001, drafts)


def outcome(*, four_is_slower: bool = False) -> SweepOutcome:
    """Three candidates: 0 left early, 3 is the best, 4 is close behind."""
    candidates = grid(load_profile("smollm2"), Axes(lengths=(0, 3, 4)))
    ratios = [Ratio(0.5, 0.4, 0.6, 9), Ratio(1, 1, 1, 27), Ratio(0.98, 0.955, 0.99, 27)]
    rows = []
    for index, (candidate, ratio) in enumerate(zip(candidates, ratios, strict=True)):
        stats = SpeculationStats()
        if candidate.length:
            stats.observe(StepRecord(4, 2, 1, "greedy", "draft-eagle3"))
            stats.observe(StepRecord(2, 1, 1, "greedy", "draft-eagle3"))
        standing = Standing(index, ratio, index == 0 or four_is_slower, None if index else 1)
        rows.append(SweepRow(candidate, standing, 100 * ratio.value, stats, ratio.num_pairs))
    equal = () if four_is_slower else (rows[2],)
    return SweepOutcome(tuple(rows), rows[1], equal, (27, 27), (costs(),), "")
