"""The random numbers of a generation: addressed by token, independent, reproducible."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from outrider.speculative.uniforms import Uniforms, fresh_seed

COUNT = 5000


def _streams(seed: int, count: int = COUNT) -> list[list[float]]:
    uniforms = Uniforms(seed)
    return [
        [uniforms.target(i) for i in range(count)],
        [uniforms.acceptance(i) for i in range(count)],
        [uniforms.proposal() for _ in range(count)],
    ]


def _is_uniform(numbers: Sequence[float]) -> bool:
    """Kolmogorov and Smirnov: the largest distance to the law of [0, 1), at level 0.001."""
    ordered, count = np.sort(numbers), len(numbers)
    steps = np.arange(count + 1) / count
    distance = max((steps[1:] - ordered).max(), (ordered - steps[:-1]).max())
    return bool(distance * math.sqrt(count) < 1.95)


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1])
def test_each_stream_is_uniform(seed: int) -> None:
    for numbers in _streams(seed):
        assert min(numbers) >= 0
        assert max(numbers) < 1
        assert _is_uniform(numbers)


def test_the_same_seed_gives_the_same_numbers_in_any_order() -> None:
    target, acceptance, proposals = _streams(7)
    again = Uniforms(7)
    order = np.random.default_rng(0).permutation(COUNT).tolist()
    assert [again.acceptance(i) for i in order] == [acceptance[i] for i in order]
    assert [again.target(i) for i in order] == [target[i] for i in order]
    # asked twice, nothing moves; proposals go on where they were
    assert again.target(1023) == target[1023] != target[1024] == again.target(1024)
    assert [again.proposal() for _ in range(COUNT)] == proposals


def test_proposals_shift_nothing() -> None:
    uniforms, other = Uniforms(3), Uniforms(3)
    for _ in range(10):
        other.proposal()
    assert [uniforms.target(i) for i in range(50)] == [other.target(i) for i in range(50)]
    assert [uniforms.acceptance(i) for i in range(50)] == [other.acceptance(i) for i in range(50)]


def test_no_number_is_used_twice() -> None:
    """Within a stream, between streams, between seeds."""
    numbers = [number for seed in (1, 2) for stream in _streams(seed) for number in stream]
    assert len(set(numbers)) == 6 * COUNT


def test_streams_and_seeds_are_not_correlated() -> None:
    """Also not one place on: a draft must not foretell the coin that judges it."""
    streams = [np.array(stream) for seed in (1, 2) for stream in _streams(seed)]
    for lag in (0, 1, 2):
        for i, one in enumerate(streams):
            for other in streams[i + (lag == 0) :]:
                r = np.corrcoef(one[: COUNT - lag], other[lag:])[0, 1]
                assert abs(r) * math.sqrt(COUNT) < 4


def test_a_fresh_seed_is_one_that_a_flag_takes() -> None:
    seeds = {fresh_seed() for _ in range(20)}
    assert len(seeds) > 1
    assert all(0 <= seed < 2**32 for seed in seeds)
