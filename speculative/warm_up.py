"""Warm-up: what verify batches of a few sizes cost on this machine."""

from __future__ import annotations

import time

import numpy as np

from outrider.speculative.batch_outputs import Block
from outrider.speculative.model_store import Progress
from outrider.speculative.runner import Runner
from outrider.speculative.step_costs import StepCosts

_ROWS = (1, 2, 4, 8)
_BUDGET_S = 0.4


def warm_up(runner: Runner, costs: StepCosts, num_rows: int, progress: Progress) -> None:
    """Time batches of up to ``num_rows`` rows behind sequence 0, into ``costs``.

    ``progress`` gets ("measure", 0..1).
    """
    sizes = [rows for rows in _ROWS if rows <= num_rows]
    if not sizes:
        return
    best: dict[int, float] = {}
    deadline = time.perf_counter() + _BUDGET_S
    timed_decode(runner, sizes[-1])  # the first decode of a context allocates
    while not best or time.perf_counter() < deadline:
        for rows in sizes:
            seconds = timed_decode(runner, rows)
            best[rows] = min(seconds, best.get(rows, seconds))
            progress("measure", min(1.0, 1 - (deadline - time.perf_counter())))
            if time.perf_counter() > deadline and len(best) > 1:
                break
    for rows, seconds in best.items():
        costs.observe_verify(rows, seconds)


def timed_decode(runner: Runner, num_rows: int) -> float:
    """Seconds of one decode of ``num_rows`` rows behind sequence 0, which stays as it was."""
    block = Block(0, np.zeros(num_rows, np.int32), runner.cached_length(0), num_rows)
    started = time.perf_counter()
    runner.decode([block])
    seconds = time.perf_counter() - started
    runner.truncate(0, block.start_pos)
    return seconds
