"""The best tokens of a row, by partial selection: no path sorts or copies a vocabulary."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.errors import EngineError

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

_MAX_ROWS = 128


@dataclass(frozen=True, slots=True, eq=False)
class Adjustments:
    """New logits for a few tokens of a row: ``token_ids`` [m] (ascending), ``logits`` [m]."""

    token_ids: I64
    logits: F64


def best(row: F32 | F64, count: int, adjusted: Adjustments | None = None) -> tuple[I64, F64]:
    """The ``count`` largest logits of ``row``, largest first, equal ones by token id.

    A NaN counts as the largest, so that no caller can miss it.
    With ``adjusted`` the few changed logits stand in for the row's own: the best of the rest
    are among the ``count + m`` best of the row, so the row itself stays untouched.

    Returns:
        token ids [count] and float64 logits [count].
    """
    if adjusted is None:
        ids = _largest(row, count)
        logits = row[ids].astype(np.float64)
    else:
        ids = _largest(row, count + len(adjusted.token_ids))
        others = adjusted.token_ids
        ids = ids[others[np.minimum(others.searchsorted(ids), len(others) - 1)] != ids]
        logits = np.concatenate((row[ids].astype(np.float64), adjusted.logits))
        ids = np.concatenate((ids, adjusted.token_ids))
        logits, ids = logits[order := ids.argsort()], ids[order]
    order = (-logits).argsort(kind="stable")
    if math.isnan(logits[order[-1]]):
        order = order[::-1]
    order = order[:count]
    return ids[order], logits[order]


def require_finite(logit: float) -> None:
    """Refuse the best logit of a row that nothing can be drawn from."""
    if not math.isfinite(logit):
        raise EngineError("the model returned no usable logits (all infinite or not a number)")


def _largest(row: F32 | F64, count: int) -> I64:
    """The ids of the ``count`` largest entries and perhaps a few more, ascending.

    The k largest are at least the k-th largest maximum of any blocks. A block is a column of the
    row seen as a matrix, so that the maxima are one pass of vector instructions.
    """
    size = len(row)
    if count >= size:
        return np.arange(size)
    # with few columns for each that is wanted, too many others would reach the edge
    rows = min(_MAX_ROWS, size // (4 * count))
    if rows >= 2:
        columns = size // rows
        maxima = row[: rows * columns].reshape(rows, columns).max(axis=0)
        maxima.sort()
        # every comparison with a NaN is false: none is left out
        ids: I64 = (~(row < maxima[-count])).nonzero()[0]
        if len(ids) <= 4 * count:
            return ids
    return _top(row, count)


def _top(values: F32 | F64, count: int) -> I64:
    """The places of the ``count`` largest values; of equals the first.

    Every comparison with a NaN is false: where the edge is one, all places are returned.
    """
    edge = _kth_largest(values, count)
    above = np.flatnonzero(~(values <= edge))
    level = np.flatnonzero(values == edge)
    return np.concatenate((above, level[: max(count - len(above), 0)]))


def _kth_largest(values: F32 | F64, count: int) -> np.floating:
    place = len(values) - count
    largest: np.floating = np.partition(values, place)[place]
    return largest
