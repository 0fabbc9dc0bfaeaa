"""The machine and the libraries that a figure belongs to."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

_CHUNK = 1 << 20


def machine_facts() -> dict[str, object]:
    """Processor, memory, system and load, as far as the system tells; None for the rest."""
    return {
        "cpu": _cpu_name(),
        "cpu_features": _cpu_features(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "cores_total": os.cpu_count(),
        "memory_bytes": _memory_bytes(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "load_average": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
    }


def library_facts() -> dict[str, object]:
    """The llama.cpp build: version of the package, features it was built with, file hashes.

    Two builds with equal hashes are the same code.
    """
    from outrider.speculative.llama import system_info

    folder = Path(str(metadata.distribution("llama-cpp-python").locate_file("llama_cpp/lib")))
    # a wheel has each library once more under its versioned names
    files = sorted(path for path in folder.iterdir() if path.suffix in (".so", ".dylib", ".dll"))
    return {
        "outrider": metadata.version("outrider"),
        "llama_cpp_python": metadata.version("llama-cpp-python"),
        "features": system_info(),
        "sha256": {path.name: sha256(path) for path in files},
    }


def model_facts(path: Path) -> dict[str, object]:
    """What identifies a model file."""
    return {"file": path.name, "bytes": path.stat().st_size, "sha256": sha256(path)}


def sha256(path: Path) -> str:
    """The hash of a file; remembered while its size and time are the same."""
    stat = path.stat()
    key = (str(path.resolve()), stat.st_size, stat.st_mtime_ns)
    if key not in _hashes:
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
        _hashes[key] = digest.hexdigest()
    return _hashes[key]


_hashes: dict[tuple[str, int, int], str] = {}


def machine_line(facts: Mapping[str, object]) -> str:
    """The machine in one line."""
    memory = facts["memory_bytes"]
    size = f", {memory / 2**30:.0f} GiB" if isinstance(memory, int) else ""
    return f"{facts['cpu'] or 'unknown processor'}, {facts['cores']} cores{size}, {facts['system']}"


def _cpu_name() -> str | None:
    match = re.search(r"^model name\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.MULTILINE)
    return match[1].strip() if match else platform.processor() or None


def _cpu_features() -> list[str]:
    """The vector extensions of the processor that matter to llama.cpp."""
    match = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.MULTILINE)
    wanted = re.compile(r"avx|fma|f16c|bmi2|sse4|amx|asimd|sve|i8mm|bf16")
    return sorted(name for name in (match[1].split() if match else ()) if wanted.search(name))


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8", "replace")
    except OSError:
        return ""
