"""Arms of a benchmark that go on a moment at a time, in turns."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol

TURN_S = 0.3


class Run(Protocol):
    """What one arm has to do."""

    @property
    def is_over(self) -> bool: ...

    def go_on(self, seconds: float) -> None:
        """Go on for about so long."""
        ...


def take_turns(runs: Sequence[Run], seed: int) -> None:
    """Let all go on until all are over, in another order each time.

    So they share the moods of the machine, and none is always the first, or the next after
    the same other one.
    """
    order, chance = list(runs), random.Random(seed)
    while order := [run for run in order if not run.is_over]:
        chance.shuffle(order)
        for run in order:
            run.go_on(TURN_S)
