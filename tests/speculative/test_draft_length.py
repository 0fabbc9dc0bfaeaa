"""The length of a draft: the one with the most expected tokens a second, by brute force."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.properties import PROPERTY

from outrider.speculative.acceptance import AcceptanceModel
from outrider.speculative.draft_length import AdaptiveLength, FixedLength
from outrider.speculative.proposal import DraftLaw, DraftRequest, Proposal, judged
from outrider.speculative.statistics import Pause
from outrider.speculative.step_costs import StatedCosts, StepCosts, StepLoad

NO_DRAFT = Proposal()


def _costs(step_s: Sequence[float], draft_costs: Mapping[str, float] | None = None) -> StepCosts:
    """Entry k: plain steps that one with k draft tokens takes; costs of a draft token."""
    curve = {k + 1: seconds for k, seconds in enumerate(step_s)}
    return StatedCosts(curve, {"model": 0.2, "text": 0.0} | dict(draft_costs or {}))


def _draft(drafter: str, num_tokens: int) -> Proposal:
    return Proposal((7,) * num_tokens, drafter=drafter)


def _request(length: AdaptiveLength, drafter: str, limit: int = 99) -> DraftRequest | None:
    """What a drafter is asked for in the next step; None: nothing."""
    if length.waits():
        return None
    length.bound(limit)
    assert length.gates is not None
    gate = length.gates.get(drafter)
    if gate is None:
        return None
    return DraftRequest(0, np.zeros(1, np.int32), gate.max_tokens, _no_law, gate=gate)


def _no_law() -> DraftLaw:
    raise AssertionError("nobody asks for it here")


def _step(length: AdaptiveLength, drafter: str, stands: Sequence[int], limit: int = 99) -> int:
    """One step in which the target says ``stands``; the number of draft tokens in it."""
    request = _request(length, drafter, limit)
    proposal = NO_DRAFT
    if request is not None:
        proposal = judged(request, _draft(drafter, request.max_tokens), drafter)
    accepted = len(list(itertools.takewhile(lambda token: token == 7, stands)))
    accepted = min(accepted, len(proposal))
    length.observe(proposal, accepted, stands[: accepted + 1])
    return len(proposal)


@pytest.mark.parametrize(("limit", "length"), [(9, 4), (4, 4), (3, 3), (0, 0)])
def test_a_fixed_length_is_cut_by_the_limit_alone(limit: int, length: int) -> None:
    fixed = FixedLength(4)
    for _ in range(3):
        assert fixed.bound(limit) == fixed.length == length
        fixed.observe(_draft("model", length), 0, [1])
    assert fixed.paused is None
    assert fixed.gates is None


# the best length


@PROPERTY
@given(
    st.lists(st.floats(0.001, 0.6), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(1, 8), st.integers(0, 8)), max_size=20),
    st.sampled_from([0.1, 0.2]),
    st.integers(0, 3),
)
def test_the_length_is_the_fastest(
    extra_s: list[float], drafts: list[tuple[int, int]], token_s: float, others: int
) -> None:
    """Steps that cost ``extra_s`` more with each row; 0 where nothing pays."""
    n_max = len(extra_s)
    rows_s = [1 + sum(extra_s[:k]) for k in range(n_max)]
    rows_s += [rows_s[-1] + 0.5 * k for k in range(1, 5)]
    costs = StepCosts({1: 1.0, 100: 100.0})
    costs.calibrate({k + 1: seconds for k, seconds in enumerate(rows_s)})
    costs.observe_draft(1, token_s, "model")
    length, model = AdaptiveLength(costs, {"model": n_max}), AcceptanceModel(n_max)
    for drafted, accepted in drafts:
        drafted = min(drafted, n_max)
        accepted = min(drafted, accepted)
        length.observe(_draft("model", drafted), accepted, [7] * accepted + [1])
        model.observe(drafted, accepted)
    length.observe(_draft("model", 1), 0, [1])  # no look is due
    model.observe(1, 0)
    chances = model.chances().tolist()
    step_s = [rows_s[others + k] + token_s * k for k in range(n_max + 1)]
    tokens = [
        1 + others + sum(math.prod(chances[:i]) for i in range(1, k + 1)) for k in range(n_max + 1)
    ]
    speeds = [count / seconds for count, seconds in zip(tokens, step_s, strict=True)]
    length._num_drafts = 0  # no plain step is due
    bound = length.bound(n_max, StepLoad(others=others))
    chosen = length.length
    assert speeds[chosen] == pytest.approx(max(speeds), rel=1e-9)
    assert bound == chosen
    if not chosen:
        # what is said of a pause: the length that comes nearest
        nearest = 1 + speeds[1:].index(max(speeds[1:]))
        length.observe(NO_DRAFT, 0, [1])
        assert length.paused is not None
        needed = (step_s[nearest] * speeds[0] - 1 - others) / nearest
        assert length.paused.needed == pytest.approx(needed)
        assert length.paused.measured == pytest.approx((tokens[nearest] - 1 - others) / nearest)


def test_cheap_drafts_are_long_and_dear_ones_are_not_made() -> None:
    """At a chance of 0.7 a token for 0.13 pays up to the fourth, one for 0.8 never."""
    little = {"model": 0.06}
    cheap = AdaptiveLength(_costs([1, 1.01, 1.02, 1.03], little), {"model": 3})
    assert cheap.bound(3) == 3
    # with 0.06 for drafting: 2.533 / 1.39 = 1.822, 2.773 / 1.52 = 1.824, 2.941 / 1.65 = 1.782
    costs = _costs([1, 1.07, 1.14, 1.21, 1.28, 1.35], little)
    assert AdaptiveLength(costs, {"model": 5}).bound(5) == 4

    dear = AdaptiveLength(_costs([1.0, 1.6, 2.2]), {"model": 2})
    dear.observe(_draft("model", 1), 0, [1])
    assert dear.bound(2) == 0
    assert dear.paused is None  # a draft was just made
    dear.observe(NO_DRAFT, 0, [1])
    # at length 1: step cost 1.8, so an acceptance of 0.8 is needed; one miss and the prior,
    # which counts as two drafts of 0.7, make (0 + 1.4) / (1 + 2) over all positions, and
    # (0 + 2 * 0.467) / (1 + 2) at the first
    assert dear.paused is not None
    assert dear.paused.needed == pytest.approx(0.8)
    assert dear.paused.measured == pytest.approx(2 * 1.4 / 3 / 3)


@pytest.mark.parametrize("limit", [0, 1, 2, 8])
def test_no_limit_is_exceeded(limit: int) -> None:
    length = AdaptiveLength(_costs([1] * 9, {"model": 0.06}), {"model": 4})
    assert length.bound(limit) == min(limit, 4)
    assert AdaptiveLength(StepCosts(), {"model": 4}).bound(limit) == min(limit, 4)


def test_the_other_slots_decide_with_it() -> None:
    """A knee after four rows: alone three draft tokens fit before it, beside three others none."""
    costs = StepCosts()
    costs.calibrate({1: 1.0, 2: 1.02, 3: 1.04, 4: 1.06, 5: 2.0, 6: 2.2, 7: 2.4, 8: 2.6})
    costs.observe_draft(1, 0.06, "model")
    length = AdaptiveLength(costs, {"model": 3})
    assert length.bound(3) == 3
    assert length.bound(3, StepLoad(others=3)) in (0, 2)
    assert length.length == 0


def test_one_step_with_a_draft_makes_two_changes_of_rows() -> None:
    """0.7 of a token for 0.6 pays; with the change to other rows, and back, it takes 0.8."""
    costs = StepCosts()
    costs.calibrate({1: 1.0, 2: 1.5})
    costs.observe_draft(1, 0.1, "model")
    length = AdaptiveLength(costs, {"model": 1})
    assert length.bound(1) == 1
    for _ in range(100):
        costs.observe_switch(1, 1.2)
    length.bound(1)
    assert length.length == 0
    length.observe(_draft("model", 1), 1, [7, 7])
    assert length.bound(1) == 1  # after a step with a draft it costs nothing more


def test_a_longer_context_makes_rows_dearer() -> None:
    costs = StepCosts({1: 1.0, 100: 6.0}, cell_cost=0.001)
    costs.calibrate({1: 1.0})
    costs.observe_draft(1, 0.2, "model")
    length = AdaptiveLength(costs, {"model": 4})
    assert length.bound(4) > 1
    # at 2,000 cells a row costs 2 more, the second as much as the first, and a draft on top
    length.bound(4, StepLoad(num_cells=2_000))
    assert length.length == 0


# drafts that cost nothing are judged one by one


def test_a_text_drafter_is_always_asked_and_its_draft_judged() -> None:
    """Rows at 0.3: confidence 0.9 pays, 0.2 does not."""
    length = AdaptiveLength(_costs([1 + 0.3 * k for k in range(9)]), {"text": 8})
    request = _request(length, "text")
    assert request is not None
    assert request.max_tokens == 8
    sure = Proposal((7,) * 8, confidences=np.full(8, 0.9))
    # 1.9/1.3, 2.71/1.6, 3.44/1.9, ... the eighth: 6.13/3.4: 1.46 1.69 1.81 1.86 1.88 1.86
    assert len(judged(request, sure, "text")) == 5
    unsure = Proposal((7,) * 8, confidences=np.full(8, 0.2))
    judgement = judged(request, unsure, "text")
    assert len(judgement) == 0
    assert [look.token_ids for look in judgement.looks] == [(7,) * 8]
    length.observe(judgement, 0, [1])
    assert length.paused is not None
    # the first token comes nearest: 1.3 steps, 0.2 tokens
    assert length.paused.needed == pytest.approx(0.3)
    assert length.paused.measured == pytest.approx(0.2)
    assert length.length == 0


def test_a_drafter_must_be_faster_than_the_one_after_it() -> None:
    """The model drafter makes 1.7 tokens in 1.23 plain steps: a sure but short text loses."""
    costs = _costs([1, 1.03, 2, 3], {"model": 0.2})
    length = AdaptiveLength(costs, {"text": 3, "model": 1})
    request = _request(length, "text")
    assert request is not None
    # 1.3 tokens in 1.03 steps are more than plain decoding gives, but less than the other
    poor = Proposal((7,), confidences=np.array([0.3]))
    assert len(judged(request, poor, "text")) == 0
    good = Proposal((7,), confidences=np.array([0.9]))
    assert len(judged(request, good, "text")) == 1


def test_a_poor_drafter_does_not_stand_before_a_good_one() -> None:
    length = AdaptiveLength(_costs([1, 1.1, 1.2, 1.3]), {"wrong": 3, "model": 3})
    for _ in range(12):
        length.bound(3)
        length.observe(_draft("wrong", 2), 0, [1])
        length.bound(3)
        length.observe(_draft("model", 2), 2, [7, 7, 1])
    length.observe(NO_DRAFT, 0, [1])
    length.bound(3)
    assert length.gates is not None
    assert not length.gates["model"].is_look
    assert length.gates["wrong"].num_worth(3) == 0


# looks: the way back from 0


def test_a_losing_drafter_is_at_0_within_20_steps() -> None:
    for drafter in ("model", "text"):
        length = AdaptiveLength(_costs([1.0, 1.5, 2.0, 2.5]), {drafter: 3})
        drafted = [_step(length, drafter, [1]) for _ in range(60)]
        assert not any(drafted[5:]), drafter
        assert length.length == 0
        assert length.paused is not None


def test_what_does_not_pay_costs_no_row_and_is_learnt_from() -> None:
    """Bad for 60 tokens, then right: drafts are made again within a few tokens."""
    length = AdaptiveLength(_costs([1.0, 1.7, 2.1, 2.5, 3.2]), {"text": 4})
    bad = [_step(length, "text", [1]) for _ in range(60)]
    assert sum(bad) <= 8
    good = 0
    while not _step(length, "text", [7] * 5):
        good += 1
    assert good <= 64


def test_a_model_drafter_is_looked_at_as_often_as_the_time_allows_and_seldom_without_hope() -> None:
    """A look of two tokens at 0.2 costs 0.4 plain steps: one in forty tokens, at most.

    At the chance of 0.7 that is assumed one token makes 1.7 in 1.9 of the time of a plain step,
    where none stands 1 in 1.9.
    """
    length = AdaptiveLength(_costs([1.0, 1.7, 2.4]), {"model": 2})
    looks = []
    for step in range(1500):
        request = _request(length, "model")
        proposal = NO_DRAFT
        if request is not None:
            assert request.gate is not None
            if request.gate.is_look:
                looks.append(step)
            proposal = judged(request, _draft("model", request.max_tokens), "model")
        length.observe(proposal, 0, [1])
    gaps = [b - a for a, b in itertools.pairwise(looks)]
    assert looks[0] == pytest.approx(40 / (1.7 / 1.9) ** 3, abs=1)
    assert gaps == sorted(gaps)
    assert 0.85 < gaps[-1] / (40 / (1 / 1.9) ** 3) <= 1


def test_one_that_knows_nothing_is_asked_less_often() -> None:
    """After 8 steps without a proposal every second step, after 32 every fourth, and so on."""
    length = AdaptiveLength(_costs([1.0, 1.1, 1.2]), {"text": 2})
    asked = []
    for step in range(200):
        if _request(length, "text") is not None:
            asked.append(step)
        length.observe(NO_DRAFT, 0, [1])
    gaps = [b - a for a, b in itertools.pairwise(asked)]
    assert gaps == [1] * 7 + [2] * 24 + [4] * 16 + [8] * (len(gaps) - 47)
    assert len(gaps) > 50
    # and at once again when it has something
    while (request := _request(length, "text")) is None:
        length.observe(NO_DRAFT, 0, [1])
    length.observe(judged(request, _draft("text", 1), "text"), 0, [1])
    assert _request(length, "text") is not None


def test_looks_bring_a_model_drafter_back() -> None:
    length = AdaptiveLength(_costs([1.0, 1.3, 1.6, 1.9]), {"model": 3})
    for _ in range(40):
        _step(length, "model", [1])
    assert length.length == 0
    tokens = 0
    while not _step(length, "model", [7] * 4):
        tokens += 1
        assert tokens < 500
    assert tokens > 0


def test_a_look_goes_on_over_several_steps() -> None:
    """Four tokens are compared with what four plain steps say; the third is wrong."""
    acceptance = AcceptanceModel(4)
    costs = _costs([1.0, 9.0, 9.1, 9.2, 9.3])
    length = AdaptiveLength(costs, {"text": 4}, {"text": acceptance})
    request = _request(length, "text")
    assert request is not None
    proposal = judged(request, Proposal((7, 8, 9, 10), drafter="text"), "text")
    assert not proposal.token_ids
    length.observe(proposal, 0, [7])
    length.observe(NO_DRAFT, 0, [8])
    assert acceptance._tested.tolist() == [1, 1, 0, 0]
    length.observe(NO_DRAFT, 0, [1])
    length.observe(NO_DRAFT, 0, [10])
    assert acceptance._tested.tolist() == [1, 1, 1, 0]
    assert acceptance._stood.tolist() == [1, 1, 0, 0]


def test_what_was_learnt_is_shared_by_the_answers() -> None:
    acceptance = {"text": AcceptanceModel(3)}
    first = AdaptiveLength(_costs([1.0, 1.5, 2.0, 2.5]), {"text": 3}, acceptance)
    for _ in range(30):
        _step(first, "text", [1])
    second = AdaptiveLength(_costs([1.0, 1.5, 2.0, 2.5]), {"text": 3}, acceptance)
    assert _step(second, "text", [1]) == 0


# plain steps


def test_what_is_always_in_vain_is_asked_every_eighth_step() -> None:
    length = AdaptiveLength(_costs([1.0, 3.0, 5.0]), {"text": 2})
    asked = []
    for _ in range(200):
        request = _request(length, "text")
        asked.append(request is not None)
        proposal = NO_DRAFT
        if request is not None:
            proposal = judged(request, _draft("text", 2), "text")
            assert proposal.looks
        length.observe(proposal, 0, [1])
    # 8 steps, then 24 of every second, 16 of every fourth
    assert all(asked[:8])
    assert sum(asked[8:56]) == 24
    assert sum(asked[56:120]) == 16
    assert sum(asked[120:200]) == 10


def test_drafts_that_only_seem_to_pay_end_soon() -> None:
    """Measured beside other work a plain step took as long as one of four rows; it does not."""
    costs = StepCosts()
    costs.calibrate({1: 0.02, 2: 0.02, 3: 0.02, 4: 0.02})
    costs.observe_draft(1, 0.0005, "model")
    length = AdaptiveLength(costs, {"model": 3})
    real_s = [0.008, 0.016, 0.020, 0.024]
    coins, drafted = random.Random(2), []
    for _ in range(400):
        count = 0 if length.waits() else length.bound(3)
        gate = (length.gates or {}).get("model")
        proposal = NO_DRAFT if gate is None or gate.is_look else _draft("model", count)
        stood = len(list(itertools.takewhile(lambda _: coins.random() < 0.4, proposal.token_ids)))
        drafted.append(len(proposal) > 0)
        costs.observe_verify(len(proposal) + 1, real_s[len(proposal)])
        length.observe(proposal, stood, [7] * stood + [1])
    assert sum(drafted[200:]) <= 20


def test_drafts_that_pay_are_interrupted_seldom() -> None:
    length = AdaptiveLength(_costs([1.0, 1.01, 1.02, 1.03], {"model": 0.03}), {"model": 3})
    plain = [step for step in range(200) if not _step(length, "model", [7, 7, 7, 7])]
    # after 8 steps with drafts, then 16, then every 32
    assert plain == [8, 25, 58, 91, 124, 157, 190]


def test_where_not_even_perfect_drafts_pay_nobody_looks() -> None:
    """A drafter as slow as the target: two tokens of it take longer than two plain steps."""
    length = AdaptiveLength(_costs([1.0, 1.5, 2.0, 2.5], {"model": 1.0}), {"model": 3})
    for _ in range(300):
        assert _request(length, "model") is None
        length.observe(NO_DRAFT, 0, [7])
    assert length.length == 0


def test_a_new_answer_is_no_reason_to_look() -> None:
    acceptance = {"model": AcceptanceModel(2)}
    looks = []
    for answer in range(4):
        length = AdaptiveLength(_costs([1.0, 1.7, 2.4]), {"model": 2}, acceptance)
        for step in range(15):
            request = _request(length, "model")
            proposal = NO_DRAFT
            if request is not None:
                looks.append(15 * answer + step)
                proposal = judged(request, _draft("model", request.max_tokens), "model")
            length.observe(proposal, 0, [1])
    # a look of two tokens costs 0.4 plain steps: one in 40 tokens, and more as the assumed chance
    # of 0.7 makes 1.7 tokens in 1.9 of the time
    assert looks == [pytest.approx(40 / (1.7 / 1.9) ** 3, abs=1)]


@pytest.mark.parametrize(("num_own", "length"), [(0, 2), (800, 2), (1000, 0)])
def test_a_text_is_read_if_that_pays_within_an_answer(num_own: int, length: int) -> None:
    """At a chance of 0.7 two tokens make (1 + 0.7 + 0.49) / 1.5: a token takes 0.315 less.

    So 63 are saved in 200 tokens; to read one takes 0.07: 0.14 to draft it, and 64 rows at 32.
    """
    costs = StepCosts()
    costs.calibrate({1: 1.0, 2: 1.11, 3: 1.22, 64: 32.0})
    costs.observe_draft(1, 0.14, "model")
    adaptive = AdaptiveLength(costs, {"model": 2})
    adaptive.bound(2, StepLoad(num_own, num_own))
    assert adaptive.length == length
    adaptive.observe(NO_DRAFT, 0, [1])
    reason = None if length else Pause("does not pay for reading the text first")
    assert adaptive.paused == reason


def test_no_text_is_read_while_another_drafts_most_of_the_answer() -> None:
    """As above 63 are saved in 200 tokens of its own; to read 400 takes 28.

    So it may be asked once less than 1.25 tokens of a step are another's. Three steps of four
    make 2.31 in the mean, of which 1.30 is left after two without and 0.97 after three.
    """
    costs = StepCosts()
    costs.calibrate({1: 1.0, 2: 1.11, 3: 1.22, 64: 32.0})
    costs.observe_draft(1, 0.14, "model")
    adaptive = AdaptiveLength(costs, {"text": 4, "model": 2})
    may_be_asked = []
    for proposal in 3 * [_draft("text", 4)] + 5 * [NO_DRAFT]:
        adaptive.bound(4, StepLoad(400, 400))
        may_be_asked.append("model" in (adaptive.gates or {}))
        adaptive.observe(proposal, len(proposal), [1] * (1 + len(proposal)))
    # the first one may, but a chain asks it only if the other has nothing
    assert may_be_asked == [True, True, *4 * [False], True, True]


def test_the_first_look_waits_until_the_time_allows_to_read_the_text() -> None:
    """20 tokens before it, each half as dear in a batch as one that is drafted, for 0.2."""
    costs = StepCosts()
    costs.calibrate({1: 1.0, 2: 1.7, 3: 2.4, 64: 32.0})
    costs.observe_draft(1, 0.2, "model")
    length = AdaptiveLength(costs, {"model": 2})
    hope = (1.7 / 1.9) ** 3
    looks = []
    for step in range(500):
        length.bound(2, StepLoad(20, 20))
        gate = (length.gates or {}).get("model")
        proposal = NO_DRAFT
        if gate is not None:
            assert gate.is_look
            gate.was_asked = True  # as a chain does
            looks.append(step)
            proposal = Proposal(looks=_draft("model", 2).as_look("model"))
        length.observe(proposal, 0, [1])
    # 20 * 0.1 + 2 * 0.2 plain steps are a hundredth of 240, and then 0.4 of 40
    assert looks[0] == pytest.approx(240 / hope, abs=4)
    assert 40 < looks[1] - looks[0] < 40 / (1 / 1.9) ** 3


def test_a_head_that_turns_out_free_holds_nobody_back() -> None:
    """While it costs, what it brings is what others must be faster than; then each is judged."""
    costs = StepCosts()
    costs.calibrate({1: 1.0, 2: 1.11, 3: 1.22})
    costs.observe_draft(1, 0.1, "model")
    adaptive = AdaptiveLength(costs, {"text": 2, "model": 2})
    adaptive.bound(2)
    assert adaptive.gates is not None
    assert adaptive.gates["text"].floor > 1.1
    for _ in range(200):
        costs.observe_draft(1, 0.001, "model")
        costs.observe_verify(3, 1.2)  # as in a step: costs are taken anew in every sixteenth
    adaptive.bound(2)
    assert adaptive.gates["text"].floor == pytest.approx(1.0)
