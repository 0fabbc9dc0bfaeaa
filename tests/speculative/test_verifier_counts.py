"""By seeded counts: what is emitted follows the target, several tokens jointly.

A made-up target of 64 tokens. Ways of drafting that are known to bias the text must fail the same
test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.chi_square import p_value, upper_tail
from tools.plain_laws import as_dict, never
from tools.properties import PROPERTY

from outrider.speculative.distribution import Distribution
from outrider.speculative.proposal import Proposal
from outrider.speculative.statistics import Rule
from outrider.speculative.uniforms import Coins, Uniforms
from outrider.speculative.verifier import verify

VOCAB_SIZE = 64
START = 0
NUM_TOKENS = 4
NUM_TRIALS = 20_000
NUM_BIASED = 5_000

Table = list[Distribution]


def _targets(seed: int = 8) -> Table:
    """For each token the law of the next one: three to five of the 64."""
    generator = np.random.default_rng(seed)
    table = []
    for _ in range(VOCAB_SIZE):
        count = int(generator.integers(3, 6))
        ids = generator.permutation(VOCAB_SIZE)[:count]
        table.append(Distribution(ids, generator.dirichlet(np.full(count, 1.5))))
    return table


def _drafters(targets: Table, seed: int = 9) -> Table:
    """Laws near the targets': other weights, a token less here, a strange token there."""
    generator = np.random.default_rng(seed)
    table = []
    for law in targets:
        ids, probs = law.token_ids.copy(), law.probs * generator.lognormal(0, 0.7, len(law))
        if generator.random() < 0.3:
            ids[0] = next(token for token in generator.permutation(VOCAB_SIZE) if token not in ids)
        if generator.random() < 0.3:
            ids, probs = ids[1:], probs[1:]
        table.append(Distribution(ids, probs / probs.sum()))
    return table


TARGETS = _targets()
DRAFTERS = _drafters(TARGETS)


def _enumerated() -> dict[tuple[int, ...], float]:
    """The chance of each beginning of four tokens under the target."""
    law: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(NUM_TOKENS):
        law = {
            (*tokens, token): chance * prob
            for tokens, chance in law.items()
            for token, prob in as_dict(TARGETS[tokens[-1] if tokens else START]).items()
        }
    return law


Draft = Callable[[int, int, int, Uniforms], Proposal]
"""(last token, most tokens, index of the first, uniforms) -> draft."""


def _sampled(last: int, count: int, _index: int, uniforms: Uniforms) -> Proposal:
    """Each token drawn from the drafter's law, which is stored."""
    tokens, laws = [], []
    for _ in range(count):
        law = DRAFTERS[last]
        last = law.draw(uniforms.proposal())
        tokens.append(last)
        laws.append(law)
    return Proposal(tuple(tokens), tuple(laws))


def _best(last: int, count: int, _index: int, _uniforms: Uniforms) -> Proposal:
    """The drafter's best tokens."""
    tokens = []
    for _ in range(count):
        last = DRAFTERS[last].mode
        tokens.append(last)
    return Proposal(tuple(tokens))


def _targets_after(last: int, proposal: Proposal) -> Callable[[int], Distribution]:
    before = (last, *proposal.token_ids)
    return lambda position: TARGETS[before[position]]


def _emit(draft: Draft, rule: Rule, trial: int, uniforms: Uniforms) -> tuple[tuple[int, ...], int]:
    """Four tokens by steps of up to three draft tokens, and how many were accepted."""
    emitted: list[int] = []
    num_accepted = 0
    while len(emitted) < NUM_TOKENS:
        last = emitted[-1] if emitted else START
        index = trial * NUM_TOKENS + len(emitted)
        # counts decide the length, never a value that was drawn
        longest = min(1 + (trial + len(emitted)) % 3, NUM_TOKENS - len(emitted) - 1)
        proposal = draft(last, longest, index, uniforms)
        coins = Coins(uniforms, index)
        verdict = verify(proposal, _targets_after(last, proposal), coins, rule, never)
        assert verdict.next_token is not None
        emitted += [*proposal.token_ids[: verdict.num_accepted], verdict.next_token]
        num_accepted += verdict.num_accepted
    return tuple(emitted), num_accepted


def _counted(
    draft: Draft, rule: Rule, num_trials: int, seed: int
) -> tuple[Counter[tuple[int, ...]], int]:
    uniforms, counts, accepted = Uniforms(seed), Counter[tuple[int, ...]](), 0
    for trial in range(num_trials):
        emitted, num_accepted = _emit(draft, rule, trial, uniforms)
        counts[emitted] += 1
        accepted += num_accepted
    return counts, accepted


def test_the_test_of_fit_knows_the_tables() -> None:
    for statistic, degrees, tail in (
        (18.307, 10, 0.05),
        (29.588, 10, 0.001),
        (149.449, 100, 0.001),
    ):
        assert upper_tail(statistic, degrees) == pytest.approx(tail, rel=0.1)
    assert p_value({"a": 1}, {"b": 1.0}) == 0


@pytest.mark.parametrize(
    ("draft", "rule"),
    [(_best, "match"), (_sampled, "match"), (_sampled, "rejection"), (_best, "rejection")],
    ids=["match", "match, sampled drafts", "rejection", "rejection, deterministic drafts"],
)
def test_counts_follow_the_target(draft: Draft, rule: Rule) -> None:
    counts, accepted = _counted(draft, rule, NUM_TRIALS, seed=11)
    assert p_value(counts, _enumerated()) > 0.001
    # drafts took part in it
    assert accepted > 0.3 * NUM_TRIALS


def test_greedy_emits_the_best_token_whatever_is_drafted() -> None:
    best, last = [], START
    for _ in range(NUM_TOKENS):
        last = TARGETS[last].mode
        best.append(last)
    for draft in (_best, _sampled):
        counts, accepted = _counted(draft, "greedy", 300, seed=12)
        assert set(counts) == {tuple(best)}
        assert accepted


def test_true_laws_accept_more_than_matching() -> None:
    """1 - TV against sum of p q, here."""
    _, by_match = _counted(_sampled, "match", 1500, seed=13)
    _, by_ratio = _counted(_sampled, "rejection", 1500, seed=13)
    assert by_ratio > 1.3 * by_match


# ways of drafting that bias the text must fail the same test


def _head(draft: Proposal, count: int) -> Proposal:
    assert draft.distributions is not None
    return Proposal(draft.token_ids[:count], draft.distributions[:count])


def _argmax_with_a_law(last: int, count: int, index: int, uniforms: Uniforms) -> Proposal:
    tokens = _best(last, count, index, uniforms).token_ids
    return Proposal(tokens, tuple(DRAFTERS[token] for token in (last, *tokens)[:count]))


def _unsure_dropped(last: int, count: int, index: int, uniforms: Uniforms) -> Proposal:
    """p_min on the drawn token."""
    draft = _sampled(last, count, index, uniforms)
    assert draft.distributions is not None
    sure = [
        law.prob(token) >= 0.3
        for token, law in zip(draft.token_ids, draft.distributions, strict=True)
    ]
    return _head(draft, (*sure, False).index(False))


def _short_cleared(last: int, count: int, index: int, uniforms: Uniforms) -> Proposal:
    """n_min after drawing: a draft that stopped early is thrown away."""
    draft = _unsure_dropped(last, count, index, uniforms)
    return draft if len(draft) == count else Proposal()


def _ends_dropped(last: int, count: int, index: int, uniforms: Uniforms) -> Proposal:
    """A drawn end token (here every third token) is taken out of the draft."""
    draft = _sampled(last, count, index, uniforms)
    ends = [token % 3 == 0 for token in draft.token_ids]
    return _head(draft, (*ends, True).index(True))


def _target_stream(last: int, count: int, index: int, uniforms: Uniforms) -> Proposal:
    """Drafts drawn with the uniforms that the target draws with."""
    return _with_stream(uniforms.target, last, count, index)


def _acceptance_stream(last: int, count: int, index: int, uniforms: Uniforms) -> Proposal:
    """Drafts drawn with the uniforms that judge them."""
    return _with_stream(uniforms.acceptance, last, count, index)


def _with_stream(stream: Callable[[int], float], last: int, count: int, index: int) -> Proposal:
    tokens, laws = [], []
    for i in range(count):
        laws.append(DRAFTERS[last])
        last = laws[-1].draw(stream(index + i))
        tokens.append(last)
    return Proposal(tuple(tokens), tuple(laws))


@pytest.mark.parametrize(
    "draft",
    [
        _argmax_with_a_law,
        _unsure_dropped,
        _short_cleared,
        _ends_dropped,
        _target_stream,
        _acceptance_stream,
    ],
)
def test_biased_drafting_is_found_out(draft: Draft) -> None:
    counts, _ = _counted(draft, "rejection", NUM_BIASED, seed=11)
    assert p_value(counts, _enumerated()) < 1e-6


@PROPERTY
@given(st.integers(0, 1000), st.lists(st.integers(0, 6), min_size=30, max_size=30))
def test_the_same_seed_matches_plain_decoding(seed: int, lengths: list[int]) -> None:
    """Whatever is drafted and however long: the target's uniforms stay with their tokens."""

    def text(lengths: Sequence[int], draft: Draft) -> list[int]:
        uniforms, emitted = Uniforms(seed), [START]
        for length in lengths:
            proposal = draft(emitted[-1], length, len(emitted), uniforms)
            coins, targets = (
                Coins(uniforms, len(emitted) - 1),
                _targets_after(emitted[-1], proposal),
            )
            verdict = verify(proposal, targets, coins, "match", never)
            assert verdict.next_token is not None
            emitted += [*proposal.token_ids[: verdict.num_accepted], verdict.next_token]
        return emitted[:31]

    plain = text([0] * 30, _best)
    assert text(lengths, _best) == plain
    assert text(lengths, _sampled) == plain
