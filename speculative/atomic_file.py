"""replace_file(): a file holds the old content or the new, never a part."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def replace_file(path: Path, data: bytes, *, private: bool = False) -> None:
    """Write ``data`` beside ``path``, on disk, and put it in its place.

    Nobody but the user may read what is ``private``.

    Raises:
        OSError: it cannot be written; the file is as it was.
    """
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    mode = 0o600 if private else 0o666
    try:
        with open(new, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise
