from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from outrider.profiles.lock import locked

HOLDER = """
import sys
from pathlib import Path
from outrider.profiles.lock import locked
with locked(Path(sys.argv[1]), lambda: None):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_a_second_holder_waits_and_is_told_once() -> None:
    path = Path("lock")
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        told: list[str] = []

        def let_go() -> None:
            told.append("waiting")
            holder.communicate("\n")

        with locked(path, let_go):
            assert told == ["waiting"]
            assert holder.returncode == 0


def test_a_lock_is_free_when_its_holder_was_killed() -> None:
    path = Path("lock")
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        holder.kill()
    told: list[str] = []
    with locked(path, lambda: told.append("waiting")):
        assert told == []


def test_a_lock_can_be_taken_again() -> None:
    for _ in range(2):
        with locked(Path("lock"), lambda: None):
            assert Path("lock").exists()
