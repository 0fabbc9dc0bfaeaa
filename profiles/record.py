"""What was fetched and checked before, so that a start costs one stat and no hash."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the user's cache folder of this program."""
    import platformdirs

    return Path(platformdirs.user_cache_path("outrider", appauthor=False))


def recall(key: str) -> Path | None:
    """Return the file that ``key`` was fetched to, if it has not changed since."""
    try:
        record = json.loads(_record_path(key).read_text("utf-8"))
        path = Path(record["path"])
        return path if record == _record(key, path) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remember(key: str, path: Path) -> None:
    """Note that ``path`` holds what ``key`` asks for; a note that cannot be kept is no fault."""
    target = _record_path(key)
    fresh = target.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps(_record(key, path)), "utf-8")
        fresh.replace(target)


def _record(key: str, path: Path) -> dict[str, object]:
    stat = path.stat()
    return {"key": key, "path": str(path), "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}


def _record_path(key: str) -> Path:
    name = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return cache_folder() / "fetched" / f"{name}.json"
