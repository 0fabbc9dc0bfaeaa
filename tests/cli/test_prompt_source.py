from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.cli import prompt_source
from outrider.cli.errors import UsageError
from outrider.cli.prompt_source import read_prompt


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The end to write to of a pipe that is stdin."""
    reader, writer = os.pipe()
    with open(reader, "rb") as binary:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(binary))
        yield writer


def give(writer: int, data: bytes) -> None:
    os.write(writer, data)
    os.close(writer)


def test_pieces_are_joined_in_order(stdin: int, tmp_path: Path) -> None:
    file = tmp_path / "file.txt"
    file.write_text("second\n")
    give(stdin, b"third\r\n")
    assert read_prompt("first", None, file, use_stdin=True) == "first\nsecond\nthird"


def test_an_option_stands_for_the_argument(tmp_path: Path) -> None:
    file = tmp_path / "file.txt"
    file.write_bytes("﻿größe 日本\n\n".encode())
    assert read_prompt(None, "- first", file, use_stdin=False) == "- first\ngröße 日本\n"


def test_verbatim_keeps_the_last_newline(stdin: int) -> None:
    give(stdin, b"3 x 2 = 6\n")
    assert read_prompt(None, None, None, use_stdin=True, verbatim=True) == "3 x 2 = 6\n"


def test_argument_and_option_are_too_much() -> None:
    with pytest.raises(UsageError, match="given twice: as an argument and with -p/--prompt"):
        read_prompt("a", "b", None, use_stdin=False)


@pytest.mark.parametrize("data", [b"", b"\n", b"\r\n"])
def test_nothing_at_all_names_the_ways(stdin: int, data: bytes) -> None:
    give(stdin, data)
    with pytest.raises(UsageError, match="argument, with -p, -f FILE or on stdin") as caught:
        read_prompt(None, None, None, use_stdin=True)
    assert caught.value.exit_code == 2


def test_an_empty_pipe_adds_nothing(stdin: int) -> None:
    os.close(stdin)
    assert read_prompt("hi", None, None, use_stdin=True) == "hi"


def test_stdin_is_left_alone_if_not_wanted(stdin: int) -> None:
    assert read_prompt("hi", None, None, use_stdin=False) == "hi"
    give(stdin, b"still here")
    assert sys.stdin.read() == "still here"


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="no pseudo-terminals here")
def test_a_terminal_is_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    keyboard, terminal = os.openpty()
    os.write(keyboard, b"typed\n")
    with open(terminal, "rb", buffering=0) as binary:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(binary)))
        assert read_prompt("hi", None, None, use_stdin=True) == "hi"
    os.close(keyboard)


def test_a_device_and_a_closed_stdin_are_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        assert read_prompt("hi", None, None, use_stdin=True) == "hi"
    assert read_prompt("hi", None, None, use_stdin=True) == "hi"  # closed by now
    monkeypatch.setattr(sys, "stdin", None)
    assert read_prompt("hi", None, None, use_stdin=True) == "hi"


def test_a_redirected_file_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("from a file")
    with (tmp_path / "in.txt").open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert read_prompt(None, None, None, use_stdin=True) == "from a file"


def test_what_is_not_utf8_is_named(stdin: int, tmp_path: Path) -> None:
    latin = tmp_path / "latin.txt"
    latin.write_bytes("gr\u00f6\u00dfe".encode("latin-1"))
    give(stdin, b"ab\xff\xfe")
    with pytest.raises(UsageError, match=r"latin.txt: not UTF-8 \(byte 0xf6 at offset 2\)"):
        read_prompt(None, None, latin, use_stdin=False)
    with pytest.raises(UsageError, match=r"stdin: not UTF-8 \(byte 0xff at offset 2\)"):
        read_prompt(None, None, None, use_stdin=True)
    with pytest.raises(UsageError, match=r"the prompt: not UTF-8 \(byte 0xf6 at offset 2\)"):
        read_prompt("gr\udcf6", None, None, use_stdin=False)


def test_a_folder_is_no_prompt(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"-f/--file .*: Is a directory"):
        read_prompt(None, None, tmp_path, use_stdin=False)


def test_silence_is_explained_once(stdin: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    said = threading.Event()

    def say(line: str) -> None:
        lines.append(line)
        said.set()

    def speak_after_the_note() -> None:
        assert said.wait(30)
        give(stdin, b"at last")

    monkeypatch.setattr(prompt_source, "SILENCE_S", 0.01)
    monkeypatch.setattr(prompt_source, "say", say)
    speaker = threading.Thread(target=speak_after_the_note)
    speaker.start()
    assert read_prompt(None, None, None, use_stdin=True) == "at last"
    speaker.join()
    assert lines == ["outrider: waiting for stdin to end (--no-stdin does not read it)"]


def test_a_pipe_that_speaks_is_read_without_a_word(
    stdin: int, capsys: pytest.CaptureFixture[str]
) -> None:
    give(stdin, b"hi")
    read_prompt(None, None, None, use_stdin=True)
    assert capsys.readouterr() == ("", "")
