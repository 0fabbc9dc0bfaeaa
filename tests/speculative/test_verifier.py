"""The law: whatever is drafted, what is emitted follows the target.

Exactly: the chance to emit each token, from the edges of the uniforms at which verify() answers
otherwise. Then the rules one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from tools.draft_law import draft_law
from tools.plain_laws import Law, as_dict, never
from tools.toy_runner import ToyRunner

from outrider.speculative.distribution import Distribution
from outrider.speculative.drafters.model_drafter import ModelDrafter
from outrider.speculative.engine import Engine
from outrider.speculative.errors import InputError
from outrider.speculative.proposal import DraftRequest, Proposal, Verdict
from outrider.speculative.settings import (
    DrafterSettings,
    EngineSettings,
    ModelSettings,
    SamplingSettings,
    SpeculationSettings,
)
from outrider.speculative.statistics import Rule
from outrider.speculative.uniforms import Coins, Uniforms
from outrider.speculative.verifier import verify

BELOW_ONE = 1 - 2**-53
LENIENT = 1e-12


class Scripted(Uniforms):
    """The given uniforms for every index; it notes which were asked for."""

    def __init__(self, target: float = 0.0, acceptance: float = 0.0) -> None:
        super().__init__(0)
        self.asked: list[tuple[str, int]] = []
        self._target, self._acceptance = target, acceptance

    def target(self, index: int) -> float:
        self.asked.append(("target", index))
        return self._target

    def acceptance(self, index: int) -> float:
        self.asked.append(("acceptance", index))
        return self._acceptance


class Targets:
    """Target laws by position; it notes which were asked for."""

    def __init__(self, *laws: Distribution) -> None:
        self.asked: list[int] = []
        self._laws = laws

    def __call__(self, position: int) -> Distribution:
        self.asked.append(position)
        return self._laws[position]


def _law(probs: Mapping[int, float]) -> Distribution:
    return Distribution(np.array(list(probs)), np.array(list(probs.values()), np.float64))


def _one(
    token: int,
    target: Distribution,
    proposed: Distribution | None,
    rule: Rule,
    coins: tuple[float, float],
) -> int:
    """The token emitted first for a draft of one token; ``coins``: acceptance, target."""
    proposal = Proposal((token,), None if proposed is None else (proposed,))
    uniforms = Scripted(coins[1], coins[0])
    verdict = verify(
        proposal, Targets(target, Distribution.point(99)), Coins(uniforms, 0), rule, never
    )
    if verdict.num_accepted:
        return token
    assert verdict.next_token is not None
    return verdict.next_token


# exactly


def _edge(is_below: Callable[[float], bool]) -> float:
    """The uniform at which ``is_below`` turns false, to the last bit that matters."""
    if is_below(BELOW_ONE):
        return 1.0
    low, high = 0.0, 1.0
    if not is_below(low):
        return 0.0
    while high - low > 2**-52:
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return (low + high) / 2


def _shares(draw: Callable[[float], int], low: float = 0.0, high: float = BELOW_ONE) -> Law:
    """How much of the uniform gives each token; equal ends mean equal between."""
    first, last = draw(low), draw(high)
    if first == last or high - low < 2**-50:
        return {first: high - low}
    middle = (low + high) / 2
    shares = _shares(draw, low, middle)
    for token, share in _shares(draw, middle, high).items():
        shares[token] = shares.get(token, 0.0) + share
    return shares


def _emitted_law(
    target: Distribution, proposed: Distribution, keeps: Callable[[int], bool] | None = None
) -> Law:
    """The law of the token emitted when x is drawn from ``proposed`` and verified by rejection.

    Nothing of verify() is assumed but that it accepts below some acceptance uniform. A draft
    token that ``keeps`` refuses is dropped before verification: the target draws by itself.
    """
    emitted: Law = {}

    def add(token: int, chance: float) -> None:
        emitted[token] = emitted.get(token, 0.0) + chance

    for token, drafted in as_dict(proposed).items():
        if drafted == 0:
            continue
        if keeps is not None and not keeps(token):
            for own, prob in as_dict(target).items():
                add(own, drafted * prob)
            continue
        accepted = _acceptance_chance(token, target, proposed)
        add(token, drafted * accepted)
        if accepted < 1:
            recovered = _recovered_law(token, target, proposed, (1 + accepted) / 2)
            for other, share in recovered.items():
                add(other, drafted * (1 - accepted) * share)
    return emitted


def _acceptance_chance(token: int, target: Distribution, proposed: Distribution) -> float:
    """The acceptance uniform from which on ``token`` does not stand."""
    return _edge(lambda u: _stands(token, target, proposed, u))


def _stands(token: int, target: Distribution, proposed: Distribution, uniform: float) -> bool:
    proposal, coins = Proposal((token,), (proposed,)), Coins(Scripted(0.5, uniform), 0)
    verdict = verify(proposal, Targets(target, target), coins, "rejection", never)
    return verdict.num_accepted == 1


def _recovered_law(
    token: int, target: Distribution, proposed: Distribution, acceptance: float
) -> Law:
    """The law of what replaces ``token`` when it is rejected at ``acceptance``."""
    return _shares(lambda u: _one(token, target, proposed, "rejection", (acceptance, u)))


def _random_law(generator: np.random.Generator) -> Distribution:
    """A point, or some of eight tokens with zeros among them."""
    count = int(generator.choice([1, 2, 3, 5]))
    probs = generator.random(count) ** 3
    probs[1:][generator.random(count - 1) < 0.2] = 0
    probs[0] += 1e-3
    return Distribution(generator.permutation(8)[:count], probs / probs.sum())


def _pairs(seed: int, count: int) -> list[tuple[Distribution, Distribution]]:
    """Random pairs, equal and disjoint ones and truncations of each other among them."""
    generator = np.random.default_rng(seed)
    pairs = [(_random_law(generator), _random_law(generator)) for _ in range(count)]
    for i in range(0, count, 7):
        target = pairs[i][0]
        kept = target.probs >= np.median(target.probs)
        head = Distribution(target.token_ids[kept], target.probs[kept] / target.probs[kept].sum())
        moved = Distribution(target.token_ids + 8, target.probs)
        pairs[i] = [(target, target), (target, head), (head, target), (target, moved)][i % 4]
    return pairs


def _assert_law(actual: Law, expected: Law) -> None:
    for token in actual.keys() | expected.keys():
        assert actual.get(token, 0.0) == pytest.approx(expected.get(token, 0.0), abs=LENIENT)


def test_rejection_emits_the_target_s_law_exactly() -> None:
    for target, proposed in _pairs(seed=1, count=150):
        _assert_law(_emitted_law(target, proposed), as_dict(target))


def test_a_deterministic_draft_verified_by_rejection_emits_the_target_s_law_exactly() -> None:
    generator = np.random.default_rng(2)
    for _ in range(40):
        target = _random_law(generator)
        token = int(generator.integers(8))
        point = Distribution.point(token)
        _assert_law(_emitted_law(target, point), as_dict(target))
        # no law stored means the same
        for acceptance in (0.0, 0.3, BELOW_ONE):
            assert _one(token, target, None, "rejection", (acceptance, 0.4)) == _one(
                token, target, point, "rejection", (acceptance, 0.4)
            )


def test_acceptance_turns_at_the_ratio_in_thousands_of_pairs() -> None:
    """With a = min(1, p / q): q a + (1 - sum q a) residual = p, and verify() turns at a."""
    for target, proposed in _pairs(seed=3, count=3000):
        p, q = as_dict(target), as_dict(proposed)
        accepted = {x: q[x] * min(1.0, p.get(x, 0.0) / q[x]) for x in q if q[x] > 0}
        rejected = 1 - math.fsum(accepted.values())
        recovered = as_dict(target.residual(proposed))
        emitted = {
            x: accepted.get(x, 0.0) + rejected * recovered.get(x, 0.0) for x in p.keys() | q.keys()
        }
        _assert_law(emitted, p)
        # 1 - TV, the chance that a draft token stands
        distance = math.fsum(abs(p.get(x, 0.0) - q.get(x, 0.0)) for x in p.keys() | q.keys()) / 2
        assert 1 - rejected == pytest.approx(1 - distance, abs=LENIENT)
        x = max(accepted, key=accepted.__getitem__)
        ratio = min(1.0, p.get(x, 0.0) / q[x])
        for u, stands in ((ratio * (1 - 1e-9), ratio > 0), (ratio * (1 + 1e-9), False)):
            if u < 1:
                assert _stands(x, target, proposed, u) == stands


def test_equal_laws_always_accept() -> None:
    law = _law({3: 0.1, 1: 0.2, 2: 0.7})
    for token in (1, 2, 3):
        assert _stands(token, law, law, BELOW_ONE)


def test_match_and_greedy_emit_the_target_s_own_draw() -> None:
    generator = np.random.default_rng(4)
    for target, _ in _pairs(seed=5, count=300):
        u = float(generator.random())
        for token in range(8):
            assert _one(token, target, None, "match", (0.9, u)) == target.draw(u)
            assert _one(token, target, None, "greedy", (0.9, u)) == target.mode


# the rules of verification, one by one

P = _law({0: 0.5, 1: 0.5})
Q = _law({0: 0.6, 1: 0.4})


def test_p_min_on_the_drawn_token_would_bias() -> None:
    """q = (.6, .4), p = (.5, .5), p_min .5 on the drawn token emits (.7, .3)."""
    _assert_law(_emitted_law(P, Q, keeps=lambda token: Q.prob(token) >= 0.5), {0: 0.7, 1: 0.3})
    _assert_law(_emitted_law(P, Q), {0: 0.5, 1: 0.5})


def test_argmax_with_a_stored_law_would_bias() -> None:
    """The argmax is token 0 always; judged by q it stands with 5/6, else 1 is recovered."""
    accepted = _acceptance_chance(0, P, Q)
    assert accepted == pytest.approx(5 / 6, abs=LENIENT)
    assert _one(0, P, Q, "rejection", (0.9, 0.0)) == 1
    # so 0 is emitted with 5/6, not 1/2; as a point mass it stands with 1/2
    assert _acceptance_chance(0, P, Distribution.point(0)) == pytest.approx(0.5, abs=LENIENT)


def _drafted(
    probs: Sequence[float], uniforms: Sequence[float] | None, min_prob: float, target_size: int = 2
) -> Proposal:
    """What the model drafter makes of a drafter whose law is always ``probs``."""
    row = np.log(np.array(probs)).astype(np.float32)
    runner = ToyRunner(lambda _tokens: row, len(probs))
    drafter = ModelDrafter(runner, target_size, n_max=3)
    numbers = iter(uniforms or ())
    settings = SamplingSettings(temp=1.0, top_k=0, top_p=1.0, min_p=0.0)
    [proposal] = drafter.propose(
        [
            DraftRequest(
                0,
                np.array([0], np.int32),
                3,
                draft_law(settings),
                uniform=None if uniforms is None else lambda: next(numbers),
                min_prob=min_prob,
            )
        ]
    )
    return proposal


def test_the_drafter_decides_by_the_law_before_it_draws() -> None:
    """Whatever is drawn stays: the same lengths for likely and unlikely tokens."""
    for uniforms in ([0.1, 0.1, 0.1], [0.9, 0.9, 0.9], [0.1, 0.9, 0.1]):
        proposal = _drafted([0.6, 0.4], uniforms, min_prob=0.5)
        assert proposal.token_ids == tuple(int(u > 0.6) for u in uniforms)
        assert len(_drafted([0.6, 0.4], uniforms, min_prob=0.61)) == 0


def test_the_drafter_stores_the_law_it_drew_from() -> None:
    proposal = _drafted([0.6, 0.4], [0.1, 0.9, 0.5], min_prob=0.0)
    assert proposal.distributions is not None
    for law in proposal.distributions:
        assert as_dict(law) == pytest.approx({0: 0.6, 1: 0.4}, abs=1e-6)


def test_the_drafter_s_best_tokens_carry_no_law() -> None:
    """So an argmax can only be judged as the point mass it is."""
    proposal = _drafted([0.4, 0.6], None, min_prob=0.0)
    assert proposal.token_ids == (1, 1, 1)
    assert proposal.distributions is None


def test_tokens_the_target_does_not_have_leave_the_law_before_the_draw() -> None:
    proposal = _drafted([0.3, 0.2, 0.5], [0.99, 0.5, 0.0], min_prob=0.0, target_size=2)
    assert proposal.token_ids == (1, 0, 0)
    assert proposal.distributions is not None
    assert as_dict(proposal.distributions[0]) == pytest.approx({0: 0.6, 1: 0.4}, abs=1e-6)


@pytest.fixture
def engine_settings(zoo: Path) -> Callable[[SpeculationSettings], EngineSettings]:
    target = ModelSettings(zoo / "target-llama.gguf", ctx_size=128)
    draft = ModelSettings(zoo / "draft-simple.gguf", ctx_size=128)
    drafters = (DrafterSettings("draft-simple", draft),)
    return lambda speculation: EngineSettings(target, drafters, speculation)


def test_n_min_with_sampled_drafts_is_refused(
    engine_settings: Callable[[SpeculationSettings], EngineSettings],
) -> None:
    speculation = SpeculationSettings(n_min=1, sampling="probabilistic", adaptive=False)
    with pytest.raises(InputError, match=r"--spec-draft-n-min 1 .* bias"):
        Engine.load(engine_settings(speculation))


def test_greedy_above_temperature_0_is_refused(
    engine_settings: Callable[[SpeculationSettings], EngineSettings],
) -> None:
    speculation = SpeculationSettings(verify="greedy", adaptive=False)
    with Engine.load(engine_settings(speculation)) as engine:
        assert engine.resolve_rule(SamplingSettings(temp=0)) == "greedy"
        with pytest.raises(InputError, match="--spec-verify greedy: only at temperature 0"):
            engine.resolve_rule(SamplingSettings(temp=0.5))


@pytest.mark.parametrize("stored", [True, False], ids=["drawn", "deterministic"])
def test_a_token_the_target_does_not_allow_never_stands(stored: bool) -> None:
    """Also at the very edge of the uniform, and when the target lists it with probability 0."""
    target = _law({5: 0.0, 6: 0.25, 7: 0.75})
    for token in (4, 5):
        proposed = _law({token: 0.9, 6: 0.1}) if stored else None
        for acceptance in (0.0, 5e-324, BELOW_ONE):
            for u in (0.0, 0.5, BELOW_ONE):
                assert _one(token, target, proposed, "rejection", (acceptance, u)) in {6, 7}
                assert _one(token, target, None, "match", (acceptance, u)) in {6, 7}


def test_a_token_its_own_law_excludes_does_not_stand() -> None:
    """It cannot have been drawn from that law: nothing is known about it."""
    proposed = _law({5: 1.0, 6: 0.0})
    target = _law({6: 0.5, 7: 0.5})
    for token in (4, 6):
        assert not _stands(token, target, proposed, 0.0)


def test_a_rejection_by_rounding_draws_from_the_target() -> None:
    target = _law({0: 0.5 - 1e-13, 1: 0.5 + 1e-13})
    proposed = _law({0: 0.5, 1: 0.5})
    drawn = {_one(0, target, proposed, "rejection", (BELOW_ONE, u)) for u in (0.2, 0.8)}
    assert drawn == {0, 1}


THREE = Proposal((1, 2, 3), tuple(_law({i: 0.5, 9: 0.5}) for i in (1, 2, 3)))


def _four(stand: Sequence[bool]) -> Targets:
    """Targets under which the draft tokens of ``THREE`` stand or not; last comes 8."""
    laws = [_law({i + 1: 1.0}) if ok else _law({7: 1.0}) for i, ok in enumerate(stand)]
    return Targets(*laws, _law({8: 1.0}))


@pytest.mark.parametrize("rule", ["greedy", "match", "rejection"])
@pytest.mark.parametrize("num_good", [0, 1, 2, 3])
def test_positions_are_examined_in_order_up_to_the_first_rejection(
    num_good: int, rule: Rule
) -> None:
    targets = _four([i < num_good for i in range(3)])
    verdict = verify(THREE, targets, Coins(Scripted(0.5, 0.5), 0), rule, never)
    assert targets.asked == list(range(num_good + 1))
    if num_good == 3:
        assert verdict == Verdict(3, 8, "bonus")
    else:
        assert verdict == Verdict(num_good, 7, "recovered")


def test_a_later_good_token_does_not_stand_after_a_rejection() -> None:
    targets = _four([True, False, True])
    assert verify(THREE, targets, Coins(Scripted(), 0), "match", never) == Verdict(
        1, 7, "recovered"
    )


@pytest.mark.parametrize("rule", ["greedy", "match", "rejection", "synthetic"])
def test_no_draft_is_an_ordinary_step(rule: Rule) -> None:
    target = _law({4: 0.3, 5: 0.7})
    targets, uniforms = Targets(target), Scripted(target=0.9)
    verdict = verify(Proposal(), targets, Coins(uniforms, 17), rule, never, (0.5, 0.5))
    assert verdict == Verdict(0, 5, "bonus")
    assert targets.asked == [0]
    assert uniforms.asked in ([("target", 17)], [])


@pytest.mark.parametrize("num_good", [0, 1, 2, 3])
def test_uniforms_are_addressed_by_the_emitted_token(num_good: int) -> None:
    """At most one of each for every token, whatever the length of the draft."""
    uniforms = Scripted(0.5, 0.5)
    targets = _four([i < num_good for i in range(3)])
    verify(THREE, targets, Coins(uniforms, 100), "rejection", never)
    examined = min(num_good + 1, 3)
    assert uniforms.asked == [
        *(("acceptance", 100 + i) for i in range(examined)),
        ("target", 100 + num_good),
    ]


@pytest.mark.parametrize("num_good", [0, 2, 3])
def test_match_draws_once_for_each_emitted_token(num_good: int) -> None:
    uniforms = Scripted(0.5, 0.5)
    targets = _four([i < num_good for i in range(3)])
    verify(THREE, targets, Coins(uniforms, 40), "match", never)
    assert uniforms.asked == [("target", 40 + i) for i in range(num_good + 1)]


@pytest.mark.parametrize("rule", ["greedy", "match", "rejection"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_accepted_end_token_ends_the_block(place: int, rule: Rule) -> None:
    """No bonus, and no row behind it is asked for."""
    targets, uniforms = _four([True, True, True]), Scripted(0.5, 0.5)
    end = THREE.token_ids[place]
    verdict = verify(THREE, targets, Coins(uniforms, 0), rule, lambda token: token == end)
    assert verdict == Verdict(place + 1, None, "none")
    assert targets.asked == list(range(place + 1))
    assert max((index for _, index in uniforms.asked), default=0) <= place


def test_a_rejected_end_token_ends_nothing() -> None:
    verdict = verify(
        THREE, _four([True, False, True]), Coins(Scripted(), 0), "match", lambda token: token == 2
    )
    assert verdict == Verdict(1, 7, "recovered")


def test_an_end_token_that_the_target_draws_is_its_own_token() -> None:
    verdict = verify(
        THREE, _four([True, False, True]), Coins(Scripted(), 0), "match", lambda token: token == 7
    )
    assert verdict == Verdict(1, 7, "recovered")
