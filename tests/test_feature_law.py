"""The law of answers with every feature, under rejection sampling: that of the rules, enumerated.

The identity side of the same table is :mod:`test_features`. Mirostat has no rejection sampling:
its law is that of ``match``.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, TypeVar

import numpy as np
import pytest
from tools.chi_square import p_value
from tools.reference_law import AnswerLaw, Language, Outcome
from tools.toy_grammar import toy_constrain
from tools.toy_runner import Rows, ToyRunner, ToyTokenizer, blurred, markov
from tools.toy_session import adaptive, answer, check_counts, fixed, toy_session

from outrider.speculative.drafters.drafter import Drafter
from outrider.speculative.drafters.made_up import ScriptDrafter
from outrider.speculative.drafters.model_drafter import ModelDrafter
from outrider.speculative.events import GenerationResult
from outrider.speculative.settings import (
    DraftSampling,
    GenerationSettings,
    GrammarSettings,
    ReasoningSettings,
    SamplingSettings,
    SpeculationSettings,
    Verify,
)

T = TypeVar("T", bound=Hashable)

COUNTED = 4  # tokens of an answer that are looked at
PREDICT = 5  # the first is no step, and the longest draft takes one more than its length


@dataclass(frozen=True)
class Toy:
    """A vocabulary with one end token, a target, and a drafter that is ``blur`` from it."""

    pieces: tuple[bytes, ...]
    prompt: tuple[int, ...]
    seed: int = 1
    suppressed: tuple[int, ...] = ()
    blur: float = 1.4

    @property
    def size(self) -> int:
        return len(self.pieces)

    @property
    def tokenizer(self) -> ToyTokenizer:
        tokenizer = ToyTokenizer(self.pieces, {self.size - 1})
        tokenizer.suppressed_ids = self.suppressed
        return tokenizer

    @property
    def target(self) -> Rows:
        return markov(self.size, 2, self.seed, spread=1.2)

    @property
    def drafter(self) -> Rows:
        return blurred(self.target, self.size, seed=2, spread=self.blur)


END = b"$"
LETTERS = Toy((b"a", b"b", b"c", b"d", END), prompt=(0, 1, 2, 0), seed=4)
PARTS = Toy((b"a", b"b", b"c", b"ab", b"bac", END), prompt=(0, 1, 2))
LIST = Toy((b"[", b"]", b"1", b",", b"[1", b",1", b"11", END), prompt=(0, 1))
NESTED = Toy((b"a", b"b", b"c", b"aa", b"cb", b"bb", END), prompt=(0, 1), blur=2.0)
THOUGHTS = Toy((b"a", b"b", b"m", b"<", b">", b"ab", END), prompt=(0, 1))


# grammars, and their strings by hand


def _repeated(parts: Sequence[str], counts: Sequence[int], between: str = "") -> set[str]:
    return {between.join(some) for n in counts for some in product(parts, repeat=n)}


GRAMMARS: dict[str, tuple[Toy, GrammarSettings, Language]] = {
    "regex": (
        PARTS,
        GrammarSettings("regex", "(ab|ba|c){2,3}", "--regex"),
        Language(_repeated(("ab", "ba", "c"), (2, 3))),
    ),
    "json": (
        LIST,
        GrammarSettings(
            "json-schema", '{"type": "array", "items": {"enum": [1, 11]}, "maxItems": 3}', "--json"
        ),
        Language({f"[{items}]" for items in _repeated(("1", "11"), range(4), ",")}),
    ),
    "gbnf": (
        NESTED,
        GrammarSettings("grammar", 'root ::= "a" root "b" | "c" | "cc"', "--grammar"),
        # all that five tokens can begin
        Language({"a" * n + c + "b" * n for n in range(11) for c in ("c", "cc")}),
    ),
    "answer": (
        THOUGHTS,
        GrammarSettings("regex", "(ab|ba){1,2}", "--regex"),
        Language(_repeated(("ab", "ba"), (1, 2))),
    ),
    "dictated": (
        PARTS,
        GrammarSettings("grammar", 'root ::= "abac" [ab]{2} | "c"', "--grammar"),
        Language({"c", *("abac" + end for end in _repeated(("a", "b"), (2,)))}),
    ),
}


@pytest.mark.parametrize("name", GRAMMARS)
def test_a_grammar_allows_every_cut_of_its_strings(name: str) -> None:
    toy, grammar, language = GRAMMARS[name]
    constrain, tokenizer = toy_constrain(toy.tokenizer), toy.tokenizer
    [end] = tokenizer.end_ids
    walks: list[tuple[int, ...]] = [()]
    for walk in walks:
        text = b"".join(map(tokenizer.piece, walk)).decode()
        expected = {
            token for token in range(end) if language.begins(text + tokenizer.piece(token).decode())
        }
        constraint = constrain(grammar)
        constraint.advance(walk)
        assert constraint.is_complete == (not expected)
        if expected:
            walks += [(*walk, token) for token in expected if len(walk) < COUNTED]
            expected |= {end} if language.is_whole(text) else set()
            mask = constraint.masks()[0].dense(toy.size)
            assert set(np.flatnonzero(mask).tolist()) == expected, text
    assert len(walks) > 10


# the features


@dataclass(frozen=True)
class Feature:
    """A toy model and what is asked of it."""

    toy: Toy
    settings: GenerationSettings
    language: Language | None = None
    breakers: tuple[tuple[int, ...], ...] = ()
    falls_back: bool = False

    @property
    def law(self) -> AnswerLaw:
        return AnswerLaw(
            self.toy.target,
            self.toy.tokenizer,
            self.toy.prompt,
            self.settings,
            self.language,
            self.breakers,
        )


PLAIN = SamplingSettings(temp=1.0, top_k=0, top_p=1.0, min_p=0.0)
PENALTIES: dict[str, Any] = {
    "repeat_penalty": 1.5,
    "repeat_last_n": 3,
    "frequency_penalty": 0.6,
    "presence_penalty": 0.6,
}
DRY: dict[str, Any] = {
    "dry_multiplier": 3.0,
    "dry_base": 3.0,
    "dry_allowed_length": 1,
    "dry_penalty_last_n": 7,
    "dry_sequence_breakers": ("d", "ca"),
}
BREAKERS = ((3,), (2, 0))
XTC: dict[str, Any] = {"xtc_probability": 0.5, "xtc_threshold": 0.1}


def _sampling(
    *, toy: Toy = LETTERS, breakers: tuple[tuple[int, ...], ...] = (), **values: Any
) -> Feature:
    """All samplers off but those that are named."""
    return Feature(toy, GenerationSettings(replace(PLAIN, **values)), breakers=breakers)


def _grammar(
    name: str,
    *,
    seed: int = 1,
    falls_back: bool = False,
    reasoning: ReasoningSettings | None = None,
    **values: Any,
) -> Feature:
    toy, grammar, language = GRAMMARS[name]
    settings = GenerationSettings(replace(PLAIN, **values), grammar=grammar, reasoning=reasoning)
    return Feature(replace(toy, seed=seed), settings, language, falls_back=falls_back)


def _thinking(budget: int, message: str = "", *, is_open: bool = True) -> ReasoningSettings:
    return ReasoningSettings("<", ">", is_open, budget, message)


FEATURES = {
    "defaults": Feature(LETTERS, GenerationSettings()),
    "penalties": _sampling(**PENALTIES),
    "penalties, whole history": _sampling(repeat_penalty=1.5, repeat_last_n=-1),
    "dry": _sampling(**DRY, breakers=BREAKERS),
    "top-n-sigma": _sampling(top_n_sigma=0.9),
    "typical": _sampling(typical_p=0.7),
    "xtc": _sampling(**XTC),
    "dynamic temperature": _sampling(dynatemp_range=0.9, dynatemp_exp=0.3),
    "logit bias": _sampling(logit_bias={0: 1.5, 1: -1.0, 2: -math.inf}),
    "ignore-eos": _sampling(ignore_eos=True),
    "suppressed token": _sampling(toy=replace(LETTERS, suppressed=(2,))),
    "order": _sampling(
        samplers=("temperature", "min_p", "xtc", "top_k", "dry", "penalties"),
        breakers=BREAKERS,
        temp=0.7,
        min_p=0.1,
        top_k=4,
        **PENALTIES,
        **DRY,
        **XTC,
    ),
    "another order": _sampling(
        samplers=("xtc", "typ_p", "temperature", "top_p", "penalties", "top_n_sigma"),
        temp=1.6,
        typical_p=0.9,
        top_p=0.8,
        top_n_sigma=1.5,
        **PENALTIES,
        **XTC,
    ),
    "no temperature": _sampling(samplers=("top_k", "top_p"), temp=0.3, top_k=4, top_p=0.9),
    "everything": _sampling(
        toy=replace(LETTERS, suppressed=(3,)),
        breakers=BREAKERS,
        temp=1.2,
        dynatemp_range=0.5,
        top_k=4,
        top_p=0.95,
        min_p=0.05,
        typical_p=0.95,
        top_n_sigma=2.0,
        logit_bias={0: 0.5, 2: 0.5},
        **PENALTIES,
        **DRY,
        **XTC,
    ),
    "regex": _grammar("regex"),
    "json": _grammar("json"),
    "gbnf": _grammar("gbnf"),
    "dictated text": _grammar("dictated"),
    "grammar after the defaults": _grammar("json", temp=0.8, top_k=40, top_p=0.95, min_p=0.05),
    "grammar beyond the truncation": _grammar("regex", seed=8, top_k=3, falls_back=True),
    "grammar, penalties, xtc": _grammar("regex", **PENALTIES, **XTC),
    "grammar beyond all": _grammar(
        "regex", seed=8, top_k=3, dynatemp_range=0.5, falls_back=True, **PENALTIES, **XTC
    ),
    "grammar and ignore-eos": _grammar("regex", ignore_eos=True),
    "reasoning budget": Feature(THOUGHTS, GenerationSettings(PLAIN, reasoning=_thinking(2, "m"))),
    "reasoning budget 0": Feature(THOUGHTS, GenerationSettings(PLAIN, reasoning=_thinking(0))),
    "reasoning budget, xtc": Feature(
        THOUGHTS, GenerationSettings(replace(PLAIN, **XTC), reasoning=_thinking(2))
    ),
    "reasoning, then a grammar": _grammar("answer", reasoning=_thinking(-1)),
    "reasoning budget, then a grammar": _grammar("answer", reasoning=_thinking(1)),
    "reasoning or not, then a grammar": _grammar(
        "answer", reasoning=_thinking(1, is_open=False), logit_bias={3: 1.5}
    ),
    "mirostat 1": _sampling(mirostat=1, mirostat_tau=1.2, mirostat_eta=0.5),
    "mirostat 2": _sampling(mirostat=2, mirostat_tau=1.5, mirostat_eta=1.0),
    "grammar and mirostat": _grammar("gbnf", mirostat=2, mirostat_tau=2.0, mirostat_eta=1.2),
}
STOPS = {
    "stop strings": _sampling(toy=PARTS),
    "stop strings, xtc": _sampling(toy=PARTS, **XTC),
}
STOP = ("ba", "aba", "bc", "cac")


# the drafters


def _model(toy: Toy) -> Drafter:
    return ModelDrafter(ToyRunner(toy.drafter, toy.size), toy.size, n_max=8)


def _noise(toy: Toy) -> Drafter:
    numbers = np.random.default_rng(3)
    drafts = (numbers.integers(0, toy.size, numbers.integers(0, 4)).tolist() for _ in iter(int, 1))
    return ScriptDrafter(drafts)


@dataclass(frozen=True)
class Way:
    """Drafters, whether they sample, and how many answers are looked at."""

    members: tuple[Callable[[Toy], Drafter], ...]
    sampling: DraftSampling
    num_seeds: int


WAYS = {
    "model": Way((_model,), "probabilistic", 600),
    "best of the model": Way((_model,), "greedy", 360),
    "noise, model": Way((_noise, _model), "probabilistic", 240),
}
LENGTHS = [*map(fixed, (1, 2, 3)), adaptive(3)]


def _answers(toy: Toy, way: Way, settings: GenerationSettings) -> Iterator[GenerationResult]:
    """Seeded answers with drafts of all lengths."""
    verify: Verify = "match" if settings.sampling.mirostat else "rejection"
    rules: set[str] = set()
    drafted = accepted = 0
    for i, length in enumerate(LENGTHS):
        session = toy_session(
            ToyRunner(toy.target, toy.size),
            toy.tokenizer,
            [make(toy) for make in way.members],
            length,
            SpeculationSettings(sampling=way.sampling, verify=verify),
            toy_constrain(toy.tokenizer),
        )
        for seed in range(i, way.num_seeds, len(LENGTHS)):
            result = answer(session, toy.prompt, replace(settings, seed=seed))
            check_counts(result)
            rules |= result.stats.verification.keys()
            drafted += result.stats.drafted
            accepted += result.stats.accepted
            yield result
    assert rules == {verify}
    assert 0 < accepted < drafted


def _check(counts: Mapping[T, int], law: Mapping[T, float]) -> None:
    assert sum(law.values()) == pytest.approx(1)
    assert p_value(counts, law) > 0.001


def _outcome(toy: Toy, result: GenerationResult) -> Outcome:
    """What an answer counts as."""
    assert result.finish_reason in ("stop", "length")
    ended = [toy.size - 1] if result.finish_reason == "stop" else []
    return tuple([*result.token_ids, *ended][:COUNTED])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FEATURES)
def test_answers_have_the_law_of_the_rules(name: str, way: str) -> None:
    feature = FEATURES[name]
    asked = replace(feature.settings, predict=PREDICT)
    answers = _answers(feature.toy, WAYS[way], asked)
    counts = Counter(_outcome(feature.toy, result) for result in answers)
    _check(counts, feature.law.outcomes(COUNTED))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", STOPS)
def test_texts_have_the_law_of_the_text_before_a_stop_string(name: str, way: str) -> None:
    feature = STOPS[name]
    asked = replace(feature.settings, predict=PREDICT, stop=STOP)
    law = replace(feature.law, settings=asked).texts()
    _check(Counter(result.text for result in _answers(feature.toy, WAYS[way], asked)), law)


# what makes the tests above worth something: each feature is seen in the law


@pytest.mark.parametrize("name", FEATURES)
def test_the_feature_shows_in_the_law(name: str) -> None:
    feature = FEATURES[name]
    toy = replace(feature.toy, suppressed=())
    law, off = feature.law.outcomes(COUNTED), _sampling(toy=toy).law.outcomes(COUNTED)
    distance = sum(abs(law.get(cell, 0) - off.get(cell, 0)) for cell in {*law, *off}) / 2
    assert distance > 0.07
    assert sum(prob > 0.005 for prob in law.values()) >= 7
    if feature.falls_back:
        assert feature.law.fallbacks(COUNTED) > 0.1


@pytest.mark.parametrize("way", WAYS)
def test_a_token_that_ends_the_thought_is_held_to_the_grammar(way: str) -> None:
    """``>m`` ends the thought, but no answer begins with m; ``>a`` may come."""
    toy = Toy((b"a", b"b", b"m", b"<", b">", b">a", b">m", b"$"), prompt=(0, 1))
    _, grammar, _ = GRAMMARS["answer"]
    asked = GenerationSettings(PLAIN, grammar=grammar, reasoning=_thinking(2), predict=5)
    texts = {result.text for result in _answers(toy, WAYS[way], asked)}
    assert texts >= {"ab", "ba"}
    assert all(re.fullmatch(r"(ab|ba){0,2}[ab]?", text) for text in texts)
