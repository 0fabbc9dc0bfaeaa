"""The files that `models list` shows."""

from __future__ import annotations

from pathlib import Path

from outrider.profiles.fetched_models import fetched_models
from outrider.profiles.record import cache_folder, remember
from outrider.profiles.sources import models_folder


def test_nothing_was_fetched() -> None:
    assert fetched_models() == []


def test_files_of_the_cache_and_of_other_caches(tmp_path: Path) -> None:
    elsewhere, gone = tmp_path / "hub.gguf", tmp_path / "gone.gguf"
    for path in (elsewhere, gone):
        path.write_bytes(b"x")
        remember(f"hf:owner/repo/{path.name}", path)
    gone.unlink()
    own = models_folder() / "01" / "own.gguf"
    own.parent.mkdir(parents=True)
    own.write_bytes(b"x")
    remember("pypi:package==1!own.gguf", own)
    (own.parent / "own.gguf.part").write_bytes(b"x")
    (cache_folder() / "fetched" / "broken.json").write_text("[")
    (cache_folder() / "fetched" / "odd.json").write_text("[]")
    assert fetched_models() == [elsewhere, own]
