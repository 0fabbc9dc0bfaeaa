"""Successive halving: all candidates on a few prompts, the better ones on more."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from outrider.cli.bench.ratio import LEVEL, Ratio, ratio_of_logs

_RESAMPLES = 10_000

Speeds = Mapping[int, float]
"""Tokens/s by the number of the prompt."""
Ask = Callable[[int, Sequence[int], Sequence[int]], Iterable[tuple[int, int, float | None]]]
"""Called with round, candidates and prompts; gives candidate, prompt and tokens/s, or None for
an answer too short to be timed."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a candidate stands. ``ratio`` is its speed over that of the best.

    ``left_after`` is the round after which it was given up, None if it stayed to the end.
    """

    candidate: int
    ratio: Ratio
    is_slower: bool = False
    left_after: int | None = None


def num_pairs_needed(num_candidates: int) -> int:
    """Pairs that can tell: so many the same way by luck are rarer than the level allows."""
    return math.ceil(math.log2(2 * max(num_candidates - 1, 1) / (1 - LEVEL)))


def paired_ratio(speeds: Speeds, base: Speeds, num_candidates: int = 2) -> Ratio:
    """The median of speed over ``base`` on the prompts that both have, with its interval.

    As :func:`outrider.cli.bench.ratio.ratio_of`, but the level holds for the comparisons of
    all candidates together: the best of many is partly the luckiest.
    """
    shared = sorted(speeds.keys() & base.keys())
    if not shared:
        return Ratio(math.nan, 0.0, math.inf, 0)
    logs = np.log([speeds[i] / base[i] for i in shared])
    # a share of the level is further out: more resamples to find it
    comparisons = max(num_candidates - 1, 1)
    return ratio_of_logs(logs, num_comparisons=comparisons, resamples=_RESAMPLES, seed=0)


def best_of(speeds: Sequence[Speeds], candidates: Sequence[int]) -> int:
    """The candidate that no other beats, or is beaten by least, in the median pair."""

    def most_beaten(base: int) -> float:
        others = (other for other in candidates if other != base)
        return max((_median_ratio(speeds[one], speeds[base]) for one in others), default=0.0)

    return min(candidates, key=most_beaten)


def halve(num_candidates: int, num_rounds: int, ask: Ask) -> list[Standing]:
    """Ask until the rounds are used up or one candidate is left; the best comes first.

    Each round asks about as many times in all: fewer candidates get more prompts. After it
    those of the worse half leave that are really slower than the best; a candidate within the
    noise stays.
    """
    speeds: list[dict[int, float]] = [{} for _ in range(num_candidates)]
    alive = list(range(num_candidates))
    left: dict[int, int] = {}
    num_prompts = 0
    for number in range(1, num_rounds + 1):
        count = num_pairs_needed(num_candidates) * num_candidates // len(alive)
        for candidate, prompt, speed in ask(number, alive, range(num_prompts, num_prompts + count)):
            if speed is not None:
                speeds[candidate][prompt] = speed
        num_prompts += count
        standings = _standings(speeds, alive)
        if number < num_rounds:
            worse_half = standings[(len(alive) + 1) // 2 :]
            left |= {one.candidate: number for one in worse_half if one.is_slower}
        alive = [candidate for candidate in alive if candidate not in left]
        if len(alive) == 1:
            break
    return _standings(speeds, alive, left)


def _standings(
    speeds: Sequence[Speeds], alive: Sequence[int], left: Mapping[int, int] | None = None
) -> list[Standing]:
    """Those who are in or ``left``, the best of those in first, the others by their ratio."""
    left = left or {}
    best = best_of(speeds, alive)
    standings = []
    for candidate in (*alive, *left):
        ratio = paired_ratio(speeds[candidate], speeds[best], len(speeds))
        can_tell = ratio.num_pairs >= num_pairs_needed(len(speeds))
        is_slower = can_tell and ratio.high < 1
        standings.append(Standing(candidate, ratio, is_slower, left.get(candidate)))
    return sorted(standings, key=lambda one: (one.candidate != best, _rank(one.ratio)))


def _rank(ratio: Ratio) -> float:
    return -ratio.value if ratio.num_pairs else math.inf


def _median_ratio(speeds: Speeds, base: Speeds) -> float:
    shared = speeds.keys() & base.keys()
    return float(np.median([speeds[i] / base[i] for i in shared])) if shared else 0.0
