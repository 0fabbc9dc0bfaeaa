"""Calibration: what verify batches of a few sizes cost on this machine, and where that is kept."""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from outrider.speculative.atomic_file import replace_file
from outrider.speculative.batch_outputs import Block
from outrider.speculative.llama import identity as build_identity
from outrider.speculative.model_store import Progress
from outrider.speculative.runner import Runner
from outrider.speculative.settings import DrafterSettings, EngineSettings
from outrider.speculative.step_costs import StepCosts
from outrider.speculative.threads import physical_cores

# small ones twice: the first after another size takes longer than those in an answer
_MAIN_ROWS = (1, 1, 2, 2, 4, 8, 16)
_REST = (32, 3, 6, 12)
_BUDGET_S = 0.4
_CHECK_ROWS = (1, 4)
_AS_BEFORE = 1.25  # how far the ratio of two sizes may be from what is kept


def calibrate(runner: Runner, costs: StepCosts, num_rows: int, progress: Progress) -> None:
    """Time batches of up to ``num_rows`` rows behind sequence 0, into ``costs``.

    Sizes take turns as long as there is time, and the best time of each counts: neighbours and
    a first time only make it longer. On a machine where that is too little time for all of
    them, the assumed curve stands in for the rest. ``progress`` gets ("measure", 0..1).
    """
    best: dict[int, float] = {}
    deadline = time.perf_counter() + _BUDGET_S
    timed_decode(runner, 1)  # the first decode of a context allocates
    for rows in (*2 * _MAIN_ROWS, num_rows, *_REST, *4 * _MAIN_ROWS):
        left = deadline - time.perf_counter()
        if rows > num_rows or (best and left < _expected_s(best, rows)):
            continue
        seconds = timed_decode(runner, rows)
        best[rows] = min(seconds, best.get(rows, seconds))
        progress("measure", min(1.0, 1 - left / _BUDGET_S))
    costs.calibrate(best)


def _expected_s(best: Mapping[int, float], num_rows: int) -> float:
    """At most so long takes a size that may not have been timed yet."""
    if num_rows in best:
        return best[num_rows]
    nearest = max((rows for rows in best if rows < num_rows), default=min(best))
    return best[nearest] * max(num_rows / nearest, 1)


def is_as_before(runner: Runner, costs: StepCosts, num_rows: int) -> bool:
    """True if the machine still has the curve that ``costs`` were given."""
    few, many = (min(rows, num_rows) for rows in _CHECK_ROWS)
    timed_decode(runner, many)
    times: dict[int, list[float]] = {few: [], many: []}
    for rows in 2 * (few, few, many):
        times[rows].append(timed_decode(runner, rows))
    ratio = min(times[many]) / min(times[few])
    kept = costs.verify_s(many - 1)
    change = ratio * kept[few - 1] / kept[many - 1]
    return bool(1 / _AS_BEFORE < change < _AS_BEFORE)


def timed_decode(runner: Runner, num_rows: int) -> float:
    """Seconds of one decode of ``num_rows`` rows behind sequence 0, which stays as it was."""
    block = Block(0, np.zeros(num_rows, np.int32), runner.cached_length(0), num_rows)
    started = time.perf_counter()
    runner.decode([block])
    seconds = time.perf_counter() - started
    runner.truncate(0, block.start_pos)
    return seconds


class CostFile:
    """The costs of one target with its drafters, kept from one start to the next.

    One small file for each combination of machine, build of llama.cpp, models and settings that
    changes what a decode costs. It is a convenience: what cannot be read is measured again,
    what cannot be written is left.
    """

    def __init__(self, folder: Path, settings: EngineSettings, kinds: Sequence[str]) -> None:
        """``kinds`` are the names of the drafters in use, in their order."""
        identity = json.dumps(list(_identity(settings, kinds)))
        name = hashlib.sha256(identity.encode()).hexdigest()[:24]
        self.path = folder / f"{name}.json"

    def read(self, costs: StepCosts) -> bool:
        """Take over what was kept; False if there is nothing of use."""
        try:
            costs.restore(json.loads(self.path.read_text("utf-8")))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return False
        return True

    def write(self, costs: StepCosts) -> None:
        """Keep them, by atomic replace."""
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self.path, json.dumps(costs.as_json()).encode())


def _identity(settings: EngineSettings, kinds: Sequence[str]) -> Iterator[object]:
    """All that changes what a step costs."""
    yield from (platform.node(), platform.machine(), physical_cores(), *build_identity())
    drafters: Sequence[DrafterSettings] = settings.drafters
    for model in (settings.target, *(d.model for d in drafters if d.model is not None)):
        about = model.path.stat()
        yield from (str(model.path.resolve()), about.st_size, about.st_mtime_ns)
        yield from (model.threads, model.threads_batch, model.ubatch_size, model.gpu_layers)
        yield from (model.flash_attn, model.cache_type_k, model.cache_type_v)
    yield from kinds
