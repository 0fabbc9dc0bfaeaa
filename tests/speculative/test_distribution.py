"""The sparse law: draws, residuals and look-ups, against plain arithmetic."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.properties import PROPERTY

from outrider.speculative.distribution import Distribution

LARGEST_UNIFORM = 1 - 2**-53

weights = st.lists(st.integers(0, 9), min_size=1, max_size=12).filter(any)
uniforms = st.floats(0, LARGEST_UNIFORM)


def _law(weights: list[int], seed: int = 0) -> Distribution:
    """A law of shuffled token ids whose probabilities are ``weights`` over their sum."""
    ids = np.random.default_rng(seed).permutation(50)[: len(weights)]
    return Distribution(ids, np.array(weights) / sum(weights))


def _as_dict(law: Distribution) -> dict[int, float]:
    return dict(zip(law.token_ids.tolist(), law.probs.tolist(), strict=True))


def _random_law(generator: np.random.Generator) -> Distribution:
    """A point, a few tokens with zeros among them, or a support that differs from the others'."""
    count = int(generator.choice([1, 2, 5, 12]))
    ids = generator.permutation(16)[:count]
    probs = generator.random(count) ** 4
    probs[1:][generator.random(count - 1) < 0.3] = 0
    probs[0] += 1e-3
    return Distribution(ids, probs / probs.sum())


@PROPERTY
@given(weights, st.integers(0, 5))
def test_evenly_spread_uniforms_draw_each_token_as_often_as_its_weight(
    weights: list[int], seed: int
) -> None:
    law, total = _law(weights, seed), sum(weights)
    drawn = Counter(law.draw((j + 0.5) / total) for j in range(total))
    assert drawn == +Counter(dict(zip(law.token_ids.tolist(), weights, strict=True)))


@PROPERTY
@given(weights, uniforms, st.integers(0, 5))
def test_a_token_of_probability_zero_is_never_drawn(
    weights: list[int], uniform: float, seed: int
) -> None:
    law = _law(weights, seed)
    for u in (uniform, 0.0, LARGEST_UNIFORM):
        assert _as_dict(law)[law.draw(u)] > 0


def test_the_ends_of_the_uniform_draw_the_ends_of_the_support() -> None:
    law = Distribution(np.array([4, 9, 2, 7, 5]), np.array([0, 0.25, 0.5, 0.25, 0]))
    assert law.draw(0.0) == 9
    assert law.draw(LARGEST_UNIFORM) == 7
    # what rounding could reach: past the last edge
    assert law.draw(1.0) == 7
    assert Distribution.point(3).draw(LARGEST_UNIFORM) == 3


def test_an_edge_belongs_to_the_token_above_it() -> None:
    law = Distribution(np.array([1, 2]), np.array([0.25, 0.75]))
    assert law.draw(math.nextafter(0.25, 0)) == 1
    assert law.draw(0.25) == 2


def test_mode_is_the_first_of_equals() -> None:
    assert Distribution(np.array([8, 3, 5]), np.array([0.2, 0.4, 0.4])).mode == 3


def test_softmax_of_given_logits() -> None:
    law = Distribution.softmax(np.array([6, 1, 4, 2]), np.array([800.0, 799.0, -np.inf, 798.5]))
    total = math.fsum([1, math.exp(-1), math.exp(-1.5)])
    expected = [1 / total, math.exp(-1) / total, 0, math.exp(-1.5) / total]
    assert law.token_ids.tolist() == [6, 1, 4, 2]
    assert law.probs.tolist() == pytest.approx(expected, abs=1e-15)
    assert law.probs.sum() == pytest.approx(1, abs=1e-15)


@PROPERTY
@given(weights, st.lists(st.integers(-3, 60), max_size=20), st.integers(0, 5))
def test_look_ups(weights: list[int], wanted: list[int], seed: int) -> None:
    law = _law(weights, seed)
    known = _as_dict(law)
    expected = [known.get(token, 0.0) for token in wanted]
    assert law.probs_of(np.array(wanted, np.int64)).tolist() == expected
    assert [law.prob(token) for token in wanted] == expected
    assert len(law) == len(weights)


def test_accepted_and_recovered_make_the_target() -> None:
    """min(p, q) + (1 - sum of min) * residual = p, for thousands of pairs."""
    generator = np.random.default_rng(20)
    ids = np.arange(16)
    for _ in range(4000):
        target, proposed = _random_law(generator), _random_law(generator)
        p, q = target.probs_of(ids), proposed.probs_of(ids)
        accepted = np.minimum(p, q)
        residual = target.residual(proposed)
        emitted = accepted + (1 - accepted.sum()) * residual.probs_of(ids)
        np.testing.assert_allclose(emitted, p, rtol=0, atol=1e-12)
        assert residual.probs.sum() == pytest.approx(1, abs=1e-12)


def test_residual_worked_by_hand() -> None:
    target = Distribution(np.array([3, 1, 2]), np.array([0.5, 0.3, 0.2]))
    proposed = Distribution(np.array([1, 4, 3]), np.array([0.4, 0.35, 0.25]))
    # 3: 0.25, 1: 0, 2: 0.2 of 0.45
    residual = target.residual(proposed)
    assert residual.token_ids.tolist() == [3, 2]
    assert residual.probs.tolist() == pytest.approx([0.25 / 0.45, 0.2 / 0.45], abs=1e-15)


def test_residual_of_a_deterministic_draft_is_the_rest() -> None:
    target = Distribution(np.array([3, 1, 2]), np.array([0.5, 0.3, 0.2]))
    residual = target.residual(Distribution.point(3))
    assert residual.token_ids.tolist() == [1, 2]
    assert residual.probs.tolist() == pytest.approx([0.6, 0.4], abs=1e-15)


def test_residual_of_disjoint_supports_is_the_target() -> None:
    target = Distribution(np.array([3, 1]), np.array([0.75, 0.25]))
    residual = target.residual(Distribution(np.array([2, 0]), np.array([0.5, 0.5])))
    assert _as_dict(residual) == _as_dict(target)


@pytest.mark.parametrize("noise", [0.0, 2e-16, -2e-16])
def test_residual_of_equal_laws_is_the_target(noise: float) -> None:
    """Rounding leaves a speck that would otherwise become the whole law."""
    target = Distribution(np.array([3, 1, 2]), np.array([0.5, 0.3, 0.2]))
    proposed = Distribution(np.array([2, 3, 1]), np.array([0.2, 0.5 - noise, 0.3 + noise]))
    assert _as_dict(target.residual(proposed)) == _as_dict(target)
