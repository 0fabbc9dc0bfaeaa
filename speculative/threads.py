"""How many threads a model gets when nobody says."""

from __future__ import annotations

import os
from pathlib import Path

_CPUS = Path("/sys/devices/system/cpu")


def thread_count(requested: int) -> int:
    """``requested``, or as many as this process has physical cores (as llama.cpp does)."""
    return requested if requested > 0 else physical_cores()


def physical_cores() -> int:
    """Physical cores this process may use: two threads of one core share its arithmetic."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    cpus = os.sched_getaffinity(0)
    cores = {_siblings(cpu) for cpu in cpus}
    return max(1, len(cores))


def _siblings(cpu: int) -> str:
    try:
        return (_CPUS / f"cpu{cpu}/topology/thread_siblings").read_text().strip()
    except OSError:
        return f"cpu{cpu}"
