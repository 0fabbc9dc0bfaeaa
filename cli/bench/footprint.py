"""The memory that an arm needs: the peak resident set of a process that runs nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from outrider.cli.bench.arm import Arm, parse_arm
from outrider.speculative.errors import EngineError

PREDICT = 8


def peak_memory(text: str) -> int | None:
    """Bytes that a process needs to load the arm ``text`` and answer a few tokens.

    None where the system does not tell.

    Raises:
        EngineError: the process failed.
    """
    command = [sys.executable, "-m", "outrider.cli.bench.footprint", text]
    child = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if child.returncode:
        lines = [line for line in child.stderr.splitlines() if line.strip()] or ["no message"]
        raise EngineError(f"measuring the memory of {text!r}: {lines[-1]}")
    return int(child.stdout) or None


def main(text: str) -> None:
    with Arm("", parse_arm(text)) as arm:
        ids = arm.encode([{"role": "user", "content": "Count from one to ten."}])
        arm.answer(ids, arm.settings(ids, temp=0.0, predict=PREDICT, ignore_eos=True))
        print(_own_peak())


def _own_peak() -> int:
    """Bytes; 0 if unknown. The usage that a parent is told counts what *it* held at the start."""
    try:
        status = Path("/proc/self/status").read_text("ascii")
    except OSError:
        status = ""
    if match := re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE):
        return int(match[1]) * 1024
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


if __name__ == "__main__":
    main(sys.argv[1])
