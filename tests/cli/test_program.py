from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tools.program import environment

LOGS = """
import logging, sys
from outrider.cli.program import run_program
code = run_program(sys.argv[1:])
logging.getLogger("some.library").warning("a log line")
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["models", "list"], b""),
        (["models", "list", "--", "-v"], b""),
        (["run", "-v", "-P", "none", "hi"], b"some.library: a log line\n"),
    ],
)
def test_log_lines_reach_stderr_only_with_v(args: list[str], line: bytes) -> None:
    run = subprocess.run(
        [sys.executable, "-c", LOGS, *args], capture_output=True, env=environment(), check=False
    )
    assert run.stderr.endswith(line)
    assert (b"a log line" in run.stderr) == bool(line)


def test_module_and_command_are_the_same_program() -> None:
    module = subprocess.run(
        [sys.executable, "-m", "outrider.cli", "--help"], capture_output=True, env=environment()
    )
    assert module.returncode == 0
    assert module.stdout.startswith(b"Usage: outrider [OPTIONS] COMMAND")


INTERRUPTED = """\
import sys
from outrider.cli import program
from outrider.cli.__main__ import main

def run_program(words):
    try:
        exec("raise KeyboardInterrupt")  # as in the midst of making a dataclass
    except KeyboardInterrupt:
        return 130

program.run_program = run_program
sys.exit(main())
"""


DROPPED = """\
import signal, sys, time
from outrider.cli import program
from outrider.cli.__main__ import main

class Finalized:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

def run_program(words):
    Finalized()
    time.sleep(60)
    return 0

program.run_program = run_program
sys.exit(main())
"""


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_an_interrupt_that_python_drops_comes_again() -> None:
    words = [sys.executable, "-c", DROPPED]
    run = subprocess.run(words, env=environment(), capture_output=True, timeout=50, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (130, b"", b"")


def test_an_interrupt_wherever_it_falls_is_an_exit_code_and_no_signal(tmp_path: Path) -> None:
    (tmp_path / "interrupted.py").write_text(INTERRUPTED)
    words = [sys.executable, "-m", "interrupted"]
    run = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (130, b"", b"")
