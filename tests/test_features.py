"""Every feature with every kind of drafter at every length: the answer is that of plain decoding.

At temperature 0, and under ``match`` with a seed, on a prompt below and one beyond 512 cells.
Each answer is also replayed on a fresh context, tolerance 0 (:mod:`tools.witness`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import pytest
from tools.ties import check_same
from tools.witness import Witness
from tools.zoo_pairs import PAIRS, PROMPTS

from outrider.speculative.engine import Engine
from outrider.speculative.events import GenerationResult
from outrider.speculative.settings import (
    DrafterSettings,
    GenerationSettings,
    GrammarSettings,
    ReasoningSettings,
    SamplingSettings,
    SpeculationSettings,
    Verify,
)

LENGTHS = (1, 3, 8)
DRAFTERS = ("oracle", "draft-simple", "ngram-simple", "ngram-edit", "draft-eagle3", "grammar")
PREDICT = 48
SEED = 11
NEAR_TIE = 0.05
NEAR, FAR = 0.01, 0.1  # between logarithms, below and beyond 512 cells
END = 4  # <|im_end|>
GREEDY, SAMPLED = SamplingSettings(temp=0), SamplingSettings(temp=0.9)

TEXTS = {prompt.name: prompt.text for prompt in PROMPTS}
SHORT = TEXTS["json-tom"]
LONG = "".join(TEXTS[name] + "\n" for name in ("story-fox", "code-add", "months")) * 8 + SHORT

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"enum": ["Tom", "Ruby", "Zoe"]},
        "age": {"type": "integer", "minimum": 1, "maximum": 99},
        "pets": {"type": "array", "items": {"enum": ["dog", "cat"]}, "maxItems": 3},
    },
    "required": ["name", "age", "pets"],
    "additionalProperties": False,
}
GBNF = 'root ::= "[" item ("," item){2,3} "]"\nitem ::= [0-9]+ | "(" item ")" | "ten"'
LARK = '%llguidance {}\nstart: WORD (" " WORD){3,6} "."\nWORD: /[a-z]{1,4}/'
ACCENTS = "(ä|ß|€|😀|é|x){6,9}"


def _grammar(kind: Any, text: str) -> dict[str, Any]:
    return {"grammar": GrammarSettings(kind, text, f"--{kind}")}


JSON = _grammar("json-schema", json.dumps(SCHEMA))


@dataclass(frozen=True, slots=True)
class Feature:
    """What is switched on, in the sampling and around it, and where it can run."""

    sampling: Mapping[str, Any]
    around: Mapping[str, Any]


def _sampling(**values: object) -> Feature:
    return Feature(values, {})


def _around(**values: object) -> Feature:
    return Feature({}, values)


def _thinking(budget: int, *, is_open: bool = True, **values: object) -> Feature:
    reasoning = ReasoningSettings("<think>", "</think>", is_open, budget, "enough")
    return _around(reasoning=reasoning, **values)


FEATURES: dict[str, Feature] = {
    "defaults": _sampling(),
    "penalties": _sampling(repeat_penalty=1.3, frequency_penalty=0.2, presence_penalty=0.1),
    "penalties, whole history": _sampling(repeat_penalty=1.2, repeat_last_n=-1),
    "dry": _sampling(dry_multiplier=1.5, dry_allowed_length=1),
    "top-n-sigma": _sampling(top_n_sigma=1.0),
    "typical": _sampling(typical_p=0.6, top_k=0),
    "xtc": _sampling(xtc_probability=0.5, xtc_threshold=0.05),
    "dynamic temperature": _sampling(dynatemp_range=0.5, dynatemp_exp=1.5),
    "mirostat 1": _sampling(mirostat=1, mirostat_tau=3.0),
    "mirostat 2": _sampling(mirostat=2, mirostat_tau=3.0),
    "order": _sampling(samplers=("temperature", "min_p", "top_k", "dry", "penalties"), top_k=9),
    "no temperature": _sampling(samplers=("top_k", "top_p")),
    "logit bias": _sampling(logit_bias={38: 2.0, 60: -1.0, 44: float("-inf")}),
    "ignore-eos": _sampling(ignore_eos=True),
    "all samplers": _sampling(
        repeat_penalty=1.1,
        dry_multiplier=0.5,
        top_n_sigma=2.0,
        typical_p=0.95,
        xtc_probability=0.3,
        dynatemp_range=0.2,
    ),
    "stop": _around(stop=('", "', "zzz", ": 7")),
    "stop in mid-token": _around(stop=("adr",)),
    "stops that share a prefix": _around(stop=('"Tom", "x', '"Tom", "a', '"Tom", "ag')),
    "predict": _around(predict=13),
    "end token": _around(predict=-1),
    "json schema": _around(**JSON),
    "gbnf": _around(**_grammar("grammar", GBNF)),
    "lark": _around(**_grammar("grammar", LARK)),
    "regex of bytes": _around(**_grammar("regex", ACCENTS)),
    "grammar and penalties": Feature({"repeat_penalty": 1.3, "xtc_probability": 0.5}, JSON),
    "grammar and mirostat": Feature({"mirostat": 2, "mirostat_tau": 3.0}, JSON),
    "grammar and ignore-eos": Feature({"ignore_eos": True}, JSON),
    "logprobs": _around(logprobs=3),
    "logprobs after the chain": _around(logprobs=3, post_sampling_probs=True),
    "reasoning": _thinking(-1),
    "reasoning budget": _thinking(7),
    "reasoning budget 0": _thinking(0),
    "reasoning, then a grammar": _thinking(5, **JSON),
    "no reasoning, then a grammar": _thinking(5, is_open=False, **JSON),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt and how it is to be answered."""

    prompt: str
    settings: GenerationSettings

    def ids(self, engine: Engine) -> list[int]:
        return engine.encode(self.prompt)


def _asked(feature: Feature, mode: SamplingSettings, prompt: str) -> Asked:
    settings = GenerationSettings(replace(mode, **feature.sampling), predict=PREDICT, seed=SEED)
    return Asked(prompt, replace(settings, **feature.around))


class Bench:
    """The target, with the drafters it is told; each answer is witnessed."""

    def __init__(self, drafters: Sequence[DrafterSettings] = ()) -> None:
        self.engine = PAIRS["draft-simple"].load(n_max=max(LENGTHS))
        self.engine.configure(_way(max(LENGTHS)), drafters)
        self._witness = Witness(self.engine)
        self._session = self.engine.session()

    def close(self) -> None:
        self._witness.close()
        self.engine.close()

    def configure(
        self, speculation: SpeculationSettings, drafters: Sequence[DrafterSettings]
    ) -> None:
        self._witness.configure(speculation, drafters)

    def answer(self, asked: Asked) -> GenerationResult:
        prompt_ids = asked.ids(self.engine)
        return self._witness.answer(self._session, prompt_ids, asked.settings, reset=True)


class Plain(Bench):
    """The target alone; its answers are remembered."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[str, GenerationResult] = {}

    def answer(self, asked: Asked) -> GenerationResult:
        key = repr(asked)
        if key not in self._known:
            self._known[key] = super().answer(asked)
        return self._known[key]


class Drafted(Bench):
    """The target with one kind of drafter."""

    def __init__(self, name: str, plain: Plain) -> None:
        self.name = name
        self.plain = plain
        self._drafter = _drafter(name)
        super().__init__([self._drafter])

    def draft(self, asked: Asked, length: int) -> GenerationResult:
        drafter = self._drafter
        if self.name == "oracle":
            drafter = _oracle(self.plain.answer(asked).token_ids, len(asked.ids(self.engine)))
        verify: Verify = "auto" if asked.settings.sampling.temp == 0 else "match"
        self.configure(_way(length, verify), [drafter])
        return self.answer(asked)


def _way(length: int, verify: Verify = "auto") -> SpeculationSettings:
    return SpeculationSettings(adaptive=False, n_max=length, verify=verify)


def _drafter(name: str) -> DrafterSettings:
    if name == "oracle":
        return _oracle((), 0)
    if name == "ngram-simple":
        return DrafterSettings(name, options={"match": 2, "size": 8})
    if name == "ngram-edit":
        return DrafterSettings(name, options={"match": 2})
    pairs = {"draft-simple": "draft-simple", "draft-eagle3": "eagle3-d2t"}
    return PAIRS[pairs[name]].drafter if name in pairs else DrafterSettings(name)


def _oracle(answer: Sequence[int], prompt_length: int) -> DrafterSettings:
    """Every fifth token is wrong; beyond the answer it goes on, with an end token first."""
    proposed = [*answer, END, 38]
    wrong = range(4, len(answer), 5)
    options = {"answer": proposed, "prompt_length": prompt_length, "wrong": wrong}
    return DrafterSettings("oracle", options=options)


@pytest.fixture(scope="module")
def plain() -> Iterator[Plain]:
    bench = Plain()
    yield bench
    bench.close()


@pytest.fixture(scope="module", params=DRAFTERS)
def drafted(request: pytest.FixtureRequest, plain: Plain) -> Iterator[Drafted]:
    bench = Drafted(request.param, plain)
    yield bench
    bench.close()


def _check(feature: str, plain: GenerationResult, ours: GenerationResult) -> None:
    """The whole of two answers with the same tokens."""
    assert ours.token_ids == plain.token_ids
    assert (ours.text, ours.reasoning) == (plain.text, plain.reasoning)
    assert ours.finish_reason == plain.finish_reason
    _check_form(feature, ours)


def _check_form(feature: str, result: GenerationResult) -> None:
    """What the feature promises by itself."""
    settings = FEATURES[feature].around
    for stop in settings.get("stop", ()):
        assert stop not in result.text
    if result.finish_reason == "stop" and settings.get("grammar") == JSON["grammar"]:
        value = json.loads(result.text)
        assert value["name"] in ("Tom", "Ruby", "Zoe")
        assert set(value["pets"]) <= {"dog", "cat"}
    if feature == "regex of bytes":
        assert re.fullmatch(ACCENTS, result.text)
    if "logprobs" in settings:
        assert result.logprobs is not None
        assert [row.token_id for row in result.logprobs] == result.token_ids
    if feature == "reasoning budget":
        assert result.reasoning is not None
        assert result.reasoning.endswith("enough")


def _check_logprobs(plain: GenerationResult, ours: GenerationResult, most: float) -> None:
    if plain.logprobs is None or ours.logprobs is None:
        return
    rows = list(zip(plain.logprobs, ours.logprobs, strict=True))
    apart = [abs(a.logprob - b.logprob) for a, b in rows if a.logprob >= -4.605]
    assert max(apart, default=0) <= most
    assert median(apart or [0]) <= 0.005


@pytest.mark.parametrize("feature", FEATURES)
def test_the_answer_is_that_of_plain_decoding(feature: str, drafted: Drafted) -> None:
    num_drafted = 0
    for mode in (GREEDY, SAMPLED):
        asked = _asked(FEATURES[feature], mode, SHORT)
        prompt_ids = asked.ids(drafted.engine)
        assert len(prompt_ids) + PREDICT < 512
        plain = drafted.plain.answer(asked)
        _check_form(feature, plain)
        for length in LENGTHS:
            ours = drafted.draft(asked, length)
            _check_form(feature, ours)
            tie = check_same(plain, ours, prompt_ids, asked.settings, drafted.engine)
            if tie is None:
                _check(feature, plain, ours)
                _check_logprobs(plain, ours, NEAR)
            else:  # one row and several differ in the second decimal of a logit, or the third
                assert tie.gap <= NEAR_TIE
            num_drafted += ours.stats.drafted
    # a grammar may leave nothing to draft, and the n-gram drafters have little to say
    is_constrained = "grammar" in FEATURES[feature].around
    assert (
        num_drafted > 0
        or is_constrained
        or drafted.name in ("grammar", "ngram-simple", "ngram-edit")
    )


@pytest.mark.parametrize("feature", FEATURES)
def test_a_longer_text_too(feature: str, drafted: Drafted) -> None:
    for mode in (GREEDY, SAMPLED):
        asked = _asked(FEATURES[feature], mode, LONG)
        prompt_ids = asked.ids(drafted.engine)
        assert len(prompt_ids) > 512
        plain, ours = drafted.plain.answer(asked), drafted.draft(asked, 3)
        _check_form(feature, ours)
        if check_same(plain, ours, prompt_ids, asked.settings, drafted.engine) is None:
            _check(feature, plain, ours)
            _check_logprobs(plain, ours, FAR)
