"""Partial selection against a full sort."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tools.properties import PROPERTY

from outrider.speculative.candidates import Adjustments, best

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

SIZES = (1, 2, 31, 63, 64, 65, 511, 4099, 49152, 300_000)
COUNTS = (1, 2, 10, 40, 256, 1024, 2048)


def _sorted(row: F32, count: int, adjusted: Adjustments | None = None) -> tuple[I64, F64]:
    logits = row.astype(np.float64)
    if adjusted is not None:
        logits[adjusted.token_ids] = adjusted.logits
    order = np.lexsort((np.arange(len(row)), -logits))[:count]
    return order, logits[order]


def _check(row: F32, count: int, adjusted: Adjustments | None = None) -> None:
    ids, logits = best(row, count, adjusted)
    expected_ids, expected_logits = _sorted(row, count, adjusted)
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_array_equal(logits, expected_logits)
    assert logits.dtype == np.float64


def _row(kind: str, size: int) -> F32:
    generator = np.random.default_rng(size)
    row = (3 * generator.standard_normal(size)).astype(np.float32)
    if kind == "ties":
        row = np.round(row)
    elif kind == "masked":
        row[generator.random(size) < 0.999] = -np.inf
    elif kind == "ascending":
        row.sort()
    elif kind == "descending":
        row = -np.sort(row)
    elif kind == "equal":
        row[:] = 1.5
    row.flags.writeable = False
    return row


@pytest.mark.parametrize("kind", ["normal", "ties", "masked", "ascending", "descending", "equal"])
@pytest.mark.parametrize("size", SIZES)
def test_best_is_the_head_of_a_full_sort(size: int, kind: str) -> None:
    row = _row(kind, size)
    order, logits = _sorted(row, max(COUNTS))
    for count in COUNTS:
        ids, best_logits = best(row, count)
        np.testing.assert_array_equal(ids, order[:count])
        np.testing.assert_array_equal(best_logits, logits[:count])


@pytest.mark.parametrize("kind", ["normal", "ties", "masked", "equal"])
@pytest.mark.parametrize("size", [64, 4099, 262144])
def test_best_with_adjusted_logits(size: int, kind: str) -> None:
    """The best become the worst, the worst the best, and some change a little."""
    row = _row(kind, size)
    order = np.argsort(row)
    changed = np.concatenate((order[-20:], order[:20], order[size // 2 :][:3]))
    new = np.concatenate((np.full(20, -np.inf), np.linspace(-1, 12, 20), np.zeros(3)))
    ids, first = np.unique(changed, return_index=True)
    adjusted = Adjustments(ids, new[first])
    for count in COUNTS:
        _check(row, count, adjusted)


@pytest.mark.parametrize("size", [4096, 49152, 262144])
@pytest.mark.parametrize("stride", [1, 7, 128, 1536, 8192])
def test_the_best_may_stand_anywhere(size: int, stride: int) -> None:
    """Neighbours, or far apart: whatever is taken for a block can hold all of them."""
    row = np.zeros(size, np.float32)
    places = (3 + stride * np.arange(40)) % size
    row[places] = np.linspace(1, 2, 40)
    _check(row, 40)
    _check(row, 20)


@st.composite
def _cases(draw: st.DrawFn) -> tuple[F32, int, Adjustments | None]:
    logit = st.sampled_from([-np.inf, -1.0, -0.0, 0.0, 0.5, 1.0, 2.0])
    values = draw(st.lists(logit, min_size=1, max_size=200))
    count = draw(st.integers(1, len(values) + 5))
    changed = draw(st.dictionaries(st.integers(0, len(values) - 1), logit, max_size=6))
    if not changed:
        return np.array(values, np.float32), count, None
    ids = sorted(changed)
    adjusted = Adjustments(np.array(ids), np.array([changed[token] for token in ids]))
    return np.array(values, np.float32), count, adjusted


@PROPERTY
@given(_cases())
def test_equal_logits_come_by_token_id(case: tuple[F32, int, Adjustments | None]) -> None:
    _check(*case)


def test_lists_of_float64_lose_no_bit() -> None:
    """Two logits that are equal as float32."""
    row = np.full(5000, -1.0)
    row[[40, 4000]] = 1.0, 1.0 + 1e-12
    ids, logits = best(row, 2)
    assert ids.tolist() == [4000, 40]
    assert logits.tolist() == [1.0 + 1e-12, 1.0]
