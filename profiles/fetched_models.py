"""The model files that were fetched to this machine, wherever they lie."""

from __future__ import annotations

import json
from pathlib import Path

from outrider.profiles.record import cache_folder
from outrider.profiles.sources import models_folder


def fetched_models() -> list[Path]:
    """Return every GGUF file of the cache, and those fetched into other programs' caches."""
    noted = (_noted_path(record) for record in (cache_folder() / "fetched").glob("*.json"))
    files = {path for path in noted if path is not None and path.is_file()}
    files.update(models_folder().rglob("*.gguf"))
    return sorted(files, key=lambda path: (path.name, path))


def _noted_path(record: Path) -> Path | None:
    try:
        return Path(json.loads(record.read_text("utf-8"))["path"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
