"""A lock between processes, held on a file; it is free again when its process dies."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_POLL_S = 0.1

if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _try_lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def locked(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock on ``path``; ``waiting`` is called once if another process has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        has_told = False
        while not _is_taken(descriptor):
            if not has_told:
                waiting()
                has_told = True
            time.sleep(_POLL_S)
        yield
    finally:
        os.close(descriptor)


def _is_taken(descriptor: int) -> bool:
    """Take the lock if it is free and return whether it is ours now."""
    try:
        _try_lock(descriptor)
    except (BlockingIOError, PermissionError):
        return False
    return True
