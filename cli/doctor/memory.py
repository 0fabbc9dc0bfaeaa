"""MemoryNeed: what a model takes here, against what is free."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outrider.speculative.gguf_file import GgufFile

_MIB = 2**20
_LOG = "outrider.llama"
_CONTEXT = "llama_context: n_ctx "
_BUFFER = re.compile(r"(\S+)\s+(KV|RS|compute|output) buffer size\s*=\s*([\d.]+) MiB")
_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Bytes of the files, of the caches, and of the buffers for computing.

    ``free`` is None where the system does not tell. ``is_allocated`` says that llama.cpp has
    allocated this much; otherwise the cache is told from the headers and there are no buffers.
    """

    files: int
    cache: int
    buffers: int
    free: int | None
    total: int | None
    is_allocated: bool
    on_gpu: bool = False

    @property
    def needed(self) -> int:
        return self.files + self.cache + self.buffers

    @property
    def fits(self) -> bool | None:
        """None if it cannot be told."""
        if self.free is None or self.on_gpu:
            return None
        return self.needed <= self.free

    def as_json(self) -> dict[str, Any]:
        return {
            "files_bytes": self.files,
            "cache_bytes": self.cache,
            "buffers_bytes": self.buffers,
            "free_bytes": self.free,
            "total_bytes": self.total,
            "allocated": self.is_allocated,
            "fits": self.fits,
        }


@dataclass
class Allocations:
    """What llama.cpp says it allocates, by context: ``[(kind, device)] -> bytes``."""

    contexts: list[dict[tuple[str, str, int], int]] = field(default_factory=list)

    def read(self, line: str) -> None:
        """Take note of a line of its log."""
        if line.startswith(_CONTEXT):
            self.contexts.append({})
        match = _BUFFER.search(line)
        if match is None or not self.contexts:
            return
        context, (device, kind, size) = self.contexts[-1], match.groups()
        # a context may have two caches; its buffers may be laid out anew, then the last one counts
        number = sum(k[:2] == (kind, device) for k in context) if kind in ("KV", "RS") else 0
        context[kind, device, number] = int(float(size) * _MIB)

    def total(self, *kinds: str) -> int:
        return sum(
            size for context in self.contexts for key, size in context.items() if key[0] in kinds
        )


@contextlib.contextmanager
def noted_allocations() -> Iterator[Allocations]:
    """Listen to llama.cpp while it loads."""
    allocations = Allocations()
    log = logging.getLogger(_LOG)
    handler, level = _Handler(allocations), log.level
    is_heard_by_others = log.isEnabledFor(logging.INFO)
    former = log.propagate
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = former and is_heard_by_others
    try:
        yield allocations
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = former


class _Handler(logging.Handler):
    def __init__(self, allocations: Allocations) -> None:
        super().__init__(logging.INFO)
        self._allocations = allocations

    def emit(self, record: logging.LogRecord) -> None:
        self._allocations.read(record.getMessage())


def files_bytes(*files: GgufFile) -> int:
    """The bytes of model files; of a model in parts those of all."""
    return sum(path.stat().st_size for path in {p for file in files for p in _parts(file)})


def _parts(file: GgufFile) -> Iterator[Path]:
    yield file.path.resolve()
    match = re.fullmatch(r"(.*)-\d{5}-of-(\d{5})\.gguf", file.path.name)
    if match and (file.integer("split.count") or 1) > 1:
        for part in range(2, int(match[2]) + 1):
            yield file.path.resolve().with_name(f"{match[1]}-{part:05}-of-{match[2]}.gguf")


def free_memory() -> int | None:
    """Bytes that could be used without swapping, within the limits of a container."""
    free = _meminfo()
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        with contextlib.suppress(OSError, ValueError):
            left = int((_CGROUP / limit).read_text()) - int((_CGROUP / used).read_text())
            free = left if free is None else min(free, left)
    return free


def _meminfo() -> int | None:
    with contextlib.suppress(OSError):
        match = re.search(r"^MemAvailable:\s+(\d+) kB$", _read_meminfo(), re.MULTILINE)
        if match:
            return int(match[1]) * 1024
    with contextlib.suppress(AttributeError, OSError, ValueError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _read_meminfo() -> str:
    return Path("/proc/meminfo").read_text("ascii", "replace")
