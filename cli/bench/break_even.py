"""Break-even: which acceptance each draft length needs here, beside the one it has."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

_BUDGET_S = 3.0
_MIN_REPEATS = 3


@dataclass(frozen=True, slots=True)
class LengthCost:
    """A draft length by the definitions of the glossary; None where nothing was measured."""

    length: int
    step_cost: float
    has: float | None = None

    @property
    def needs(self) -> float:
        return (self.step_cost - 1) / self.length

    @property
    def gain(self) -> float | None:
        """Speed over plain decoding that ``has`` gives."""
        return None if self.has is None else (1 + self.length * self.has) / self.step_cost


@dataclass(frozen=True, slots=True)
class Drafts:
    """What one drafter did at one draft length; ``token_s`` are seconds for one draft token."""

    drafted: int = 0
    accepted: int = 0
    token_s: float | None = None

    @property
    def acceptance_rate(self) -> float | None:
        return self.accepted / self.drafted if self.drafted else None


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Of one drafter. ``verify_s`` is the time of a batch by its rows."""

    drafter: str
    verify_s: Mapping[int, float]
    draft_token_s: float
    lengths: tuple[LengthCost, ...]

    @property
    def plain_s(self) -> float:
        return self.verify_s[1]

    def as_json(self) -> dict[str, object]:
        return {
            "drafter": self.drafter,
            "plain_s": self.plain_s,
            "draft_token_s": self.draft_token_s,
            "verify_cost": {str(n): s / self.plain_s for n, s in self.verify_s.items()},
            "lengths": [
                {
                    "length": one.length,
                    "step_cost": one.step_cost,
                    "needs": one.needs,
                    "has": one.has,
                    "gain": one.gain,
                }
                for one in self.lengths
            ],
        }


def break_even(
    drafter: str, verify_s: Mapping[int, float], token_s: float, drafts: Mapping[int, Drafts]
) -> BreakEven:
    """From the times of batches and what was drafted at each length.

    A token costs what it took in drafts of that length, with what the drafter had to read
    before them; ``token_s`` where there were none.
    """
    lengths = []
    for length, one in sorted(drafts.items()):
        draft_s = length * (token_s if one.token_s is None else one.token_s)
        cost = (verify_s[length + 1] + draft_s) / verify_s[1]
        lengths.append(LengthCost(length, cost, one.acceptance_rate))
    return BreakEven(drafter, verify_s, token_s, tuple(lengths))


def verify_times(time_batch: Callable[[int], float], sizes: Sequence[int]) -> dict[int, float]:
    """Seconds to decode a batch of each of the ``sizes``, medians; the sizes take turns.

    ``time_batch`` decodes one: :meth:`outrider.speculative.engine.Engine.time_batch`.
    """
    times: dict[int, list[float]] = {size: [] for size in sizes}
    for size in sizes:  # the first decode of a size allocates
        time_batch(size)
    deadline = time.perf_counter() + _BUDGET_S
    while len(times[sizes[-1]]) < _MIN_REPEATS or time.perf_counter() < deadline:
        for size in sizes:
            times[size].append(time_batch(size))
    return {size: median(seconds) for size, seconds in times.items()}
