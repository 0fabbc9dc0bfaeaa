from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

import pytest

from outrider.cli.answer_writer import AnswerWriter
from outrider.cli.errors import OutputError


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@contextmanager
def unclosable(target: str | int) -> Iterator[TextIO]:
    """A file whose buffer cannot be written, not even when it is closed."""
    stream = open(target, "w")  # noqa: SIM115
    yield stream
    with suppress(OSError):
        stream.close()


def written(stream: TextIO, *texts: str) -> str:
    writer = AnswerWriter(stream)
    for text in texts:
        writer.write(text)
    writer.end()
    assert isinstance(stream, io.StringIO)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("texts", "wanted"),
    [
        ([], "\n"),
        (["a"], "a\n"),
        (["a\n"], "a\n"),
        (["a\n", "\n", "\r\n"], "a\n"),
        (["a\n", "\n", "b", "\n"], "a\n\nb\n"),
        (["\n", " a ", ""], "\n a \n"),
    ],
)
def test_trailing_newlines_are_one_newline(texts: list[str], wanted: str) -> None:
    assert written(io.StringIO(), *texts) == wanted


def test_what_may_be_shown_is_shown_at_once() -> None:
    stream = io.StringIO()
    writer = AnswerWriter(stream)
    writer.write("a\n")
    assert stream.getvalue() == "a"
    writer.write("b")
    assert stream.getvalue() == "a\nb"


def test_control_characters_go_to_files_but_not_to_terminals() -> None:
    text = "a\x1b[31mb\x07\x9b\x7f\tc\nd"
    assert written(io.StringIO(), text) == text + "\n"
    assert written(Terminal(), text) == "a[31mb\tc\nd\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is full")
def test_a_full_disk_is_one_clear_error() -> None:
    with unclosable("/dev/full") as stream, pytest.raises(OutputError) as caught:
        AnswerWriter(stream).write("a")
    assert str(caught.value) == "stdout: No space left on device"
    assert not caught.value.reader_is_gone


def test_a_reader_that_has_gone_is_told_apart() -> None:
    reader, end = os.pipe()
    os.close(reader)
    with unclosable(end) as stream, pytest.raises(OutputError) as caught:
        AnswerWriter(stream).write("a")
    assert caught.value.reader_is_gone


def test_a_closed_stdout_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)
    with pytest.raises(OutputError, match="stdout is closed"):
        AnswerWriter()
