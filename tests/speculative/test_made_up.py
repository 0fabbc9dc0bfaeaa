"""The drafters that make counts exact."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pytest
from tools.draft_law import GREEDY

from outrider.speculative.drafters.made_up import FillerDrafter, OracleDrafter, ScriptDrafter
from outrider.speculative.proposal import DraftRequest

PROMPT = [9, 9, 9]
ANSWER = [0, 1, 2, 3, 4, 5, 6]


def _request(tokens: Sequence[int], max_tokens: int) -> DraftRequest:
    return DraftRequest(0, np.array(tokens, np.int32), max_tokens, GREEDY)


def test_a_script_is_read_once() -> None:
    script = ScriptDrafter([[1, 2], [], [3]])
    drafts = [script.propose([_request(PROMPT, 8)])[0].token_ids for _ in range(5)]
    assert drafts == [(1, 2), (), (3,), (), ()]


@pytest.mark.parametrize("done", range(8))
def test_the_oracle_knows_what_comes(done: int) -> None:
    oracle = OracleDrafter(ANSWER, len(PROMPT))
    [proposal] = oracle.propose([_request([*PROMPT, *ANSWER[:done]], 3)])
    assert proposal.token_ids == tuple(ANSWER[done : done + 3])


def test_the_oracle_errs_where_it_is_told() -> None:
    oracle = OracleDrafter(ANSWER, len(PROMPT), wrong={0, 1, 4})
    [proposal] = oracle.propose([_request(PROMPT, 7)])
    differing = [i for i, token in enumerate(proposal.token_ids) if token != ANSWER[i]]
    assert differing == [0, 1, 4]
    assert min(proposal.token_ids) >= 0


@pytest.mark.parametrize("length", [1, 5])
def test_the_filler_fills(length: int) -> None:
    filler = FillerDrafter(7, n_max=8)
    proposals = filler.propose([_request(PROMPT, length), _request(PROMPT, 2)])
    assert [p.token_ids for p in proposals] == [(7,) * length, (7, 7)]


def test_the_filler_takes_the_time_it_states(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    filler = FillerDrafter(7, n_max=8, cost_s=0.25)
    # sequences are drafted for side by side
    filler.propose([_request(PROMPT, 4), _request(PROMPT, 2)])
    assert slept == [1.0]
