"""Several drafters in the order written: who wins a step, what is cut, who is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from tools.draft_law import GREEDY

from outrider.speculative.batch_outputs import BatchOutputs, Block
from outrider.speculative.distribution import Distribution
from outrider.speculative.drafters.chain import ChainDrafter
from outrider.speculative.drafters.drafter import Drafter, DrafterDefaults
from outrider.speculative.errors import EngineError
from outrider.speculative.proposal import DraftRequest, Proposal, Verdict

VERDICT = Verdict(1, 5, "recovered")


class Scripted(DrafterDefaults):
    """Answers each sequence with its next draft, whatever the limits are, and notes everything."""

    def __init__(self, name: str, drafts: dict[int, list[Sequence[int]]], n_max: int = 9) -> None:
        self.name = name
        self.n_max = n_max
        self.asked: list[tuple[int, int]] = []
        self.told: list[tuple[str, object]] = []
        self._drafts = drafts

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        self.asked += [(request.seq_id, request.max_tokens) for request in requests]
        return [Proposal(tuple(self._drafts[request.seq_id].pop(0))) for request in requests]

    def observe_batch(self, blocks: Sequence[Block], outputs: BatchOutputs) -> None:
        self.told.append(("batch", len(blocks)))

    def observe_verdict(self, seq_id: int, verdict: Verdict) -> None:
        self.told.append(("verdict", seq_id))

    def forget(self, seq_id: int) -> None:
        self.told.append(("forget", seq_id))

    def close(self) -> None:
        self.told.append(("close", None))


class Broken(DrafterDefaults):
    name = "broken"
    n_max = 4
    is_closed = False

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        raise EngineError("out of order")

    def close(self) -> None:
        self.is_closed = True


def _request(seq_id: int = 0, max_tokens: int = 6, min_tokens: int = 0) -> DraftRequest:
    text = np.array([1, 2, 3], np.int32)
    return DraftRequest(seq_id, text, max_tokens, GREEDY, min_tokens=min_tokens)


def test_the_first_that_proposes_wins_the_step() -> None:
    first = Scripted("first", {0: [[], [4, 5], []]})
    second = Scripted("second", {0: [[6], [7, 8]]})
    chain = ChainDrafter([first, second])
    won = [(p.drafter, p.token_ids) for _ in range(3) for p in chain.propose([_request()])]
    assert won == [("second", (6,)), ("first", (4, 5)), ("second", (7, 8))]
    # the second is not asked where the first has won
    assert len(second.asked) == 2


def test_each_sequence_has_its_own_winner() -> None:
    first = Scripted("first", {0: [[]], 1: [[3]], 2: [[]]})
    second = Scripted("second", {0: [[4]], 2: [[]]})
    chain = ChainDrafter([first, second])
    proposals = chain.propose([_request(2), _request(1), _request(0)])
    assert [p.token_ids for p in proposals] == [(), (3,), (4,)]
    assert second.asked == [(2, 6), (0, 6)]
    for seq_id in range(3):
        chain.observe_verdict(seq_id, VERDICT)
    assert first.told == [("verdict", 1)]
    assert second.told == [("verdict", 0)]


def test_only_the_winner_of_this_step_hears_the_verdict() -> None:
    first = Scripted("first", {0: [[4], []]})
    chain = ChainDrafter([first])
    chain.propose([_request()])
    chain.observe_verdict(0, VERDICT)
    chain.propose([_request()])
    chain.observe_verdict(0, VERDICT)
    assert first.told == [("verdict", 0)]


@pytest.mark.parametrize(
    ("max_tokens", "n_max", "expected"), [(6, 9, 6), (6, 4, 4), (3, 4, 3), (9, 9, 8)]
)
def test_a_draft_is_cut_to_the_smaller_limit(max_tokens: int, n_max: int, expected: int) -> None:
    member = Scripted("long", {0: [range(8)]}, n_max)
    [proposal] = ChainDrafter([member]).propose([_request(max_tokens=max_tokens)])
    assert member.asked == [(0, min(max_tokens, n_max))]
    assert proposal.token_ids == tuple(range(expected))
    assert proposal.discarded == ((("long", 8 - expected),) if expected < 8 else ())


def test_laws_are_cut_with_their_tokens() -> None:
    laws = tuple(Distribution.point(i) for i in range(4))

    class Sampled(DrafterDefaults):
        name, n_max, gives_law = "sampled", 4, True

        def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
            return [Proposal((0, 1, 2, 3), laws) for _ in requests]

    chain = ChainDrafter([Sampled()])
    [proposal] = chain.propose([_request(max_tokens=2)])
    assert proposal.distributions == laws[:2]
    assert chain.gives_law
    assert not ChainDrafter([Scripted("x", {})]).gives_law


@pytest.mark.parametrize(("length", "kept"), [(1, 0), (2, 0), (3, 3), (5, 5)])
def test_a_draft_below_the_minimum_is_thrown_away_and_the_next_is_asked(
    length: int, kept: int
) -> None:
    short = Scripted("short", {0: [range(length)]})
    other = Scripted("other", {0: [[7, 7, 7]]})
    [proposal] = ChainDrafter([short, other]).propose([_request(min_tokens=3)])
    if kept:
        assert (proposal.drafter, len(proposal), proposal.discarded) == ("short", kept, ())
    else:
        assert (proposal.drafter, proposal.token_ids) == ("other", (7, 7, 7))
        assert proposal.discarded == (("short", length),)


def test_what_everybody_is_told() -> None:
    members = [Scripted("a", {}), Scripted("b", {})]
    chain = ChainDrafter(members)
    block = Block(0, np.array([1], np.int32), 0, 0)
    outputs = BatchOutputs(_Counter(), [block], np.empty((0, 3), np.float32))
    chain.observe_batch([block], outputs)
    chain.forget(2)
    chain.close()
    for member in members:
        assert member.told == [("batch", 1), ("forget", 2), ("close", None)]


class _Counter:
    num_decodes = 1


def test_the_longest_member_sets_the_length() -> None:
    assert ChainDrafter([]).n_max == 0
    members: list[Drafter] = [Scripted("a", {}, 3), Scripted("b", {}, 7)]
    assert ChainDrafter(members).n_max == 7


def test_a_member_that_fails_is_closed_and_dropped_with_its_reason() -> None:
    broken = Broken()
    other = Scripted("other", {0: [[4], [5]], 1: [[6]]})
    chain = ChainDrafter([broken, other])
    proposals = chain.propose([_request(0), _request(1)])
    assert [p.token_ids for p in proposals] == [(4,), (6,)]
    assert chain.dropped == {"broken": "out of order"}
    assert broken.is_closed
    assert chain.members == [other]
    [proposal] = chain.propose([_request()])
    assert proposal.token_ids == (5,)


def test_the_last_member_that_fails_leaves_an_empty_chain() -> None:
    chain = ChainDrafter([Broken()])
    assert [len(p) for p in chain.propose([_request()])] == [0]
    assert chain.members == []
    assert [len(p) for p in chain.propose([replace(_request(), seq_id=1)])] == [0]
