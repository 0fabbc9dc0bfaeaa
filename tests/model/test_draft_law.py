"""Sampled drafts on trained pairs: what is emitted follows the target's own law.

After this text the target is unsure (it is about to invent a name) and the drafters are nearly
right, so the law of a draft, the ratio test and the residual all have a part.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np
import pytest
from tools.chi_square import p_value
from tools.toy_session import check_counts, result_of
from tools.witness import fresh_runner
from tools.zoo_pairs import PAIRS, Pair

from outrider.speculative.batch_outputs import Block
from outrider.speculative.engine import Engine
from outrider.speculative.sampler import Sampler
from outrider.speculative.settings import GenerationSettings, SamplingSettings

TEXT = "Once upon a time there was a lazy dog"
LAW = SamplingSettings(temp=1.0, top_k=8, top_p=1.0, min_p=0.0)
NUM_TOKENS = 4
NUM_SEEDS = 4_000

Tokens = tuple[int, ...]


def _texts(engine: Engine, prompt: list[int]) -> Iterator[tuple[Tokens, float]]:
    """Every answer of four tokens, or fewer and an end token, with its chance for the target."""
    runner, sampler = fresh_runner(engine, 1), Sampler(LAW)
    runner.decode([Block(0, np.array(prompt[:-1], np.int32), 0, num_outputs=0)])

    def after(tokens: Tokens, chance: float) -> Iterator[tuple[Tokens, float]]:
        is_ended = bool(tokens) and engine._target.vocabulary.is_end(tokens[-1])
        if is_ended or len(tokens) == NUM_TOKENS:
            yield tokens, chance
            return
        start = len(prompt) - 1 + len(tokens)
        runner.truncate(0, start)
        block = Block(0, np.array([*prompt, *tokens][start:], np.int32), start, num_outputs=1)
        [row] = runner.decode([block]).logits(block)
        law = sampler.distribution(row, np.empty(0, np.int32))
        for token, prob in zip(law.token_ids.tolist(), law.probs.tolist(), strict=True):
            yield from after((*tokens, token), chance * prob)

    yield from after((), 1.0)
    runner.close()


@pytest.mark.parametrize("name", ["draft-simple", "eagle3-d2t", "mtp-glm4moe"])
def test_sampled_drafts_do_not_change_the_law(name: str) -> None:
    pair: Pair = PAIRS[name]
    counts: Counter[Tokens] = Counter()
    drafted = accepted = 0
    with pair.load(n_max=NUM_TOKENS, sampling="probabilistic") as engine:
        prompt, session = engine.encode(TEXT), engine.session()
        ends = engine._target.vocabulary.end_ids
        law: defaultdict[Tokens, float] = defaultdict(float)
        for tokens, chance in _texts(engine, prompt):
            # which of the end tokens it was, an answer does not tell
            law[(*tokens[:-1], -1) if tokens[-1] in ends else tokens] += chance
        for seed in range(NUM_SEEDS):
            asked = GenerationSettings(LAW, predict=NUM_TOKENS, seed=seed)
            result = result_of(session.generate(prompt, asked))
            check_counts(result)
            assert set(result.stats.verification) <= {"rejection"}
            counts[(*result.token_ids, *[-1] * (result.finish_reason == "stop"))] += 1
            drafted += result.stats.drafted
            accepted += result.stats.accepted
    assert sum(law.values()) == pytest.approx(1)
    assert 0.6 < accepted / drafted < 0.99
    assert p_value(counts, law) > 0.001
