"""Time from a key to its echo at the prompt, in a terminal; with no history and with 60 kB of it.

PYTHONPATH=tests python tests/benchmarks/key_echo.py MODEL.gguf [--keys 200]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path
from statistics import median, quantiles

from tools.drained_terminal import DrainedTerminal
from tools.program import COMMAND

KEYS = b"QXZJKVW"  # letters that nothing else on the screen has
LINE = 40  # keys, then the line is cleared
HISTORY_BYTES = 60_000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--keys", type=int, default=200)
    arguments = parser.parse_args()
    for name, size in (("empty history", 0), ("60 kB of history", HISTORY_BYTES)):
        times = echo_ms(arguments.model, arguments.keys, size)
        print(
            f"{name}: {len(times)} keys, median {median(times):.1f} ms,"
            f" 90 % below {quantiles(times, n=10)[-1]:.1f} ms, longest {max(times):.1f} ms"
        )


def echo_ms(model: Path, num_keys: int, history_bytes: int) -> list[float]:
    times = []
    with tempfile.TemporaryDirectory() as folder:
        write_history(Path(folder, "outrider", "history"), history_bytes)
        env = {"XDG_DATA_HOME": folder, "XDG_STATE_HOME": folder}
        with DrainedTerminal([*COMMAND, "chat", "-m", str(model)], env) as terminal:
            terminal.wait_for("›".encode())
            time.sleep(1.0)
            for number, key in enumerate(islice(cycle(KEYS), num_keys), start=1):
                seen = len(terminal.output)
                started = time.perf_counter()
                terminal.send(bytes([key]))
                times.append(1e3 * (terminal.wait_for(bytes([key]), since=seen) - started))
                if number % LINE == 0:
                    terminal.send(b"\x15")
                time.sleep(0.05)
    return times


def write_history(path: Path, size: int) -> None:
    """Messages of some words, in the format of the history file."""
    path.parent.mkdir(parents=True)
    entry = "\n# 2026-01-01 12:00:00.000000\n+" + "word " * 14 + "\n"
    path.write_text(entry * (size // len(entry)))


if __name__ == "__main__":
    main()
