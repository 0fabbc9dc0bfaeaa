from __future__ import annotations

import os
from pathlib import Path

from outrider.profiles.record import cache_folder, recall, remember


def test_what_is_remembered_is_recalled_until_the_file_changes() -> None:
    path = Path("m.gguf").resolve()
    path.write_bytes(b"abc")
    assert recall("key") is None
    remember("key", path)
    assert recall("key") == path
    assert recall("other") is None
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    assert recall("key") is None


def test_a_file_of_another_size_is_not_recalled() -> None:
    path = Path("m.gguf").resolve()
    path.write_bytes(b"abc")
    remember("key", path)
    before = path.stat().st_mtime_ns
    path.write_bytes(b"abcd")
    os.utime(path, ns=(before, before))
    assert recall("key") is None


def test_a_file_that_is_gone_is_not_recalled() -> None:
    path = Path("m.gguf").resolve()
    path.write_bytes(b"abc")
    remember("key", path)
    path.unlink()
    assert recall("key") is None


def test_a_damaged_note_is_no_fault() -> None:
    path = Path("m.gguf").resolve()
    path.write_bytes(b"abc")
    remember("key", path)
    (note,) = (cache_folder() / "fetched").iterdir()
    for content in ("", "[]", "{}", '{"path": 5}', "\0"):
        note.write_text(content)
        assert recall("key") is None


def test_a_cache_that_cannot_be_written_is_no_fault(user_folders: Path) -> None:
    (user_folders / "cache").write_text("a file where a folder should be")
    path = Path("m.gguf").resolve()
    path.write_bytes(b"abc")
    remember("key", path)
    assert recall("key") is None
