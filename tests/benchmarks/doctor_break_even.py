"""Is the doctor's break-even true? Against runs whose acceptance is set by coins.

For each draft length two synthetic runs, one a little below the acceptance that the doctor says
is needed and one a little above, and plain steps between them, behind as much text. A step costs
nearly the same at both, so the acceptance at which a run is as fast as plain decoding lies on the
line through the two. How much faster than plain it is says the median over rounds, each run
against the plain steps right beside it: the machine may be a fifth slower a minute later. For the
same reason the doctor is asked several times, with rounds after each. Run where nothing else runs:

    python tests/benchmarks/doctor_break_even.py
    python tests/benchmarks/doctor_break_even.py --doctors 9 -P smollm2
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from outrider.cli.bench.arm import Arm, ArmSpec
from outrider.cli.engine_setup import engine_settings
from outrider.profiles.load import load_profile
from outrider.speculative.drafters.build import kind_of
from outrider.speculative.events import StepEvent
from outrider.speculative.settings import (
    DrafterSettings,
    GenerationSettings,
    SamplingSettings,
    SpeculationSettings,
)

LENGTHS = (1, 2, 3, 4, 8)
TEXT = "Once there was a harbour with a hundred boats, and every boat had a name. "
APART = 0.1  # of the acceptance, to either side
WARM_UP, LAST = 12, 60  # tokens: all steps between them count, behind the same text in every run
LIMIT = 0.10

Place = tuple[int, float]  # draft length and acceptance


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-P", "--profile", default="smollm2")
    parser.add_argument("--doctors", type=int, default=5, help="how often the doctor is asked")
    parser.add_argument("--rounds", type=int, default=2, help="of runs after each time")
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)))
    options = parser.parse_args()
    lengths = [int(length) for length in options.lengths.split(",")]
    profile = load_profile(options.profile, {"speculation.adaptive": False})
    drafters = {"n-gram": DrafterSettings("filler")}
    for one in engine_settings(profile).drafters:
        if kind_of(one).is_model:
            drafters[kind_of(one).name] = replace(one, n_max=None)
    said: dict[tuple[str, int], list[float]] = {}
    gained = {name: dict[Place, list[float]]() for name in drafters}
    for number in range(options.doctors):
        found = diagnosis(options.profile)
        print(f"{number + 1} of {options.doctors}, quiet: {found['quiet']}", file=sys.stderr)
        for name in drafters:
            for length, needed in needs_of(found, name).items():
                if length in lengths:
                    said.setdefault((name, length), []).append(needed)
        with Arm("", ArmSpec(options.profile, profile, {})) as arm:
            for name, drafter in drafters.items():
                first = {length: needs[0] for (of, length), needs in said.items() if of == name}
                for _ in range(options.rounds):
                    for place, gain in gains(arm, drafter, first):
                        gained[name].setdefault(place, []).append(gain)
    print(f"{'drafter':14}{'length':>7}{'doctor':>9}{'measured':>10}{'ratio':>8}   said")
    worst = 0.0
    for (name, length), needs in sorted(said.items(), key=lambda one: (one[0][0][0] != "n", one)):
        needed, measured = median(needs), crossing(length, gained[name])
        worst = max(worst, abs(needed / measured - 1))
        row = f"{needed:9.3f}{measured:10.3f}{needed / measured:8.3f}"
        print(f"{name:14}{length:7}{row}   {min(needs):.3f} to {max(needs):.3f}", flush=True)
    print(f"worst: {100 * worst:.1f} % apart, allowed {100 * LIMIT:.0f} %")
    return int(worst > LIMIT)


def diagnosis(profile: str) -> dict[str, Any]:
    """What ``outrider doctor`` says."""
    command = [sys.executable, "-m", "outrider.cli", "doctor", "-P", profile, "--json"]
    done = subprocess.run(command, capture_output=True, check=True)
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def needs_of(said: Mapping[str, Any], drafter: str) -> dict[int, float]:
    """The acceptance that each length of a drafter needs."""
    rows = (one["lengths"] for one in said["break_even"] if one["drafter"] == drafter)
    return {row["length"]: row["needs"] for row in next(rows, [])}


def gains(
    arm: Arm, drafter: DrafterSettings, needs: Mapping[int, float]
) -> Iterator[tuple[Place, float]]:
    """One round: times plain decoding, at two rates of acceptance for each length."""
    for length, needed in needs.items():
        middle = max(2 * APART, min(1 - 2 * APART, needed))  # beyond them the line goes on
        low, high = middle - APART, middle + APART
        low_s = step_s(arm, drafter, length, low)
        plain_s = step_s(arm, drafter)
        high_s = step_s(arm, drafter, length, high)
        yield (length, low), (1 + length * low) * plain_s / low_s
        yield (length, high), (1 + length * high) * plain_s / high_s


def crossing(length: int, gained: Mapping[Place, Sequence[float]]) -> float:
    """Where the gain is 1, on the line through those at two rates."""
    low, high = sorted(rate for of, rate in gained if of == length)
    low_gain, high_gain = median(gained[length, low]), median(gained[length, high])
    return low + (1 - low_gain) * (high - low) / (high_gain - low_gain)


def step_s(arm: Arm, drafter: DrafterSettings, length: int = 0, rate: float = 0.0) -> float:
    """Seconds of a whole step, drafting and all; plain without a length."""
    if length:
        speculation = SpeculationSettings(n_max=length, adaptive=False, synth_len=1 + length * rate)
        arm.engine.configure(speculation, (drafter,))
    else:
        arm.engine.configure(SpeculationSettings(adaptive=False), ())
    arm.session.reset()
    settings = GenerationSettings(SamplingSettings(temp=0.0, ignore_eos=True), seed=1)
    times: list[float] = []
    before_s = 0.0
    with contextlib.closing(arm.session.generate(arm.engine.encode(TEXT), settings)) as events:
        for event in events:
            if not isinstance(event, StepEvent):
                continue
            ended_s, stats = arm.session.timings.generation_s, arm.session.stats
            if stats.steps + stats.accepted > WARM_UP:
                times.append(ended_s - before_s)
            if stats.steps + stats.accepted >= LAST:
                break
            before_s = ended_s
    return median(times)


if __name__ == "__main__":
    sys.exit(main())
