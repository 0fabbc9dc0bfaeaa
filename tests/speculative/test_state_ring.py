"""The ring of hidden states against a dictionary that forgets by the same rules."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.properties import PROPERTY

from outrider.speculative.drafters.state_ring import RING_ROWS, StateRing

SIZE = 8
WIDTHS = (2, 3)


class Known:
    """Row numbers by position: those after a write and before a gap are not known any more."""

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}

    def write(self, start: int, numbers: list[int]) -> None:
        goes_on = start - 1 in self.rows
        self.rows = {p: row for p, row in self.rows.items() if goes_on and p < start}
        self.rows |= {start + i: number for i, number in enumerate(numbers)}
        newest = max(self.rows)
        self.rows = {p: row for p, row in self.rows.items() if p > newest - SIZE}


def _taps(numbers: list[int]) -> list[np.ndarray]:
    """Rows that tell their number in every place."""
    rows = np.array(numbers, np.float32)[:, None]
    return [rows + np.arange(width, dtype=np.float32) / 8 for width in WIDTHS]


writes = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 12)), min_size=1, max_size=30)


@given(writes=writes)
@PROPERTY
def test_the_newest_row_of_each_position_in_one_unbroken_range(
    writes: list[tuple[int, int]],
) -> None:
    ring, known, number = StateRing(sum(WIDTHS), SIZE), Known(), 0
    for start, count in writes:
        numbers = list(range(number, number + count))
        number += count
        ring.write(start, _taps(numbers))
        known.write(start, numbers)
        assert list(range(ring.first, ring.end)) == sorted(known.rows)
        expected = [known.rows[position] for position in range(ring.first, ring.end)]
        np.testing.assert_array_equal(
            ring.read(ring.first, ring.end), np.concatenate(_taps(expected), axis=1)
        )
        middle = (ring.first + ring.end) // 2
        np.testing.assert_array_equal(
            ring.read(middle, ring.end), ring.read(ring.first, ring.end)[middle - ring.first :]
        )


def test_a_copy_is_read() -> None:
    ring = StateRing(1, SIZE)
    ring.write(0, [np.ones((4, 1), np.float32)])
    rows = ring.read(0, 4)
    ring.write(2, [np.full((2, 1), 9, np.float32)])
    assert rows.tolist() == [[1], [1], [1], [1]]
    assert ring.read(0, 4).tolist() == [[1], [1], [9], [9]]


def test_a_rejected_tail_is_written_over() -> None:
    ring = StateRing(1, SIZE)
    ring.write(0, [np.arange(6, dtype=np.float32)[:, None]])
    ring.write(3, [np.array([[30.0]], np.float32)])
    # what stood after it was another text
    assert (ring.first, ring.end) == (0, 4)
    assert ring.read(0, 4)[:, 0].tolist() == [0, 1, 2, 30]


@pytest.mark.parametrize(("start", "end"), [(-1, 2), (2, 5), (3, 2)])
def test_only_what_is_there_can_be_read(start: int, end: int) -> None:
    ring = StateRing(1, SIZE)
    ring.write(0, [np.zeros((4, 1), np.float32)])
    with pytest.raises(AssertionError):
        ring.read(start, end)


def test_it_holds_as_many_rows_as_the_design_says() -> None:
    ring = StateRing(1)
    ring.write(0, [np.arange(2 * RING_ROWS, dtype=np.float32)[:, None]])
    assert RING_ROWS == 512
    assert (ring.first, ring.end) == (512, 1024)
    assert ring.read(512, 1024)[:, 0].tolist() == list(range(512, 1024))
