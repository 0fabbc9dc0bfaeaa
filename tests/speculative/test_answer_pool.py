"""Several threads ask one engine: each gets what it would get alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from tools.ties import check_same
from tools.toy_session import check_counts, result_of
from tools.witness import engine_settings
from tools.zoo_pairs import PAIRS, PROMPTS, Prompt

from outrider.speculative.answer_pool import AnswerPool
from outrider.speculative.engine import Engine
from outrider.speculative.errors import EngineError, PromptTooLongError
from outrider.speculative.events import GenerationResult
from outrider.speculative.settings import GenerationSettings, SamplingSettings

PAIR = PAIRS["draft-simple"]
ASKED = GenerationSettings(SamplingSettings(temp=0), predict=40)
NUM_THREADS = 3


@pytest.mark.parametrize("drafts", [False, True])
def test_answers_together_are_those_alone(drafts: bool) -> None:
    drafters = [PAIR.drafter] if drafts else []
    settings = engine_settings(PAIR.target, drafters, ctx_size=2048, parallel=NUM_THREADS + 1)
    ties = []
    with Engine.load(settings) as engine:
        alone = engine.session()
        expected = {
            prompt.name: result_of(alone.generate(engine.encode(prompt.text), ASKED))
            for prompt in PROMPTS
        }
        pool = engine.pool()
        together = [engine.session() for _ in range(NUM_THREADS)]

        def ask(number: int) -> dict[str, GenerationResult]:
            found = {}
            for prompt in PROMPTS[number::NUM_THREADS]:
                ids = engine.encode(prompt.text)
                result = pool.answer(together[number], ids, ASKED, keep_cache=False)
                check_counts(result)
                assert (result.stats.drafted > 0) == drafts or len(result.token_ids) < 4
                found[prompt.name] = result
            return found

        with ThreadPoolExecutor(NUM_THREADS) as threads:
            found = dict(
                item for each in threads.map(ask, range(NUM_THREADS)) for item in each.items()
            )
        pool.close()
        # all slots share one cache, and with it the shape of its arithmetic
        for prompt in PROMPTS:
            ids = engine.encode(prompt.text)
            plain, other = expected[prompt.name], found[prompt.name]
            ties.append(check_same(plain, other, ids, ASKED, engine))
    assert ties.count(None) >= len(PROMPTS) - 2


def test_a_conversation_keeps_its_cache() -> None:
    with Engine.load(engine_settings(PAIR.target, parallel=2)) as engine:
        pool, session = engine.pool(), engine.session()
        ids = engine.encode(PROMPTS[0].text)
        first = pool.answer(session, ids, ASKED)
        more = [*ids, *first.token_ids, *engine.encode(" and then")[1:]]
        second = pool.answer(session, more, ASKED)
        assert second.cached_tokens == len(ids) + len(first.token_ids) - 1
        assert pool.answer(session, ids, ASKED, keep_cache=False).cached_tokens == 0
        pool.close()


def test_what_cannot_be_answered_harms_nobody() -> None:
    with Engine.load(engine_settings(PAIR.target, ctx_size=256, parallel=2)) as engine:
        pool, session = engine.pool(), engine.session()
        with pytest.raises(PromptTooLongError):
            pool.answer(session, [5] * 300, ASKED)
        with pytest.raises(EngineError, match="the prompt is empty"):
            pool.answer(session, [], ASKED)
        prompt: Prompt = PROMPTS[0]
        result = pool.answer(session, engine.encode(prompt.text), ASKED)
        assert result.token_ids == PAIR.answer(prompt)
        pool.close()
        assert isinstance(pool, AnswerPool)
        assert not pool._thread.is_alive()
