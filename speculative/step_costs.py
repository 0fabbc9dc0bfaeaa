"""StepCosts: what a step costs on this machine, measured and refined while running."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.draft_time import DraftTime

F64 = NDArray[np.float64]

CPU_CURVE = {1: 1.0, 2: 1.7, 4: 2.5, 8: 4.3, 16: 7.6, 64: 28.0, 1024: 450.0}
"""Verify cost by rows where nothing was measured: between Q4_0 and Q4_1 on two cores."""
GPU_CURVE = {1: 1.0, 16: 1.1, 64: 1.3, 1024: 6.0}
STATED_CURVE = {1: 1.0, 2: 1.25, 4: 1.6, 8: 2.5, 16: 4.6, 64: 17.0, 1024: 270.0}
"""What is stated where nothing may be measured: a larger model on more cores."""

# of a new measurement: how much of it is laid to the machine's mood, how much to the curve
_PACE_WEIGHT, _CURVE_WEIGHT = 0.2, 0.04
# the same where the step before fitted, and had another number of rows
_SETTLED_PACE_WEIGHT, _SETTLED_CURVE_WEIGHT = 0.05, 0.3
_FITS = 0.15
_CALIBRATED = 20  # times that a measured point counts as
_HOST_WEIGHT = _SWITCH_WEIGHT = 0.1
_MOST_SWITCH = 0.5  # of a plain step
_OUTLIER = 2.0  # a time further off counts as this far off
_MAX_CELL_COST = 0.01
# from so many rows on ggml reads the cache by tiles (ggml-cpu/ops.cpp, GGML_FA_TILE_Q), and a row
# of them takes about half as long for it
_TILE_ROWS, _TILED = 64, 0.55
_READ_ROWS = 64  # rows of a batch that reads
_STEPS_PER_TABLE, _CELLS_PER_TABLE = 16, 64
# plain steps that are kept; those that are known near a context length, and what near is
_MOST_PLAIN, _FEWEST_PLAIN = 64, 8
_NEAR_CELLS, _NEAR_SHARE = 512, 0.25


@dataclass(slots=True)  # not frozen, which would cost: one is made in every step
class StepLoad:
    """What else a step carries: cached tokens, and other sequences with their drafts.

    A row reads ``num_cells`` cached tokens, the mean of all sequences; the sequence itself has
    ``num_own``. ``drafted`` tokens are expected to be drafted for the ``others``, ``accepted`` to
    stand.
    """

    num_cells: int = 0
    num_own: int = 0
    others: int = 0
    drafted: int = 0
    accepted: float = 0.0

    @classmethod
    def beside(
        cls, num_cells: int, num_own: int, expected: Sequence[tuple[float, float]]
    ) -> StepLoad:
        """With others of which so much is ``expected``: draft tokens, and those that stand."""
        drafted, accepted = sum(d for d, _ in expected), sum(a for _, a in expected)
        return cls(num_cells, num_own, len(expected), round(drafted), accepted)

    @property
    def rows(self) -> int:
        """Of the other sequences."""
        return self.others + self.drafted

    @property
    def tokens(self) -> float:
        """What the other sequences emit."""
        return self.others + self.accepted


ALONE = StepLoad()
"""One sequence whose text is of no account; shared, so not to be changed."""


@dataclass(slots=True)
class _Point:
    """Seconds of a decode behind an empty cache, at pace 1, and how often that was measured."""

    seconds: float
    weight: int

    def move(self, error: float, weight: float) -> None:
        """Follow the logarithm of measured / expected."""
        self.seconds *= math.exp(max(weight, 1 / (1 + self.weight)) * error)
        self.weight += 1


class StepCosts:
    """Seconds of a step by rows, cached cells and drafted tokens.

    A decode of n rows behind c cached cells takes ``pace * (curve(n) + cell_s * n * c)`` (for
    64 rows and more about half of that for the cells). The
    curve is measured at some row counts; between and beyond them the assumed one is bent to
    fit. ``pace`` is common to all and follows the machine's mood within a few steps, the curve
    changes slowly, but for a step that does not fit right after one of other rows that did. So
    a neighbour who slows everything down does not make drafts look cheap or dear, and row
    counts measured at different moments can be compared.
    """

    is_stated = False
    """True if no clock has a part in them."""

    def __init__(self, assumed: Mapping[int, float] = CPU_CURVE, cell_cost: float = 0.0) -> None:
        """``assumed`` is the curve's shape where nothing was measured; ``cell_cost`` what a
        cached cell adds to a row, in plain steps."""
        self._assumed_rows = np.array(list(assumed), np.float64)
        self._assumed_costs = np.array(list(assumed.values()))
        self._cell_cost = cell_cost
        self._curve: dict[int, _Point] = {}
        self._host_s = 0.0
        self._switch_s = 0.0
        self._drafters: dict[str, DraftTime] = {}
        self._plain: deque[tuple[int, float]] = deque(maxlen=_MOST_PLAIN)  # cells, seconds
        self._last_rows, self._last_error = 0, math.inf
        self._version = 0
        self._tables: dict[int, F64] = {}  # by cells, as of a version
        self._tables_version = 0
        self.pace = 1.0
        """How much slower the machine is now than when it was measured."""

    @property
    def is_measured(self) -> bool:
        return bool(self._curve)

    # learning

    def calibrate(self, seconds: Mapping[int, float]) -> None:
        """Believe these times of decodes by rows, behind an empty cache."""
        self._curve = {rows: _Point(value, _CALIBRATED) for rows, value in seconds.items()}
        self.pace = 1.0
        self._tables.clear()

    def observe_verify(self, num_rows: int, seconds: float, num_cells: int = 0) -> None:
        """Learn from a decode of ``num_rows`` rows of which each reads ``num_cells`` cells."""
        if num_rows == 1:
            self._plain.append((num_cells, seconds))
        if not self._curve:
            self.calibrate({num_rows: seconds})
            return
        self._version += 1
        point = self._curve.get(num_rows)
        if point is None:
            point = self._curve[num_rows] = _Point(float(self._curve_s(num_rows)), 0)
        cells_s = self._cell_s * num_cells * _reading_rows(num_rows)
        expected = point.seconds + cells_s
        ratio = seconds / (self.pace * expected)
        error = math.log(min(max(ratio, 1 / _OUTLIER), _OUTLIER))
        is_settled = num_rows != self._last_rows and abs(self._last_error) < _FITS
        self._last_rows, self._last_error = num_rows, error
        pace_weight = _SETTLED_PACE_WEIGHT if is_settled else _PACE_WEIGHT
        self.pace *= math.exp(pace_weight * error)
        share = cells_s / expected
        self._cell_cost *= math.exp(_CURVE_WEIGHT * share * error)
        self._cell_cost = min(self._cell_cost, _MAX_CELL_COST)
        weight = _SETTLED_CURVE_WEIGHT if is_settled else _CURVE_WEIGHT
        point.move((1 - share) * error, weight)

    def observe_switch(self, num_rows: int, seconds: float, num_cells: int = 0) -> None:
        """Learn from a step without drafts right after one with: it takes longer than others.

        llama.cpp keeps the graph of a decode for the next one of as many rows
        (llama-context.cpp, process_ubatch), and builds another one for any other.
        """
        if not self._curve:
            return
        usual_s = float(self.verify_s(0, num_cells=num_cells, other_rows=num_rows - 1)[0])
        usual_s -= self._host_s
        added_s = min(max(seconds / self.pace - usual_s, 0.0), _MOST_SWITCH * usual_s)
        self._switch_s += _SWITCH_WEIGHT * (added_s - self._switch_s)
        if num_rows == 1:
            self._plain.append((num_cells, seconds - self._switch_s * self.pace))

    def observe_host(self, seconds: float) -> None:
        """Learn what a step takes beside drafting and decoding."""
        seconds /= self.pace
        if self._host_s:
            seconds = min(seconds, 2 * _OUTLIER * self._host_s)
            self._host_s += _HOST_WEIGHT * (seconds - self._host_s)
        else:
            self._host_s = seconds

    def observe_draft(self, num_tokens: int, seconds: float, drafter: str = "") -> None:
        """Learn what a draft took, reading up on a longer piece of text apart."""
        if num_tokens:
            self._drafter(drafter).observe(num_tokens, seconds / self.pace)

    def observe_look(self, seconds: float, drafter: str = "") -> None:
        """Learn what a draft took that was made after a pause, reading up included."""
        self._drafter(drafter).observe_look(seconds / self.pace)

    def take_plain_steps(self, other: StepCosts) -> None:
        """Take over the times of plain steps: drafting in another way does not change them."""
        self._plain.extend(other._plain)

    def plain_s(self, num_cells: int) -> float | None:
        """Seconds of a plain step as it was lately: the median of those behind about as many cells.

        None until eight are known.
        """
        far = max(_NEAR_CELLS, _NEAR_SHARE * num_cells)
        near = [seconds for cells, seconds in self._plain if abs(cells - num_cells) <= far]
        if len(near) < _FEWEST_PLAIN:
            return None
        return median(near) + self._host_s * self.pace

    # asking; all at pace 1, which is the same for all lengths

    @property
    def switch_s(self) -> float:
        """Seconds that a step takes longer after one of another number of rows."""
        return self._switch_s

    def step_s(
        self, n_max: int, drafter: str = "", *, num_cells: int = 0, other_rows: int = 0
    ) -> F64:
        """Seconds of a step with 0..n_max tokens of ``drafter``, drafting included [n_max + 1].

        ``other_rows`` of other sequences are in the same batch.
        """
        seconds = self.verify_s(n_max, num_cells=num_cells, other_rows=other_rows)
        return seconds + self.draft_s(n_max, drafter)

    def verify_s(self, n_max: int, *, num_cells: int = 0, other_rows: int = 0) -> F64:
        """The same without drafting [n_max + 1]."""
        longest = other_rows + n_max + 1
        version, cells = self._version // _STEPS_PER_TABLE, num_cells // _CELLS_PER_TABLE
        if version != self._tables_version:
            self._tables.clear()
            self._tables_version = version
        table = self._tables.get(cells)
        if table is None or len(table) < longest:
            rows = np.arange(1, longest + 1)
            # fewer rows never cost more: what was timed beside a neighbour gives way
            curve = np.minimum.accumulate(self._curve_s(rows)[::-1])[::-1]
            reading_rows = rows * np.where(rows < _TILE_ROWS, 1.0, _TILED)
            table = curve + self._cell_s * num_cells * reading_rows + self._host_s
            self._tables[cells] = table
        return table[other_rows:longest]

    def draft_s(self, n_max: int, drafter: str, *, beside: int = 0) -> F64:
        """Seconds to draft 0..n_max tokens [n_max + 1]; 0 if nothing is known.

        ``beside`` tokens that are drafted for other sequences they are only what comes on top.
        """
        seconds = self._drafter(drafter).seconds(beside + n_max)
        return np.asarray(seconds[beside:] - seconds[beside])

    def token_s(self, drafter: str) -> float | None:
        """Seconds to draft one more token; None if nothing is known."""
        return self._drafter(drafter).token_s

    def read_s(self, drafter: str) -> float:
        """Seconds of a token that a drafter reads in a batch, by what the target gains so."""
        batch_s = self.verify_s(_READ_ROWS - 1)
        return float(self.draft_s(1, drafter)[1] * batch_s[-1] / batch_s[0]) / _READ_ROWS

    def look_s(self, num_tokens: int, drafter: str) -> float:
        """Seconds to draft ``num_tokens`` after a pause, reading up included."""
        times = self._drafter(drafter)
        return max(times.look_s, float(times.seconds(num_tokens)[-1]))

    # keeping

    def as_json(self) -> dict[str, object]:
        """What is worth keeping for another time."""
        return {
            "verify_s": {str(rows): point.seconds for rows, point in sorted(self._curve.items())},
            "cell_cost": self._cell_cost,
            "host_s": self._host_s,
            "switch_s": self._switch_s,
            "drafters": {name: time.as_json() for name, time in self._drafters.items()},
        }

    def restore(self, saved: Mapping[str, object]) -> None:
        """Take over what :meth:`as_json` gave.

        Raises:
            ValueError, TypeError, KeyError, AttributeError: it is something else.
        """
        curve = {int(rows): _positive(value) for rows, value in _items(saved["verify_s"])}
        if 1 not in curve or min(curve) < 1:
            raise ValueError("no time of a plain step")
        drafters = {name: DraftTime.restore(value) for name, value in _items(saved["drafters"])}
        cell_cost, host_s = float(str(saved["cell_cost"])), float(str(saved["host_s"]))
        switch_s = float(str(saved["switch_s"]))
        if not (0 <= cell_cost <= _MAX_CELL_COST and 0 <= max(host_s, switch_s) < curve[1]):
            raise ValueError("costs out of range")
        self.calibrate(curve)
        self._cell_cost, self._drafters = cell_cost, drafters
        self._host_s, self._switch_s = host_s, switch_s

    # inside

    @property
    def _cell_s(self) -> float:
        """Seconds that a cached cell adds to a row."""
        plain = self._curve.get(1)
        return self._cell_cost * (float(self._curve_s(1)) if plain is None else plain.seconds)

    def _drafter(self, name: str) -> DraftTime:
        times = self._drafters.get(name)
        if times is None:
            times = self._drafters[name] = DraftTime()
        return times

    def _curve_s(self, num_rows: int | NDArray[np.int64]) -> F64:
        """Seconds of a decode behind an empty cache.

        The assumed curve, scaled to what was measured; between two measured row counts the
        scale changes along a line.
        """
        known = sorted(self._curve)
        scales = [self._curve[rows].seconds for rows in known] / self._assumed(known)
        return np.asarray(np.interp(num_rows, known, scales) * self._assumed(num_rows))

    def _assumed(self, num_rows: int | list[int] | NDArray[np.int64]) -> F64:
        return np.asarray(np.interp(num_rows, self._assumed_rows, self._assumed_costs))


class StatedCosts(StepCosts):
    """Costs that no clock has a part in: they choose the same lengths on every machine."""

    is_stated = True

    def __init__(self, curve: Mapping[int, float], draft_costs: Mapping[str, float]) -> None:
        """``curve`` by rows and ``draft_costs`` of a token by drafter, in plain steps."""
        super().__init__(curve)
        self.calibrate(curve)
        for name, cost in draft_costs.items():
            self._drafter(name).observe(1, cost)

    def observe_verify(self, num_rows: int, seconds: float, num_cells: int = 0) -> None:
        pass

    def observe_switch(self, num_rows: int, seconds: float, num_cells: int = 0) -> None:
        pass

    def observe_host(self, seconds: float) -> None:
        pass

    def observe_draft(self, num_tokens: int, seconds: float, drafter: str = "") -> None:
        pass

    def observe_look(self, seconds: float, drafter: str = "") -> None:
        pass


def _reading_rows(num_rows: int) -> float:
    """How many single rows take as long to read the cache."""
    return num_rows if num_rows < _TILE_ROWS else _TILED * num_rows


def _items(saved: object) -> list[tuple[str, object]]:
    if not isinstance(saved, Mapping):
        raise TypeError("not an object")
    return list(saved.items())


def _positive(value: object) -> float:
    number = float(str(value))
    if not 0 < number < math.inf:
        raise ValueError("not a time")
    return number
