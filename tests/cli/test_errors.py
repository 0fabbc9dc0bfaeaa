from __future__ import annotations

import pytest
import typer

from outrider.cli.errors import OutputError, UsageError, printable, report, say
from outrider.profiles.errors import ProfileError, SourceError
from outrider.speculative.errors import EngineError, InputError, PromptTooLongError


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (UsageError("no prompt"), 2, "no prompt"),
        (typer.BadParameter("too big"), 2, "Invalid value: too big"),
        (ProfileError("a.yaml: x: 1", "a.yaml: y: 2"), 2, "a.yaml: x: 1 (and 1 more)"),
        (InputError("x.gguf: no such file"), 2, "x.gguf: no such file"),
        (PromptTooLongError(9, 4), 2, "the prompt does not fit the context: needs 9 tokens,"),
        (EngineError("out of\n memory"), 1, "out of memory"),
        (SourceError("no network"), 1, "no network"),
        (OutputError("stdout: full"), 1, "stdout: full"),
        (FileNotFoundError(2, "No such file", "a.txt"), 1, "a.txt: No such file"),
        (RuntimeError("boom"), 1, "RuntimeError: boom; -v shows where"),
    ],
)
def test_each_error_is_one_line_and_a_code(
    error: Exception, code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(error, verbose=False) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"outrider: error: {line}")
    assert err.count("\n") == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), typer.Abort()])
@pytest.mark.parametrize("verbose", [True, False])
def test_an_interrupt_is_silent(
    error: BaseException, verbose: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(error, verbose=verbose) == 130
    assert capsys.readouterr() == ("", "")


def test_printable_keeps_text_newline_and_tab() -> None:
    assert printable("a\tb\n\x00\x1b[1m\x7f\x85\x9b日é\r") == "a\tb\n[1m日é"


def test_with_stderr_closed_a_line_is_lost_and_not_printed_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("sys.stderr", None)
        say("lost")
    assert capsys.readouterr() == ("", "")
