from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from outrider.cli.fetch_progress import fetch_file
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


def test_on_a_terminal_there_is_a_bar_and_a_last_line(
    fetching: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    fetching(("download", 0), ("download", 2_000_000), ("check", 2_000_000))
    fetch_file(SOURCE)
    shown = terminal.getvalue()
    assert shown.startswith("fetching model.gguf, once, from some-models 1.0\n")
    assert "2.0/2.0 MB" in shown
    assert "ctrl-c stops" in shown
    assert re.fullmatch(r"fetched 2\.0 MB in \d+ s", shown.splitlines()[-1].split("\x1b[2K")[-1])


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
    assert terminal.getvalue().count("\x1b[?25l") == terminal.getvalue().count("\x1b[?25h")
