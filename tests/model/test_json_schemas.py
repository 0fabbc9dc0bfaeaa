"""Random JSON schemas and a drafter that proposes rubbish: the answers are valid all the same."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from jsonschema import Draft202012Validator, FormatChecker
from tools.random_schema import FORMATS, RandomSchema, Schema
from tools.ties import check_same
from tools.toy_session import check_counts, result_of
from tools.witness import Witness, engine_settings
from tools.zoo_pairs import PROMPTS, ZOO

from outrider.speculative.distribution import Distribution
from outrider.speculative.drafters.drafter import Drafter, DrafterDefaults
from outrider.speculative.engine import Engine
from outrider.speculative.events import GenerationResult
from outrider.speculative.proposal import DraftLaw, DraftRequest, Proposal
from outrider.speculative.settings import (
    DrafterSettings,
    GenerationSettings,
    GrammarSettings,
    SamplingSettings,
)

COUNT = 200
LENGTH = 4
VOCAB_SIZE = 512
ENDS = (2, 4)
TEXT = next(prompt.text for prompt in PROMPTS if prompt.name == "json-tom")
CHECKER = FormatChecker(())
CHECKER.checkers = {
    name: Draft202012Validator.FORMAT_CHECKER.checkers[name]
    for name in FORMATS
    if not name.startswith("date")  # llguidance allows 29 February in every year
}
GREEDY = SamplingSettings(temp=0)
SAMPLED = SamplingSettings(temp=0.8)


def _schemas(count: int) -> list[Schema]:
    maker = RandomSchema(seed=4)
    return [maker.make() for _ in range(count)]


SCHEMAS = _schemas(COUNT)


class RubbishDrafter(DrafterDefaults):
    """Any tokens, or tokens that the grammar allows and no model wants; ends in the middle.

    Drawn ones come with their law, within the grammar or without regard to it. The same text
    gets the same rubbish.
    """

    name = "rubbish"
    n_max = LENGTH
    gives_law = True

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        return [self._propose(request) for request in requests]

    def _propose(self, request: DraftRequest) -> Proposal:
        random = np.random.default_rng(request.token_ids[-8:].tolist())
        law = request.law() if random.random() < 0.5 else None
        tokens: list[int] = []
        laws: list[Distribution] = []
        while len(tokens) < request.max_tokens:
            one = _allowed(random, law, request) if law else _any(random)
            if one is None:
                break
            tokens.append(one.mode if request.uniform is None else one.draw(request.uniform()))
            laws.append(one)
            if law is not None:
                law.push(tokens[-1])
        return Proposal(tuple(tokens), None if request.uniform is None else tuple(laws))


def _allowed(
    random: np.random.Generator, law: DraftLaw, request: DraftRequest
) -> Distribution | None:
    row = random.normal(size=VOCAB_SIZE).astype(np.float32)
    return law.distribution(row, request.token_ids)


def _any(random: np.random.Generator) -> Distribution:
    if random.random() < 0.3:
        return Distribution.point(int(random.choice(ENDS)))
    tokens = random.choice(VOCAB_SIZE, 4, replace=False)
    return Distribution.softmax(tokens, random.normal(size=4))


class Bench:
    """An engine of the target that answers with a schema; drafted answers can be replayed."""

    def __init__(
        self, drafter: str | Drafter | None, *, is_drawn: bool = False, is_replayed: bool = False
    ) -> None:
        kind = drafter if isinstance(drafter, str) else "filler"
        settings = [DrafterSettings(kind)] if drafter else []
        self.engine = Engine.load(
            engine_settings(
                ZOO / "target-llama.gguf",
                settings,
                ctx_size=512,
                n_max=LENGTH,
                verify="rejection" if is_drawn else "auto",
                sampling="probabilistic" if is_drawn else "greedy",
            )
        )
        if drafter is not None and not isinstance(drafter, str):
            self.engine._running.drafter.members[0] = drafter
        self._witness = Witness(self.engine) if is_replayed else None
        self._session = self.engine.session()
        self.prompt_ids = self.engine.encode(TEXT)

    def close(self) -> None:
        if self._witness is not None:
            self._witness.close()
        self.engine.close()

    def answer(self, number: int, sampling: SamplingSettings) -> GenerationResult:
        result = self._answer(_settings(number, sampling))
        assert result.finish_reason in ("stop", "length"), (number, result.error)
        if result.finish_reason == "stop":
            _check_valid(SCHEMAS[number], result.text)
        return result

    def _answer(self, settings: GenerationSettings) -> GenerationResult:
        if self._witness is not None:
            return self._witness.answer(self._session, self.prompt_ids, settings)
        result = result_of(self._session.generate(self.prompt_ids, settings))
        check_counts(result)
        return result


def _settings(number: int, sampling: SamplingSettings) -> GenerationSettings:
    grammar = GrammarSettings("json-schema", json.dumps(SCHEMAS[number]), f"schema {number}")
    return GenerationSettings(sampling, predict=400, seed=number, grammar=grammar)


def _check_valid(schema: Schema, text: str) -> None:
    validator = Draft202012Validator(schema, format_checker=CHECKER)
    errors = [error.message for error in validator.iter_errors(json.loads(text))]
    assert not errors, text


def _bench(
    drafter: str | Drafter | None, *, is_drawn: bool = False, is_replayed: bool = False
) -> Iterator[Bench]:
    bench = Bench(drafter, is_drawn=is_drawn, is_replayed=is_replayed)
    yield bench
    bench.close()


@pytest.fixture(scope="module")
def plain() -> Iterator[Bench]:
    yield from _bench(None)


@pytest.fixture(scope="module")
def rubbish() -> Iterator[Bench]:
    yield from _bench(RubbishDrafter())


@pytest.fixture(scope="module")
def witnessed() -> Iterator[Bench]:
    yield from _bench(RubbishDrafter(), is_replayed=True)


@pytest.fixture(scope="module")
def ratio_tested() -> Iterator[Bench]:
    yield from _bench(RubbishDrafter(), is_drawn=True)


@pytest.fixture(scope="module")
def forced() -> Iterator[Bench]:
    yield from _bench("grammar")


def test_the_schemas_are_of_every_kind() -> None:
    text = json.dumps(SCHEMAS)
    words = ("anyOf", "$ref", "enum", "const", "pattern", "patternProperties", "prefixItems")
    limits = ("minLength", "exclusiveMaximum", "multipleOf", "minItems", "maxProperties")
    few = [word for word in (*words, *limits) if text.count(f'"{word}": ') < 10]
    assert not few
    assert not [name for name in FORMATS if f'"format": "{name}"' not in text]
    assert all(f'"additionalProperties": {way}' in text for way in ("false", "true", "{"))


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "match"])
def test_answers_are_valid_and_those_of_plain_decoding(
    sampling: SamplingSettings, plain: Bench, rubbish: Bench, witnessed: Bench
) -> None:
    """At a near tie another token may be right: one row and several are not computed alike.

    Such an answer is given again and replayed; a greedy one must part from plain's at a tie.
    """
    counts: Counter[str] = Counter()
    for number in range(COUNT):
        expected, ours = plain.answer(number, sampling), rubbish.answer(number, sampling)
        if ours.token_ids != expected.token_ids:
            assert witnessed.answer(number, sampling).token_ids == ours.token_ids
            if sampling is GREEDY:
                _check_tie(expected, ours, number, plain)
        else:
            assert (ours.text, ours.finish_reason) == (expected.text, expected.finish_reason)
        counts.update(
            same=ours.token_ids == expected.token_ids,
            stopped=ours.finish_reason == "stop",
            accepted=ours.stats.accepted,
            rejected=ours.stats.drafted - ours.stats.accepted,
            forbidden=ours.stats.discarded,
        )
    assert counts["stopped"] >= 0.95 * COUNT
    assert counts["same"] >= 0.95 * COUNT
    assert min(counts["accepted"], counts["rejected"], counts["forbidden"]) > 1000


def _check_tie(plain: GenerationResult, ours: GenerationResult, number: int, bench: Bench) -> None:
    check_same(plain, ours, bench.prompt_ids, _settings(number, GREEDY), bench.engine)


def test_what_the_ratio_test_keeps_is_valid(ratio_tested: Bench) -> None:
    counts: Counter[str] = Counter()
    for number in range(0, COUNT, 2):
        result = ratio_tested.answer(number, SAMPLED)
        assert result.stats.verification["rejection"] == result.stats.drafts
        counts.update(
            stopped=result.finish_reason == "stop",
            accepted=result.stats.accepted,
            rejected=result.stats.drafted - result.stats.accepted,
        )
    assert counts["stopped"] >= 0.95 * COUNT / 2
    assert min(counts["accepted"], counts["rejected"]) > 500


def test_what_is_forced_saves_steps(plain: Bench, forced: Bench) -> None:
    steps = dict.fromkeys(("plain", "forced"), 0)
    for number in range(0, COUNT, 4):
        expected, ours = plain.answer(number, GREEDY), forced.answer(number, GREEDY)
        _check_tie(expected, ours, number, plain)
        steps["plain"] += expected.stats.steps
        steps["forced"] += ours.stats.steps
    assert steps["forced"] < 0.9 * steps["plain"]


def test_a_forced_key_and_value_come_with_what_mostly_follows(plain: Bench) -> None:
    properties: Schema = {"name": {"const": "red fish"}, "note": {"type": "string"}, "age": {}}
    schema = {"properties": properties, "required": list(properties)}
    grammar = GrammarSettings("json-schema", json.dumps({"type": "object", **schema}), "schema")
    constraint = plain.engine._constrain(grammar)
    encode = plain.engine._target.vocabulary.encode_bytes
    for text, forced in (
        (b'{ "', b'name": "red fish",'),
        (b'name": "red fish",\n"', b'note": "'),
        (b'note": "a', b""),
        (b'", "', b'age": '),
    ):
        constraint.advance(encode(text))
        assert constraint.forced(64) == constraint.forced(64) == encode(forced)
