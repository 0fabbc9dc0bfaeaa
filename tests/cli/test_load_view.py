"""What is seen while models load: its words, its colours, and that it leaves nothing."""

from __future__ import annotations

import pytest
from rich.console import Console

from outrider.cli.glyphs import ASCII, UNICODE, Glyphs
from outrider.cli.screen.load_view import LoadView, loading_row
from outrider.cli.screen.panel import Row
from outrider.cli.screen.theme import NO_COLOUR, Theme, theme_for

COLOURED = theme_for(Console(force_terminal=True, color_system="truecolor"), "dark")


def text(row: Row) -> str:
    return "".join(part for part, _ in row)


def test_the_rows_read_as_drawn() -> None:
    row = loading_row("target", 0.6, 0.91, 80, UNICODE)
    assert text(row) == (
        " loading target   ████████████░░░░░░░░  60 %  0.9 s              ctrl-c cancels"
    )
    assert [part for part, role in row if role == "accepted"] == ["█" * 12]
    assert text(loading_row("drafter", 0.14, 0.9, 80, UNICODE)).startswith(
        " loading drafter  ███░░░░░░░░░░░░░░░░░  14 %"
    )
    measuring = text(loading_row("measure", 0.5, 0.9, 80, UNICODE))
    assert measuring == " measuring the cost of drafts on this machine"


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
@pytest.mark.parametrize("stage", ["target", "measure"])
def test_narrow_rows_lose_words_and_no_part_of_one(stage: str, glyphs: Glyphs) -> None:
    whole = set(text(loading_row(stage, 1.0, 0.9, 100, glyphs)).split())
    for columns in range(30, 100):
        row = text(loading_row(stage, 1.0, 0.9, columns, glyphs))
        assert len(row) < columns
        assert {word for word in row.split() if word.isalnum()} <= whole
        assert stage == "measure" or "100 %" in row


class Shown:
    """A load view on a clock that a test moves, and what it wrote."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, theme: Theme) -> None:
        self.now, self.written = 100.0, ""
        monkeypatch.setattr("time.monotonic", lambda: self.now)
        self.view = LoadView(self._write, lambda: (80, 24), UNICODE, theme)

    def _write(self, written: str) -> None:
        self.written += written


def test_a_short_wait_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Shown(monkeypatch, COLOURED)
    shown.now += 0.29
    shown.view("target", 0.9)
    assert shown.written == ""


def test_it_is_painted_four_times_a_second_and_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Shown(monkeypatch, COLOURED)
    for _ in range(20):
        shown.now += 0.1
        shown.view("target", 0.5)
    assert shown.written.count("loading target") == 6
    shown.view.close()
    assert shown.written.rpartition("loading target")[2].count("\x1b[J") == 1


def test_the_bar_is_coloured_and_without_colour_it_is_plain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for theme, bar in ((COLOURED, "\x1b[38;2;86;180;233m██████████\x1b[0m"), (NO_COLOUR, "  ███")):
        shown = Shown(monkeypatch, theme)
        shown.now += 1
        shown.view("target", 0.5)
        assert bar in shown.written
        assert ("38;2" in shown.written) is (theme is COLOURED)
