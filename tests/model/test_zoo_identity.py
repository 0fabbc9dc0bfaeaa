"""The tiny trained pair against what llama-server wrote: plain, with a chain, on a long text.

``prompts.jsonl`` has its greedy answers. Every drafter alone: :mod:`model.test_zoo_pairs`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tools.ties import check_same
from tools.witness import Witness, engine_settings, model_settings

from outrider.speculative.engine import Engine
from outrider.speculative.settings import DrafterSettings, GenerationSettings, SamplingSettings

ZOO = Path(__file__).parent.parent / "fixtures" / "zoo"
TARGET = ZOO / "target-llama.gguf"
SIMPLE = DrafterSettings("draft-simple", model_settings(ZOO / "draft-simple.gguf"))
NGRAM = DrafterSettings("ngram-simple", options={"match": 3, "size": 4})
GREEDY = SamplingSettings(temp=0)
PREDICT = 100


def _lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (ZOO / name).read_text().splitlines()]


PROMPTS = _lines("prompts.jsonl")


def _ends(engine: Engine) -> set[int]:
    return set(engine._target.vocabulary.end_ids)


def _told(prompt: dict[str, Any], ends: set[int]) -> list[int]:
    """What llama-server answered, without the end token that it lists."""
    told = prompt["greedy"]["target-llama"]
    tokens: list[int] = told["tokens"]
    assert told["stop"] == "eos"
    assert tokens[-1] in ends
    assert len(tokens) <= PREDICT
    return tokens[:-1]


def _check_prompts(drafters: Sequence[DrafterSettings], n_max: int | None) -> tuple[int, int]:
    """All prompts in one session; drafted and accepted tokens."""
    drafted = accepted = 0
    with Engine.load(engine_settings(TARGET, drafters, n_max=n_max)) as engine:
        witness, session = Witness(engine), engine.session()
        for prompt in PROMPTS:
            prompt_ids = engine.encode(prompt["text"])
            assert len(prompt_ids) == prompt["greedy"]["target-llama"]["n_prompt"]
            asked = GenerationSettings(GREEDY, predict=PREDICT)
            result = witness.answer(session, prompt_ids, asked)
            assert result.token_ids == _told(prompt, _ends(engine)), prompt["id"]
            assert result.text == prompt["greedy"]["target-llama"]["text"]
            assert result.finish_reason == "stop"
            drafted += result.stats.drafted
            accepted += result.stats.accepted
        witness.close()
    return drafted, accepted


def test_plain_answers_are_those_of_llama_server() -> None:
    assert _check_prompts([], None) == (0, 0)


@pytest.mark.parametrize("n_max", [2, 5])
def test_answers_with_a_chain_are_the_same(n_max: int) -> None:
    drafted, accepted = _check_prompts([NGRAM, SIMPLE], n_max)
    assert 0 < accepted < drafted


# beyond 512 cells one row and several rows are computed in different ways


@pytest.fixture(scope="module")
def long_text() -> str:
    """A conversation of many turns."""
    turns: list[str] = [p["text"] + p["greedy"]["target-llama"]["text"] for p in PROMPTS[:10]]
    return "<|im_end|>\n".join([*turns, PROMPTS[8]["text"]])


@pytest.mark.parametrize("drafter", [SIMPLE, NGRAM], ids=["draft-simple", "ngram-simple"])
@pytest.mark.parametrize("temp", [0, 0.8])
def test_a_long_text_parts_from_plain_only_at_ties(
    drafter: DrafterSettings, temp: float, long_text: str
) -> None:
    law = SamplingSettings(temp=temp, top_k=0 if temp else 40, ignore_eos=True)
    asked = GenerationSettings(law, predict=80, seed=6)
    with Engine.load(engine_settings(TARGET)) as engine:
        prompt_ids = engine.encode(long_text)
        assert 512 < len(prompt_ids) < 1024 - 80
        witness = Witness(engine)
        plain = witness.answer(engine.session(), prompt_ids, asked)
        witness.close()
    drafted = 0
    for n_max in (1, 3, 4, 8):
        with Engine.load(engine_settings(TARGET, [drafter], n_max=n_max)) as engine:
            witness = Witness(engine)
            result = witness.answer(engine.session(), prompt_ids, asked)
            witness.close()
            check_same(plain, result, prompt_ids, asked, engine)
            drafted += result.stats.drafted
    assert drafted > 12
