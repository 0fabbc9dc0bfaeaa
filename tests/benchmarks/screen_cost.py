"""What the screen costs: tokens/s of the chat in a terminal against run, and the share of painting.

    PYTHONPATH=tests python tests/benchmarks/screen_cost.py [--rounds 7] [--tokens 512] [-- FLAGS]

FLAGS go to both (the model, drafters, threads; ``-P smollm2-plain`` if there are none). Rounds
are interleaved, the order turns each round. The chat's figure is the one in its saved session,
run's the one in its JSON. Painting is counted in CPU time of the thread that paints.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from tools.drained_terminal import DrainedTerminal
from tools.program import COMMAND, environment

PROMPT = (
    "Explain how a bicycle stays upright. Use headings, a list, a table and a Python example, "
    "and write at length."
)
# the chat with a clock around everything the renderer does
TIMED_CHAT = """
import json, sys, time
from outrider.cli.program import run_program
from outrider.cli.screen.render import TerminalRenderer
spent = 0.0
def timed(function):
    def wrapper(*words, **named):
        global spent
        started = time.thread_time()
        try:
            return function(*words, **named)
        finally:
            spent += time.thread_time() - started
    return wrapper
for name in ("write", "refresh"):
    setattr(TerminalRenderer, name, timed(getattr(TerminalRenderer, name)))
end = TerminalRenderer.end
def end_and_tell(self, summary):
    end(self, summary)
    open(sys.argv[1], "w").write(str(spent))
TerminalRenderer.end = end_and_tell
run_program(sys.argv[2:])
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("flags", nargs="*")
    arguments = parser.parse_args()
    flags = arguments.flags or ["-P", "smollm2-plain"]
    flags += ["-n", str(arguments.tokens), "--ignore-eos", "--temp", "0", "-s", "1"]
    chats: list[float] = []
    runs: list[float] = []
    shares: list[float] = []
    for number in range(arguments.rounds + 1):
        for arm in ("chat", "run") if number % 2 else ("run", "chat"):
            if arm == "run":
                speed = run_speed(flags)
            else:
                speed, share = chat_speed(flags)
            if number:  # the first round warms up
                (runs if arm == "run" else chats).append(speed)
                shares += [share] if arm == "chat" else []
    ratios = [chat / run for chat, run in zip(chats, runs, strict=True)]
    print(f"chat {median(chats):.1f} tok/s, run {median(runs):.1f} tok/s", end="")
    print(f", median of the ratios {median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
    print(f"painting: {100 * median(shares):.1f} % of the time of the answer, CPU time")


def run_speed(flags: list[str]) -> float:
    command = [*COMMAND, "run", "--json", "--no-stdin", *flags, PROMPT]
    done = subprocess.run(command, env=environment(), capture_output=True, check=True)
    return float(json.loads(done.stdout)["timings"]["tokens_per_s"])


def chat_speed(flags: list[str]) -> tuple[float, float]:
    """Tokens/s of one answer, and the share of its time that painting took."""
    with tempfile.TemporaryDirectory() as folder:
        env = {"XDG_DATA_HOME": folder, "XDG_STATE_HOME": folder}
        spent = Path(folder, "painting")
        command = [sys.executable, "-c", TIMED_CHAT, str(spent), "chat", "-p", PROMPT, *flags]
        with DrainedTerminal(command, env):
            turn = saved_turn(Path(folder))
        speed = float(turn["tokens_per_s"])
        return speed, float(spent.read_text()) / (turn["tokens"] / speed)


def saved_turn(folder: Path) -> dict[str, Any]:
    """The first turn, once the chat has written it."""
    end = time.monotonic() + 600
    while time.monotonic() < end:
        for path in folder.glob("outrider/sessions/*.json"):
            turns = json.loads(path.read_text())["turns"]
            if turns and turns[0]["answer"]:
                turn: dict[str, Any] = turns[0]
                return turn
        time.sleep(0.1)
    raise SystemExit("the chat has saved no turn")


if __name__ == "__main__":
    main()
