"""What speculation may not change: the law of the answers, and greedy or matched answers at all."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from tools.chi_square import p_value
from tools.recording_runner import RecordingRunner
from tools.replay import Answer, Replay
from tools.toy_runner import (
    Rows,
    ToyRunner,
    ToyTokenizer,
    blurred,
    markov,
    reciting,
    remembering,
)
from tools.toy_session import adaptive, answer, check_counts, fixed, toy_session

from outrider.speculative.draft_length import DraftLength
from outrider.speculative.drafters.drafter import Drafter
from outrider.speculative.drafters.made_up import FillerDrafter, OracleDrafter, ScriptDrafter
from outrider.speculative.drafters.model_drafter import ModelDrafter
from outrider.speculative.drafters.ngram_simple import NgramSimpleDrafter
from outrider.speculative.events import GenerationResult
from outrider.speculative.settings import GenerationSettings, SamplingSettings, SpeculationSettings

# the law of answers: so few tokens that all beginnings of an answer can be listed

SIZE = 5
END = 4
COUNTED = 4  # tokens of an answer that are looked at
PREDICT = 6  # the first is no step, and the longest draft takes one more than its length
PROMPT = (0, 1, 1)
TOKENIZER = ToyTokenizer([bytes([97 + i]) for i in range(SIZE)], {END})
TARGET = markov(SIZE, 2, seed=1, spread=1.2)
NEAR = blurred(TARGET, SIZE, seed=2, spread=0.8)
NUM_SEEDS = 2000

TRUNCATED = SamplingSettings(temp=0.9, top_k=4, top_p=0.97, min_p=0.03)
PENALISED = SamplingSettings(
    temp=1.1,
    top_k=0,
    top_p=1.0,
    min_p=0.0,
    repeat_penalty=1.3,
    repeat_last_n=4,
    frequency_penalty=0.2,
    presence_penalty=0.3,
    logit_bias={2: -0.5, 3: 0.5},
)


def _law(row: Sequence[float], history: Sequence[int], sampling: SamplingSettings) -> list[float]:
    """llama.cpp's chain, written for reading: the probability of each token."""
    logits = [float(x) + sampling.logit_bias.get(i, 0.0) for i, x in enumerate(row)]
    window = Counter(history[-sampling.repeat_last_n :])
    for token, count in window.items():
        factor = sampling.repeat_penalty
        logits[token] *= factor if logits[token] <= 0 else 1 / factor
        logits[token] -= count * sampling.frequency_penalty + sampling.presence_penalty
    order = sorted(range(len(logits)), key=lambda i: -logits[i])
    if sampling.top_k:
        order = order[: sampling.top_k]
    order = _top_p(order, logits, sampling.top_p)
    best = logits[order[0]]
    order = [i for i in order if math.exp(logits[i] - best) >= sampling.min_p]
    weights = {i: math.exp((logits[i] - best) / sampling.temp) for i in order}
    total = sum(weights.values())
    return [weights.get(i, 0.0) / total for i in range(len(logits))]


def _top_p(order: list[int], logits: Sequence[float], top_p: float) -> list[int]:
    weights = [math.exp(logits[i] - logits[order[0]]) for i in order]
    mass = 0.0
    for count, weight in enumerate(weights, start=1):
        mass += weight / sum(weights)
        if mass >= top_p:
            return order[:count]
    return order


Outcome = tuple[int, ...]
"""The first tokens of an answer, the end token included."""


def _outcomes(sampling: SamplingSettings, so_far: Outcome = ()) -> Iterator[tuple[Outcome, float]]:
    """Every beginning of an answer of the target with its probability."""
    if len(so_far) == COUNTED or END in so_far:
        yield so_far, 1.0
        return
    history = [*PROMPT, *so_far]
    for token, prob in enumerate(_law(TARGET(history).tolist(), history, sampling)):
        if prob:
            for outcome, rest in _outcomes(sampling, (*so_far, token)):
                yield outcome, prob * rest


def _outcome(result: GenerationResult) -> Outcome:
    """What an answer counts as."""
    ended = [END] if result.finish_reason == "stop" else []
    return tuple([*result.token_ids, *ended][:COUNTED])


def _model() -> Drafter:
    return ModelDrafter(ToyRunner(NEAR, SIZE), SIZE, n_max=8)


def _noise() -> Drafter:
    numbers = np.random.default_rng(3)
    drafts = (numbers.integers(0, SIZE, numbers.integers(0, 4)).tolist() for _ in iter(int, 1))
    return ScriptDrafter(drafts)


SAMPLED = SpeculationSettings(sampling="probabilistic")
RATIO = SpeculationSettings(verify="rejection")
WAYS: dict[str, tuple[Callable[[], list[Drafter]], SpeculationSettings]] = {
    "plain": (list, SpeculationSettings()),
    "match, model": (lambda: [_model()], SpeculationSettings()),
    "rejection, model": (lambda: [_model()], SAMPLED),
    "rejection, model, p-min": (lambda: [_model()], replace(SAMPLED, p_min=0.4)),
    "rejection, noise": (lambda: [_noise()], RATIO),
    "rejection, filler": (lambda: [FillerDrafter(2, n_max=8)], RATIO),
    "match by noise or rejection by model": (lambda: [_noise(), _model()], SAMPLED),
}
LENGTHS = {**{str(n): fixed(n) for n in (1, 2, 3, 4)}, "adaptive": adaptive(4)}


@pytest.mark.parametrize(
    ("way", "law"),
    [
        *((way, "truncated") for way in WAYS),
        ("rejection, model", "penalised"),
        ("rejection, noise", "penalised"),
        ("match by noise or rejection by model", "penalised"),
    ],
)
def test_answers_have_the_law_of_the_target(way: str, law: str) -> None:
    sampling = TRUNCATED if law == "truncated" else PENALISED
    probs = dict(_outcomes(sampling))
    assert sum(probs.values()) == pytest.approx(1)
    members, speculation = WAYS[way]
    total: Counter[Outcome] = Counter()
    drafted = 0
    for i, (name, length) in enumerate(LENGTHS.items()):
        runner = ToyRunner(TARGET, SIZE)
        session = toy_session(runner, TOKENIZER, members(), length, speculation)
        counts: Counter[Outcome] = Counter()
        for seed in range(i, NUM_SEEDS, len(LENGTHS)):
            asked = GenerationSettings(sampling, predict=PREDICT, seed=seed)
            result = answer(session, PROMPT, asked)
            counts[_outcome(result)] += 1
            drafted += result.stats.drafted
            check_counts(result)
        assert p_value(counts, probs) > 0.001, f"draft length {name}"
        total += counts
    assert p_value(total, probs) > 0.001
    assert total.total() == NUM_SEEDS
    assert bool(drafted) == (way != "plain")


# identity: greedy and matched answers are those of plain decoding, token for token

WORDS = ToyTokenizer(
    [b"a", b"b", b"c", b"ab", b"bc", b" a", b" c", b".", b"\n", b"\xc3", b"\xa9", b"xyz"]
    + [b"%d" % i for i in range(8)],
    {20, 21},
)
NUM_WORDS = 22
NO_ENDS = {20: -math.inf, 21: -math.inf}
STORY = (0, 3, 7, 0, 3, 7, 1, 1, 4, 9, 10, 0)
MODELS = {
    "one token": markov(NUM_WORDS, 1, seed=11),
    "two tokens": markov(NUM_WORDS, 2, seed=12),
    "whole text": remembering(NUM_WORDS, seed=13),
}


@dataclass(frozen=True)
class Case:
    """A target, what is asked of it, and the context it has."""

    rows: Rows
    settings: GenerationSettings
    n_ctx: int = 64

    def runner(self) -> ToyRunner:
        return ToyRunner(self.rows, NUM_WORDS, n_ctx=self.n_ctx)

    def plain(self) -> GenerationResult:
        return answer(toy_session(self.runner(), WORDS), STORY, self.settings)


def _greedy(sampling: SamplingSettings | None = None, **settings: Any) -> GenerationSettings:
    settings.setdefault("predict", 18)
    return GenerationSettings(sampling or SamplingSettings(temp=0, logit_bias=NO_ENDS), **settings)


def _limits() -> Iterator[Case]:
    for rows in MODELS.values():
        yield from (Case(rows, _greedy(predict=n)) for n in range(1, 12))


def _stops() -> Iterator[Case]:
    """Stop strings that end before, in, at the end of, and across tokens and blocks."""
    for rows in MODELS.values():
        text = Case(rows, _greedy()).plain().text
        for begin in range(0, len(text) - 4, 3):
            stop = (text[begin : begin + 1 + begin % 4], "never")
            yield Case(rows, _greedy(stop=stop))


def _ends() -> Iterator[Case]:
    """An end token as the first, second, ... token of the answer."""
    for rows in MODELS.values():
        told = Case(rows, _greedy()).plain().token_ids
        for length in range(10):
            text = (*STORY, *told[:length], 20 + length % 2)
            sampling = SamplingSettings(temp=0)
            yield Case(reciting(rows, text), _greedy(sampling))


def _contexts() -> Iterator[Case]:
    for rows in MODELS.values():
        for room in range(1, 12):
            yield Case(rows, _greedy(predict=-1), n_ctx=len(STORY) + room)


def _laws() -> Iterator[Case]:
    """What bends the law: penalties that depend on the draft before, bias, banned ends."""
    penalised = SamplingSettings(
        temp=0, repeat_penalty=1.4, frequency_penalty=0.5, presence_penalty=0.4, repeat_last_n=6
    )
    for rows in MODELS.values():
        yield Case(rows, _greedy(replace(penalised, ignore_eos=True)))
        yield Case(rows, _greedy(replace(penalised, repeat_last_n=-1, logit_bias=NO_ENDS)))
        yield Case(rows, _greedy(SamplingSettings(temp=0, logit_bias={**NO_ENDS, 3: 3.0, 4: -2.0})))
        ending = reciting(rows, (*STORY, 1, 2, 20, 21))
        yield Case(ending, _greedy(SamplingSettings(temp=0, ignore_eos=True)))


FEATURES = {
    "limits": _limits,
    "stop strings": _stops,
    "end tokens": _ends,
    "full context": _contexts,
    "laws": _laws,
}


def _near(case: Case) -> ModelDrafter:
    rows = blurred(case.rows, NUM_WORDS, seed=21, spread=0.7)
    return ModelDrafter(ToyRunner(rows, NUM_WORDS, n_ctx=case.n_ctx), NUM_WORDS, n_max=8)


def _itself(case: Case) -> ModelDrafter:
    return ModelDrafter(case.runner(), NUM_WORDS, n_max=8)


def _rubbish() -> ScriptDrafter:
    numbers = np.random.default_rng(22)
    endless = iter(int, 1)
    return ScriptDrafter(
        numbers.integers(0, NUM_WORDS, numbers.integers(0, 9)).tolist() for _ in endless
    )


def _oracle(plain: GenerationResult) -> OracleDrafter:
    """Right but for a few errors; it goes on after the end of the text."""
    return OracleDrafter([*plain.token_ids, 20, 8, 8, 8], len(STORY), wrong={1, 5, 6, 14})


DRAFTERS: dict[str, Callable[[Case, GenerationResult], list[Drafter]]] = {
    "model": lambda case, _: [_near(case)],
    "itself": lambda case, _: [_itself(case)],
    "ngram": lambda _, __: [NgramSimpleDrafter(1, 8)],
    "script": lambda _, __: [_rubbish()],
    "oracle": lambda _, plain: [_oracle(plain)],
    "filler": lambda _, __: [FillerDrafter(3, n_max=8)],
    "chain": lambda case, plain: [NgramSimpleDrafter(2, 4), _oracle(plain), _near(case)],
}


def _check_identity(
    case: Case,
    plain: GenerationResult,
    members: Sequence[Drafter],
    length: Callable[[], DraftLength],
) -> GenerationResult:
    """Assert that drafting changes nothing and leaves a right cache and right counts behind."""
    runner = case.runner()
    recorder = RecordingRunner(runner)
    result = answer(toy_session(recorder, WORDS, members, length), STORY, case.settings)
    assert result.token_ids == plain.token_ids
    assert (result.text, result.finish_reason) == (plain.text, plain.finish_reason)
    check_counts(result)
    assert runner.caches[0] == [*STORY, *result.token_ids][:-1]
    Replay(case.runner(), WORDS).check(recorder.calls, {0: Answer(STORY, case.settings, result)})
    return result


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_greedy_answers_are_those_of_plain_decoding(drafter: str, feature: str) -> None:
    drafted = accepted = 0
    reasons = set()
    for case in FEATURES[feature]():
        plain = case.plain()
        check_counts(plain)
        reasons.add(plain.finish_reason)
        for length in (1, 2, 3, 4, 5, 6, 7, 8):
            members = DRAFTERS[drafter](case, plain)
            result = _check_identity(case, plain, members, fixed(length))
            drafted += result.stats.drafted
            accepted += result.stats.accepted
    expected = {"full context": {"context"}, "end tokens": {"stop"}, "limits": {"length"}}
    assert reasons == expected.get(feature, reasons)
    assert drafted > 0
    if drafter == "itself":
        assert accepted == drafted
    elif drafter in ("model", "oracle", "chain"):
        assert 0 < accepted < drafted


SAMPLED_LAWS = {
    "defaults": SamplingSettings(),
    "whole vocabulary": SamplingSettings(temp=1.5, top_k=0, top_p=1, min_p=0, ignore_eos=True),
    "penalised": replace(PENALISED, temp=0.7),
}


@pytest.mark.parametrize("law", SAMPLED_LAWS)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_matched_answers_are_those_of_plain_decoding(drafter: str, law: str) -> None:
    drafted = 0
    lengths = [*map(fixed, range(1, 9)), adaptive(8)]
    for seed, rows in enumerate(MODELS.values(), start=7):
        settings = GenerationSettings(SAMPLED_LAWS[law], predict=24, seed=seed, stop=("ab.", "zb"))
        case = Case(rows, settings)
        plain = case.plain()
        for length in lengths:
            result = _check_identity(case, plain, DRAFTERS[drafter](case, plain), length)
            assert result.seed == seed
            assert result.stats.verification.keys() <= {"match"}
            drafted += result.stats.drafted
    assert drafted
