"""The best tokens of a row, by partial selection: no path sorts or copies a vocabulary."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

_MAX_ROWS = 32


@dataclass(frozen=True, slots=True, eq=False)
class Adjustments:
    """New logits for a few tokens of a row: ``token_ids`` [m] (unique), ``logits`` [m]."""

    token_ids: I64
    logits: F64


def best(row: F32, count: int, adjusted: Adjustments | None = None) -> tuple[I64, F64]:
    """The ``count`` largest logits of ``row``, largest first, equal ones by token id.

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
    order = np.lexsort((ids, -logits))[:count]
    return ids[order], logits[order]


def _largest(row: F32, count: int) -> I64:
    """The ids of the ``count`` largest entries, in no order.

    The k largest lie in the k blocks with the largest maxima. A block is a column of the row
    seen as a matrix, so that the maxima are one pass of vector instructions.
    """
    size = len(row)
    if count >= size:
        return np.arange(size)
    # a quarter of the columns at most may lead, else looking twice does not pay
    rows = min(_MAX_ROWS, size // (4 * count))
    if rows < 2:
        return np.argpartition(row, size - count)[size - count :]
    columns = size // rows
    whole = columns * rows
    maxima = row[:whole].reshape(rows, columns).max(axis=0)
    leading = np.argpartition(maxima, columns - count)[columns - count :]
    ids = (np.arange(0, whole, columns)[:, None] + leading).ravel()
    if whole < size:
        ids = np.concatenate((ids, np.arange(whole, size)))
    kept = np.argpartition(row[ids], len(ids) - count)[len(ids) - count :]
    return np.asarray(ids[kept], np.int64)
