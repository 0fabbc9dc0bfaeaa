"""Whatever the policy does, the text is that of plain decoding.

The costs are a machine out of its mind: at every step another curve. So drafts, looks, pauses and
drafts after a pause follow each other in no order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from tools.toy_session import check_counts, result_of
from tools.zoo_pairs import PAIRS, Pair

from outrider.speculative.engine import Engine
from outrider.speculative.proposal import DraftRequest, Proposal
from outrider.speculative.settings import DrafterSettings, GenerationSettings, SamplingSettings
from outrider.speculative.step_costs import StepCosts

ASKED = GenerationSettings(SamplingSettings(temp=0), predict=100)
NGRAMS = DrafterSettings("ngram-simple", options={"match": 2, "size": 6})


class Moody(StepCosts):
    """Other costs whenever they are asked for; looks at any time."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.calibrate({1: 1.0})
        self._moods = np.random.default_rng(seed)

    def verify_s(
        self, n_max: int, *, num_cells: int = 0, other_rows: int = 0
    ) -> NDArray[np.float64]:
        steps = self._moods.uniform(0.0, self._moods.choice((0.05, 0.6, 2.0)), n_max)
        return np.concatenate(([1.0], 1 + steps.cumsum()))

    def draft_s(self, n_max: int, drafter: str, *, beside: int = 0) -> NDArray[np.float64]:
        token_s = self._moods.choice((0.001, 0.1))
        return np.asarray(token_s * np.arange(n_max + 1))

    def look_s(self, num_tokens: int, drafter: str) -> float:
        return float(self._moods.choice((0.0, 0.05)))


class Counter:
    """Counts what a drafter was asked for."""

    def __init__(self, engine: Engine) -> None:
        self.drafts = self.looks = 0
        chain = engine._running.drafter
        self._propose = chain.propose
        chain.propose = self.propose  # type: ignore[method-assign]

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        proposals = self._propose(requests)
        for proposal in proposals:
            self.drafts += bool(proposal.token_ids)
            self.looks += len(proposal.looks)
        return proposals


@pytest.mark.parametrize("is_chain", [False, True], ids=["alone", "chain"])
@pytest.mark.parametrize("pair", PAIRS.values(), ids=lambda pair: pair.name)
def test_the_policy_changes_no_token(pair: Pair, is_chain: bool) -> None:
    with pair.load(adaptive=True) as engine:
        if is_chain:
            engine.configure(engine.speculation, [NGRAMS, pair.drafter])
        engine._running.costs = Moody(len(pair.name))
        counter, session, steps = Counter(engine), engine.session(), 0
        for prompt in pair.prompts:
            result = result_of(session.generate(engine.encode(prompt.text), ASKED))
            assert result.token_ids == pair.answer(prompt), prompt.name
            check_counts(result)
            steps += result.stats.steps
        assert not engine._running.drafter.dropped
        assert counter.drafts > 0.02 * steps
        assert counter.looks > 0
        assert steps - counter.drafts > 0.05 * steps
