"""Is the doctor's break-even true? Against runs whose acceptance is set by coins.

For each draft length two synthetic runs, one a little below the acceptance that the doctor says
is needed and one a little above, and plain steps between them, in turns. A step costs nearly the
same at both, so the acceptance at which a run is as fast as plain decoding lies on the line
through the two. Run on a machine that does nothing else:

    python tests/benchmarks/doctor_break_even.py
    python tests/benchmarks/doctor_break_even.py --rounds 9 -P smollm2
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
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
NUM_WARM_UP, NUM_STEPS = 3, 12
LIMIT = 0.10

Place = tuple[int, float]  # draft length and acceptance; length 0 is plain


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-P", "--profile", default="smollm2")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)))
    options = parser.parse_args()
    lengths = [int(length) for length in options.lengths.split(",")]
    said = diagnosis(options.profile)
    print(f"quiet: {said['quiet']}")
    print(f"{'drafter':14}{'length':>7}{'doctor':>9}{'measured':>10}{'ratio':>8}")
    worst = 0.0
    profile = load_profile(options.profile, {"speculation.adaptive": False})
    drafters = {"n-gram": DrafterSettings("filler")}
    for one in engine_settings(profile).drafters:
        if kind_of(one).is_model:
            drafters[kind_of(one).name] = replace(one, n_max=None)
    with Arm("", ArmSpec(options.profile, profile, {})) as arm:
        for name, drafter in drafters.items():
            needs = needs_of(said, name)
            wanted = {length: needs[length] for length in lengths if length in needs}
            measured = crossings(arm, drafter, wanted, options.rounds)
            for length, needed in wanted.items():
                ratio = needed / measured[length]
                worst = max(worst, abs(ratio - 1))
                row = f"{needed:9.3f}{measured[length]:10.3f}{ratio:8.3f}"
                print(f"{name:14}{length:7}{row}", flush=True)
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


def crossings(
    arm: Arm, drafter: DrafterSettings, needs: Mapping[int, float], num_rounds: int
) -> dict[int, float]:
    """The acceptance at which each length is as fast as plain decoding."""
    places: list[Place] = [(0, 0.0)]
    for length, needed in needs.items():
        middle = max(2 * APART, min(1 - 2 * APART, needed))  # beyond them the line goes on
        places += [(length, middle - APART), (length, middle + APART)]
    seconds: dict[Place, list[float]] = {place: [] for place in places}
    for number in range(num_rounds):
        for place in places if number % 2 else reversed(places):
            seconds[place] += steps(arm, drafter, place)
    plain_s = median(seconds[0, 0.0])
    return {
        length: crossing(
            length, {rate: median(s) for (of, rate), s in seconds.items() if of == length}, plain_s
        )
        for length in needs
    }


def crossing(length: int, step_s: Mapping[float, float], plain_s: float) -> float:
    """Where the gain is 1 on the line through the gains at two acceptance rates."""
    (low, high) = sorted(step_s)
    at_low, at_high = ((1 + length * rate) * plain_s / step_s[rate] for rate in (low, high))
    return low + (1 - at_low) * (high - low) / (at_high - at_low)


def steps(arm: Arm, drafter: DrafterSettings, place: Place) -> list[float]:
    """Seconds of whole steps, drafting and all, at one place."""
    length, rate = place
    if length:
        speculation = SpeculationSettings(n_max=length, adaptive=False, synth_len=1 + length * rate)
        arm.engine.configure(speculation, (drafter,))
    else:
        arm.engine.configure(SpeculationSettings(adaptive=False), ())
    arm.session.reset()
    settings = GenerationSettings(SamplingSettings(temp=0.0, ignore_eos=True), seed=1)
    ends: list[float] = []
    with contextlib.closing(arm.session.generate(arm.engine.encode(TEXT), settings)) as events:
        for event in events:
            if isinstance(event, StepEvent):
                ends.append(arm.session.timings.generation_s)
            if arm.session.stats.steps >= NUM_WARM_UP + NUM_STEPS:
                break
    taken = [after - before for before, after in pairwise(ends)]
    return taken[NUM_WARM_UP:]


if __name__ == "__main__":
    sys.exit(main())
