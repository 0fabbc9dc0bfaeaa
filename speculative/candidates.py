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

_MAX_ROWS = 32


@dataclass(frozen=True, slots=True, eq=False)
class Adjustments:
    """New logits for a few tokens of a row: ``token_ids`` [m] (unique), ``logits`` [m]."""

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
        ids = ids[~np.isin(ids, adjusted.token_ids)]
        logits = np.concatenate((row[ids].astype(np.float64), adjusted.logits))
        ids = np.concatenate((ids, adjusted.token_ids))
        logits, ids = logits[order := ids.argsort()], ids[order]
    order = (-logits).argsort(kind="stable")
    if np.isnan(logits[order[-1]]):
        order = order[::-1]
    order = order[:count]
    return ids[order], logits[order]


def require_finite(logit: float) -> None:
    """Refuse the best logit of a row that nothing can be drawn from."""
    if not math.isfinite(logit):
        raise EngineError("the model returned no usable logits (all infinite or not a number)")


def _largest(row: F32 | F64, count: int) -> I64:
    """The ids of the ``count`` largest entries, in no order; of equals the lowest ids.

    The k largest lie in the k blocks with the largest maxima. A block is a column of the row
    seen as a matrix, so that the maxima are one pass of vector instructions.
    """
    size = len(row)
    if count >= size:
        return np.arange(size)
    # a quarter of the columns at most may lead, else looking twice does not pay
    rows = min(_MAX_ROWS, size // (4 * count))
    if rows < 2:
        return _top(row, count)
    columns = size // rows
    whole = columns * rows
    maxima = row[:whole].reshape(rows, columns).max(axis=0)
    # all columns that tie for the last place, and their ids ascending
    leading = np.flatnonzero(~(maxima < _kth_largest(maxima, count)))
    ids = (np.arange(0, whole, columns)[:, None] + leading).ravel()
    if whole < size:
        ids = np.concatenate((ids, np.arange(whole, size)))
    return ids[_top(row[ids], count)]


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
