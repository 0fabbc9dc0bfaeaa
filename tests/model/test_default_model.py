"""The default model as its own drafter and with n-grams: what the program promises of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from tools.ties import check_same
from tools.toy_session import result_of
from tools.witness import Witness

from outrider.speculative.engine import Engine
from outrider.speculative.events import GenerationResult
from outrider.speculative.settings import (
    DrafterSettings,
    EngineSettings,
    GenerationSettings,
    ModelSettings,
    SamplingSettings,
    SpeculationSettings,
)

FIXED = SpeculationSettings(adaptive=False, n_max=4)
NGRAM = DrafterSettings("ngram-simple", options={"match": 3})
GREEDY = GenerationSettings(SamplingSettings(temp=0), predict=64)

Drafter = Literal["itself", "ngram"]


class Bench:
    """One context of the model; each answer is replayed."""

    def __init__(self, engine: Engine, model: ModelSettings) -> None:
        self.engine = engine
        self._drafters = {"itself": DrafterSettings("draft-simple", model), "ngram": NGRAM}
        self._witness = Witness(engine)
        self._session = engine.session()

    def close(self) -> None:
        self._witness.close()

    def answer(
        self,
        prompt_ids: list[int],
        settings: GenerationSettings,
        drafter: Drafter | None,
        speculation: SpeculationSettings = FIXED,
        *,
        reset: bool = True,
    ) -> GenerationResult:
        drafters = [self._drafters[drafter]] if drafter else []
        self._witness.configure(speculation, drafters)
        if speculation.verify == "rejection":  # no draws that a row alone could tell
            self._session.reset()
            return result_of(self._session.generate(prompt_ids, settings))
        return self._witness.answer(self._session, prompt_ids, settings, reset=reset)

    def chat(self, text: str) -> list[int]:
        return self.engine.render([{"role": "user", "content": text}])


@pytest.fixture(scope="module")
def bench(default_model: Path) -> Iterator[Bench]:
    # one thread: two that share a core with other work wait for each other
    model = ModelSettings(default_model, ctx_size=1024, threads=1, threads_batch=1)
    itself = DrafterSettings("draft-simple", model)
    with Engine.load(EngineSettings(model, (itself,), replace(FIXED, n_max=8))) as engine:
        made = Bench(engine, model)
        yield made
        made.close()


def test_it_accepts_what_it_drafted_itself(bench: Bench) -> None:
    prompt = bench.chat("Count from one to twenty.")
    plain = bench.answer(prompt, GREEDY, None)
    result = bench.answer(prompt, GREEDY, "itself")
    check_same(plain, result, prompt, GREEDY, bench.engine)
    assert plain.stats.acceptance_rate is None
    assert result.stats.drafted > 40
    assert result.stats.acceptance_rate is not None
    assert result.stats.acceptance_rate >= 0.97


def test_it_accepts_what_it_drafted_itself_after_600_tokens(bench: Bench) -> None:
    prompt = bench.engine.encode("The quick brown fox jumps over the lazy dog. " * 60)
    assert len(prompt) >= 600
    settings = replace(GREEDY, predict=32)
    plain = bench.answer(prompt, settings, None)
    result = bench.answer(prompt, settings, "itself", reset=False)
    check_same(plain, result, prompt, settings, bench.engine)
    assert result.stats.acceptance_rate is not None
    assert result.stats.acceptance_rate >= 0.97


def _seeded(seed: int, temp: float = 0.8) -> GenerationSettings:
    law = SamplingSettings(temp=temp, ignore_eos=True)
    return GenerationSettings(law, predict=48, seed=seed)


KITE = "Write four lines about a red kite, then repeat them."


def test_matched_answers_are_plain_ones_and_ratio_tests_accept_more(bench: Bench) -> None:
    prompt, asked = bench.chat(KITE), _seeded(1)
    ratio = replace(FIXED, sampling="probabilistic", verify="rejection")
    plain = bench.answer(prompt, asked, None)
    matched = bench.answer(prompt, asked, "itself", replace(FIXED, verify="match"))
    check_same(plain, matched, prompt, asked, bench.engine)
    assert matched.stats.verification["match"] == matched.stats.drafts
    assert matched.stats.drafted > matched.stats.accepted >= 12
    tested = bench.answer(prompt, asked, "itself", ratio)
    assert tested.stats.verification["rejection"] == tested.stats.drafts > 0
    assert matched.stats.acceptance_rate is not None
    assert tested.stats.acceptance_rate is not None
    # the law it drafts from is the one it is verified by
    assert tested.stats.acceptance_rate > 0.95 > matched.stats.acceptance_rate


def test_ngrams_match_where_the_text_repeats(bench: Bench) -> None:
    prompt = bench.engine.encode("The quick brown fox jumps over the lazy dog." * 8)
    settings = _seeded(2, temp=0.3)
    plain = bench.answer(prompt, settings, None)
    result = bench.answer(prompt, settings, "ngram", replace(FIXED, n_max=8))
    check_same(plain, result, prompt, settings, bench.engine)
    assert result.stats.verification["match"] == result.stats.drafts
    assert result.stats.drafted >= 30
    assert result.stats.accepted > 0
