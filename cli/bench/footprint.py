"""The memory that an arm needs: the peak resident set of a process that runs nothing else."""

from __future__ import annotations

import os
import subprocess
import sys

from outrider.cli.bench.arm import Arm, parse_arm
from outrider.speculative.errors import EngineError

PREDICT = 8


def peak_memory(text: str) -> int | None:
    """Bytes that a process needs to load the arm ``text`` and answer a few tokens.

    Call it before anything big is loaded: what a process held when it became another program
    counts in the peak of that program. None where the system does not tell.

    Raises:
        EngineError: the process failed.
    """
    if not hasattr(os, "wait4"):
        return None
    command = [sys.executable, "-m", "outrider.cli.bench.footprint", text]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        try:
            errors = process.stderr.read().decode("utf-8", "replace").split("\n")
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            raise
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        last = next((line for line in reversed(errors) if line.strip()), "no message")
        raise EngineError(f"measuring the memory of {text!r}: {last}")
    return int(usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024))


def main(text: str) -> None:
    with Arm("", parse_arm(text)) as arm:
        ids = arm.encode([{"role": "user", "content": "Count from one to ten."}])
        arm.answer(ids, arm.settings(ids, temp=0.0, predict=PREDICT, ignore_eos=True))


if __name__ == "__main__":
    main(sys.argv[1])
