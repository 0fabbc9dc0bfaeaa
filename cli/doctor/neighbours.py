"""Neighbours: how much of the cores others used while something was measured."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

_STAT = Path("/proc/stat")
# user, nice, system, interrupts, and what the host of a virtual machine took
_BUSY_COLUMNS = (0, 1, 2, 5, 6, 7)


@dataclass(frozen=True, slots=True)
class CoreTime:
    """Seconds since some start: all work on the cores this process may use, its own, the clock."""

    busy_s: float
    own_s: float
    clock_s: float
    cores: int

    @classmethod
    def now(cls) -> CoreTime | None:
        """None where the system does not tell."""
        try:
            cpus = os.sched_getaffinity(0)
            tick = 1 / os.sysconf("SC_CLK_TCK")
            rows = [line.split() for line in _STAT.read_text("ascii").splitlines()]
        except (AttributeError, OSError, ValueError):
            return None
        names = {f"cpu{cpu}" for cpu in cpus}
        busy = [int(row[1 + i]) for row in rows if row[0] in names for i in _BUSY_COLUMNS]
        return cls(sum(busy) * tick, time.process_time(), time.perf_counter(), len(cpus))


def others_share(before: CoreTime | None, after: CoreTime | None) -> float | None:
    """The part of the cores' time that others used in between, 0 to 1."""
    if before is None or after is None or after.clock_s <= before.clock_s:
        return None
    others = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    return max(0.0, others / ((after.clock_s - before.clock_s) * after.cores))
