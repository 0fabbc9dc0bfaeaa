"""Lines on stdout."""

from __future__ import annotations

import io
import sys

import pytest

from outrider.cli.errors import OutputError
from outrider.cli.lines import print_lines


class Full(io.StringIO):
    """A stdout on a full disk."""

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def test_lines_lose_their_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    print_lines("one", "t\x1b[31mwo\x9b")
    assert capsys.readouterr().out == "one\nt[31mwo\n"


def test_a_stdout_that_fails_is_an_output_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Full())
    with pytest.raises(OutputError, match="No space left"):
        print_lines("one")
