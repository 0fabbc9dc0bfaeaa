"""Does bench compare keep its word? A profile with itself, and with a planted delay.

    python tests/benchmarks/compare_power.py "smollm2-plain" [--runs 20] [--delay 0.1] [...]

Each run is a process of its own; other options go to ``outrider bench compare``. To be seen: not
distinguishable from itself in at least 19 of 20 runs, the delay of 10 % named in at least 18.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("profile", help='"PROFILE [flags]"')
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--delay", type=float, default=0.1)
    arguments, others = parser.parse_known_args()
    right = {"itself": 0, "delayed": 0}
    for number in range(1, arguments.runs + 1):
        # alternating, so that both meet the same machine
        for name, delay, wanted in (
            ("itself", 0.0, "not distinguishable"),
            ("delayed", arguments.delay, "slower"),
        ):
            started = time.perf_counter()
            summary = compare(arguments.profile, delay, others)
            right[name] += summary["verdict"] == wanted
            print(
                f"{number:3} {name:8} {summary['verdict']:20} {words(summary['tokens_per_s'])}"
                f"  A against A {words(summary['a_against_a'])}"
                f"  {time.perf_counter() - started:.0f} s, load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    print(f"itself: not distinguishable in {right['itself']} of {arguments.runs}")
    print(f"delayed by {arguments.delay:.0%}: slower in {right['delayed']} of {arguments.runs}")


def compare(profile: str, delay: float, others: list[str]) -> Any:
    command = [sys.executable, "-m", "outrider.cli", "bench", "compare", profile, profile]
    command += ["--json", "--plant-delay", str(delay), *others]
    run = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(run.stdout)["summary"]


def words(ratio: dict[str, float]) -> str:
    return f"{ratio['value']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})"


if __name__ == "__main__":
    main()
