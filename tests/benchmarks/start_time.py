"""Time from the command to the prompt of the chat, with warm caches, and where it goes.

    PYTHONPATH=tests python tests/benchmarks/start_time.py [--rounds 7] [-- FLAGS]

FLAGS go to the chat (``-P smollm2`` if there are none). The total is that of the program as it
is; the stages are those of a second start that notes when each of them ends. ``imports`` is
everything that a chat imports, done at the front; the first round only warms up.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from tools.drained_terminal import DrainedTerminal
from tools.program import COMMAND

PROMPT = "›".encode()
STAGED_CHAT = """
import sys, time
def stamp(name):
    with open(sys.argv[1], "a") as file:
        print(name, time.time(), file=file)
def ends(name, function):
    def wrapper(*words, **named):
        try:
            return function(*words, **named)
        finally:
            stamp(name)
    return wrapper
def begins(name, function):
    def wrapper(*words, **named):
        stamp(name)
        return function(*words, **named)
    return wrapper
stamp("python")
import outrider.cli.app, outrider.cli.chat.chat, outrider.speculative.engine as engine
from outrider.cli.program import run_program
from outrider.speculative.llama import library
stamp("imports")
outrider.cli.chat.chat.open_engine = begins("profile", outrider.cli.chat.chat.open_engine)
engine.Engine._measure = begins("load", ends("measure", engine.Engine._measure))
run_program(sys.argv[2:])
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("flags", nargs="*")
    arguments = parser.parse_args()
    flags = ["chat", *(arguments.flags or ["-P", "smollm2"])]
    totals: list[float] = []
    stages: dict[str, list[float]] = {}
    for number in range(arguments.rounds + 1):
        total, by_stage = plain_start(flags), staged_start(flags)
        if number:
            totals.append(total)
            for name, seconds in by_stage.items():
                stages.setdefault(name, []).append(seconds)
    print(f"command to prompt {median(totals):.2f} s ({min(totals):.2f} to {max(totals):.2f})")
    for name, times in stages.items():
        print(f"  {name:<8} {median(times):.2f} s")


def plain_start(flags: list[str]) -> float:
    with (
        tempfile.TemporaryDirectory() as folder,
        DrainedTerminal([*COMMAND, *flags], folders(folder)) as terminal,
    ):
        return terminal.wait_for(PROMPT) - terminal.started


def staged_start(flags: list[str]) -> dict[str, float]:
    """Seconds of each stage, the last one up to the prompt."""
    with tempfile.TemporaryDirectory() as folder:
        stamps = Path(folder, "stamps")
        former = time.time()
        command = [sys.executable, "-c", STAGED_CHAT, str(stamps), *flags]
        with DrainedTerminal(command, folders(folder)) as terminal:
            terminal.wait_for(PROMPT)
            ended = time.time()
        stages = {}
        for line in [*stamps.read_text().splitlines(), f"prompt {ended}"]:
            name, moment = line.split()
            stages[name], former = float(moment) - former, float(moment)
        return stages


def folders(folder: str) -> dict[str, str]:
    """No history and no saved chat; the cache of models and step costs stays."""
    return {"XDG_DATA_HOME": folder, "XDG_STATE_HOME": folder}


if __name__ == "__main__":
    main()
