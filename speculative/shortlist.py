"""The tokens still in the running: a whole row at first, a short list in the end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.candidates import Adjustments, best, require_finite
from outrider.speculative.distribution import Distribution

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


@dataclass(slots=True, eq=False)
class Ranked:
    """Candidates as a list, best first; none is masked.

    Their law is that of ``logits / temp``. ``size`` is the length of llama.cpp's list, which
    keeps masked tokens too.
    """

    token_ids: I64
    logits: F64
    size: int
    temp: float

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def top(self) -> float:
        """The best logit."""
        return float(self.logits[0])

    def exponents(self) -> F64:
        """The logarithms of the weights: 0 for the best."""
        exponents: F64 = self.logits - self.logits[0]
        return exponents if self.temp == 1 else exponents / self.temp

    def weights(self) -> F64:
        """The law up to a factor: 1 for the best."""
        exponents = self.exponents()
        return np.exp(exponents, out=exponents)

    def law(self) -> Distribution:
        weights = self.weights()
        return Distribution(self.token_ids, weights / weights.sum())

    def head(self, count: int) -> Ranked:
        """The ``count`` best."""
        size = min(count, self.size)
        return Ranked(self.token_ids[:count], self.logits[:count], size, self.temp)

    def tail(self, start: int) -> Ranked:
        """Without the ``start`` best."""
        size = self.size - start
        return Ranked(self.token_ids[start:], self.logits[start:], size, self.temp)

    def at_least(self, floor: float) -> Ranked:
        """Those with at least this logit."""
        return self.head(int((-self.logits).searchsorted(-floor, side="right")))

    def at(self, places: I64) -> Ranked:
        """Those at ``places`` (ascending)."""
        return Ranked(self.token_ids[places], self.logits[places], len(places), self.temp)

    def heated(self, temp: float) -> Ranked:
        """The same with all logits divided by ``temp``."""
        return Ranked(self.token_ids, self.logits, self.size, self.temp * temp)

    def by_id(self) -> Unranked:
        """The same by token id, where logits can be changed."""
        order = self.token_ids.argsort()
        return Unranked(self.logits[order], self.token_ids[order], None, self.size, self.temp)


@dataclass(slots=True, eq=False)
class Unranked:
    """Candidates by token id: a whole row, which is not copied, or what is left of one.

    ``token_ids`` None: the place is the token id. ``adjusted`` stands in for some of the
    ``logits``, by their place. For the rest see :class:`Ranked`.
    """

    logits: F32 | F64
    token_ids: I64 | None
    adjusted: Adjustments | None
    size: int
    temp: float = 1.0

    @classmethod
    def of(cls, row: F32) -> Unranked:
        """All tokens of a row of logits."""
        return cls(row, None, None, len(row))

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def top(self) -> float:
        """The best logit.

        Raises:
            EngineError: no logit is finite, or one is not a number.
        """
        if self.adjusted is None:
            logit = float(self.logits.max())
        else:
            logit = float(best(self.logits, 1, self.adjusted)[1][0])
        require_finite(logit)
        return logit

    def values(self) -> F64:
        """A copy of the logits, the adjusted ones among them."""
        values = self.logits.astype(np.float64)
        if self.adjusted is not None:
            values[self.adjusted.token_ids] = self.adjusted.logits
        return values

    def exponents(self) -> F64:
        """The logarithms of the weights: 0 for the best."""
        exponents = self.values()
        exponents -= self.top
        if self.temp != 1:
            exponents /= self.temp
        return exponents

    def weights(self) -> F64:
        """The law up to a factor: 1 for the best."""
        exponents = self.exponents()
        return np.exp(exponents, out=exponents)

    def law(self) -> Distribution:
        weights = self.weights()
        ids = np.arange(len(self)) if self.token_ids is None else self.token_ids
        return Distribution(ids, weights / weights.sum())

    def head(self, count: int) -> Ranked:
        """The ``count`` best.

        Raises:
            EngineError: no logit is finite, or one is not a number.
        """
        places, logits = best(self.logits, count, self.adjusted)
        require_finite(logits[0])
        if logits[-1] == -math.inf:
            num_finite = int((-logits).searchsorted(math.inf))
            places, logits = places[:num_finite], logits[:num_finite]
        return Ranked(self._ids(places), logits, min(count, self.size), self.temp)

    def at_least(self, floor: float) -> Unranked:
        """Those with at least this logit."""
        edge = _ceil_float32(floor) if self.logits.dtype == np.float32 else floor
        places = np.flatnonzero(self.logits >= edge)
        logits = self.logits[places].astype(np.float64)
        adjusted = self.adjusted
        if adjusted is not None:
            others = ~np.isin(places, adjusted.token_ids)
            above = adjusted.logits >= floor
            places = np.concatenate((places[others], adjusted.token_ids[above]))
            logits = np.concatenate((logits[others], adjusted.logits[above]))
            order = places.argsort()
            places, logits = places[order], logits[order]
        return Unranked(logits, self._ids(places), None, len(places), self.temp)

    def at(self, places: I64) -> Unranked:
        """Those at ``places`` (ascending)."""
        logits, ids = self.values()[places], self._ids(places)
        return Unranked(logits, ids, None, len(places), self.temp)

    def heated(self, temp: float) -> Unranked:
        """The same with all logits divided by ``temp``."""
        heat = self.temp * temp
        return Unranked(self.logits, self.token_ids, self.adjusted, self.size, heat)

    def by_id(self) -> Unranked:
        return self

    def find(self, token_ids: I64) -> tuple[I64 | slice, I64]:
        """Which of ``token_ids`` (ascending) are in the running, and their places."""
        if self.token_ids is None:
            # a drafter's vocabulary may be shorter than the target's
            known = slice(int(token_ids.searchsorted(len(self))))
            return known, token_ids[known]
        places = self.token_ids.searchsorted(token_ids)
        places = np.minimum(places, len(self) - 1)
        found = np.flatnonzero(self.token_ids[places] == token_ids)
        return found, places[found]

    def logits_at(self, places: I64) -> F64:
        """The logits at ``places`` (ascending), after the temperature."""
        logits = self.logits[places].astype(np.float64)
        adjusted = self.adjusted
        if adjusted is not None and len(places):
            at = np.minimum(places.searchsorted(adjusted.token_ids), len(places) - 1)
            same = places[at] == adjusted.token_ids
            logits[at[same]] = adjusted.logits[same]
        return logits / self.temp

    def with_logits(self, places: I64, logits: F64) -> Unranked:
        """The same with other logits, after the temperature, at ``places`` (ascending)."""
        if not len(places):
            return self
        logits, before = logits * self.temp, self.adjusted
        if before is not None:
            merged = np.union1d(before.token_ids, places)
            values = np.empty(len(merged))
            values[merged.searchsorted(before.token_ids)] = before.logits
            values[merged.searchsorted(places)] = logits
            places, logits = merged, values
        adjusted = Adjustments(places, logits)
        return Unranked(self.logits, self.token_ids, adjusted, self.size, self.temp)

    def _ids(self, places: I64) -> I64:
        return places if self.token_ids is None else self.token_ids[places]


Candidates = Ranked | Unranked
"""What a chain has left of a row. Every stage makes new ones; the row is never changed."""


class LogitBias:
    """llama.cpp's first stage: what is added to some logits."""

    def __init__(self, bias: Mapping[int, float]) -> None:
        self._ids = np.array(sorted(bias), np.int64)
        self._bias = np.array([bias[int(token)] for token in self._ids])

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def only_lowers(self) -> bool:
        """True if no token becomes more likely."""
        return bool((self._bias <= 0).all())

    def candidates(self, row: F32) -> Unranked:
        """All tokens of a row, biased."""
        candidates = Unranked.of(row)
        if not len(self):
            return candidates
        found, places = candidates.find(self._ids)
        return candidates.with_logits(places, row[places] + self._bias[found])


def _ceil_float32(value: float) -> np.float32:
    """The smallest float32 not below ``value``: comparing with it is exact for float32 rows."""
    rounded = np.float32(value)
    return rounded if float(rounded) >= value else np.nextafter(rounded, np.float32(np.inf))
