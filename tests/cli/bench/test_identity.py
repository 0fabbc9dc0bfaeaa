"""Texts at temperature 0: equal, parted at a tie, or wrong. Expected texts are llama-server's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tools.toy_session import result_of
from tools.witness import engine_settings, model_settings

from outrider.cli.bench.identity import (
    MAX_GAP,
    Asked,
    Difference,
    Identity,
    Plain,
    check_identity,
    first_difference,
)
from outrider.speculative.engine import Engine
from outrider.speculative.events import GenerationResult
from outrider.speculative.settings import GenerationSettings, ModelSettings, SamplingSettings

GREEDY = GenerationSettings(SamplingSettings(temp=0.0), predict=60)
UNSURE = "12, 11, 13,"  # no sequence it knows: two choices are near ones


@pytest.fixture(scope="module")
def target() -> ModelSettings:
    return model_settings(Path(__file__).parents[2] / "fixtures" / "zoo" / "target-llama.gguf")


@pytest.fixture(scope="module")
def plain(target: ModelSettings) -> Iterator[Plain]:
    with Plain(target) as made:
        yield made


@pytest.fixture(scope="module")
def engine(target: ModelSettings) -> Iterator[Engine]:
    with Engine.load(engine_settings(target.path)) as made:
        yield made


@pytest.fixture(scope="module")
def known() -> dict[str, Any]:
    path = Path(__file__).parents[2] / "fixtures" / "zoo" / "prompts.jsonl"
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return {line["id"]: line for line in lines}


@pytest.fixture(scope="module")
def answer(engine: Engine) -> Any:
    session = engine.session()

    def ask(prompt_ids: list[int], settings: GenerationSettings) -> GenerationResult:
        session.reset()
        return result_of(session.generate(prompt_ids, settings))

    return ask


@pytest.mark.parametrize("name", ["plus", "down", "table"])
def test_plain_writes_what_llama_server_writes(
    plain: Plain, engine: Engine, known: dict[str, Any], name: str
) -> None:
    expected = known[name]["greedy"]["target-llama"]["tokens"]
    settings = replace(GREEDY, predict=len(expected) + 5)
    text = plain.answer(engine.encode(known[name]["text"]), settings)
    assert [*text, *expected[-1:]] == expected  # the end token is no part of a text


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingSettings(temp=0.0, ignore_eos=True),
        SamplingSettings(temp=0.0, ignore_eos=True, repeat_penalty=1.5),
    ],
)
def test_plain_follows_the_settings(
    plain: Plain, engine: Engine, answer: Any, sampling: SamplingSettings
) -> None:
    ids, settings = engine.encode("Count from 3"), GenerationSettings(sampling, predict=40)
    assert plain.answer(ids, settings) == answer(ids, settings).token_ids


def test_a_gap_is_the_distance_of_two_logits(plain: Plain, engine: Engine, answer: Any) -> None:
    ids = engine.encode(UNSURE)
    made = answer(ids, replace(GREEDY, predict=30, logprobs=2))
    seen = 0
    for index, row in enumerate(made.logprobs):
        (best, best_logprob), (second, second_logprob) = row.top
        before = made.token_ids[:index]
        assert plain.gap(ids, GREEDY, before, [best]) == 0.0
        gap = plain.gap(ids, GREEDY, before, [best, second])
        distance = best_logprob - second_logprob
        if distance > MAX_GAP:
            assert gap is None
        else:
            seen += 1
            assert gap == pytest.approx(distance, abs=2e-4)
    assert seen == 2


def test_ties_and_faults(
    target: ModelSettings, engine: Engine, answer: Any, known: dict[str, Any]
) -> None:
    unsure = engine.encode(UNSURE)
    made = answer(unsure, replace(GREEDY, predict=30, logprobs=2))
    tied, distance = min(
        ((i, row.top[0][1] - row.top[1][1]) for i, row in enumerate(made.logprobs)),
        key=lambda each: each[1],
    )
    other = [*made.token_ids[:tied], made.logprobs[tied].top[1][0], 9]
    sure = engine.encode(known["plus"]["text"])
    right = answer(sure, GREEDY).token_ids
    wrong = [*right[:3], right[3] - 1, *right[4:]]
    asked = [
        Asked(sure, GREEDY, {"A": [right], "B": [right]}),
        Asked(unsure, GREEDY, {"A": [made.token_ids], "B": [made.token_ids, other]}),
        Asked(sure, GREEDY, {"A": [right], "B": [wrong]}),
        Asked(sure, GREEDY, {"A": [right], "B": [right[:2]]}),
    ]
    [found] = check_identity(asked, target, with_plain=False)
    tie, fault, ended = found.differences
    assert (found.sides, found.num_equal, found.num_prompts) == (("A", "B"), 1, 4)
    assert (tie.prompt, tie.token, tie.kind) == (2, tied + 1, "tie")
    assert tie.gap == pytest.approx(distance, abs=2e-4)
    assert fault == Difference(3, 4, None)
    assert fault.kind == "FAULT"
    assert ended == Difference(4, 3, None)


def test_a_side_that_speculates_is_held_against_plain(
    target: ModelSettings, engine: Engine, answer: Any, known: dict[str, Any]
) -> None:
    ids = engine.encode(known["plus"]["text"])
    settings = replace(GREEDY, predict=4)
    right = answer(ids, settings).token_ids
    wrong = [right[0], right[1] - 1, *right[2:]]
    asked = [Asked(ids, settings, {"A": [wrong], "B": [wrong]})]
    fault = (Difference(1, 2, None),)
    assert check_identity(asked, target, with_plain=True) == [
        Identity(("A", "B"), 1, 1, ()),
        Identity(("plain", "A"), 0, 1, fault),
        Identity(("plain", "B"), 0, 1, fault),
    ]


def test_the_earliest_difference_counts() -> None:
    asked = Asked([1], GREEDY, {"A": [[5, 6, 7]], "B": [[5, 6, 8], [5, 9, 7], [5, 6, 7]]})
    assert first_difference(asked, "A", "B") == (1, [5, 6, 7], [5, 9, 7])
