"""The engine on the tiny trained pair: settings that change between answers, slots, seeds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tools.recording_runner import Decoded, RecordingRunner
from tools.replay import Answer, Replay
from tools.ties import check_same
from tools.toy_session import check_counts, result_of
from tools.witness import Witness, engine_settings, fresh_runner, model_settings

from outrider.speculative.engine import Engine
from outrider.speculative.errors import InputError
from outrider.speculative.events import FinishEvent, GenerationResult, StepEvent
from outrider.speculative.settings import (
    DrafterSettings,
    EngineSettings,
    GenerationSettings,
    SamplingSettings,
    SpeculationSettings,
)

GREEDY = SamplingSettings(temp=0)
SEEDED = GenerationSettings(SamplingSettings(temp=0.8), predict=40, seed=11)
NGRAM = DrafterSettings("ngram-simple", options={"match": 3, "size": 4})
FIXED = SpeculationSettings(adaptive=False)


@pytest.fixture
def target(zoo: Path) -> Path:
    return zoo / "target-llama.gguf"


@pytest.fixture
def simple(zoo: Path) -> DrafterSettings:
    return DrafterSettings("draft-simple", model_settings(zoo / "draft-simple.gguf"))


@pytest.fixture
def texts(zoo: Path) -> dict[str, str]:
    lines = (zoo / "prompts.jsonl").read_text().splitlines()
    return {prompt["id"]: prompt["text"] for prompt in map(json.loads, lines)}


def _ask(predict: int = 32) -> GenerationSettings:
    return GenerationSettings(GREEDY, predict=predict)


def _check(
    result: GenerationResult, prompt: Sequence[int], settings: GenerationSettings, target: Path
) -> None:
    """Assert that a fresh engine without a drafter gives the same."""
    with Engine.load(engine_settings(target)) as engine:
        plain = result_of(engine.session().generate(prompt, settings))
        check_same(plain, result, prompt, settings, engine)


# one session, many ways


def test_a_conversation_goes_on_while_speculation_changes(
    target: Path, simple: DrafterSettings, texts: dict[str, str]
) -> None:
    """More draft tokens than the context has rows for, none, another kind, and back."""
    ways: list[tuple[SpeculationSettings, list[DrafterSettings] | None]] = [
        (replace(FIXED, n_max=2), None),
        (replace(FIXED, n_max=12), None),  # a new context: read again
        (FIXED, []),
        (replace(FIXED, n_max=4), [NGRAM, simple]),
        (replace(FIXED, n_max=3, sampling="probabilistic", verify="match"), [simple]),
        (SpeculationSettings(n_max=16), [simple]),
    ]
    names = []
    with Engine.load(engine_settings(target, [simple])) as engine:
        session = engine.session()
        prompt = engine.encode(texts["story-fox"])
        for speculation, drafters in ways:
            result = result_of(session.generate(prompt, SEEDED))
            check_counts(result)
            _check(result, prompt, SEEDED, target)
            assert session.context_used == len(prompt) + len(result.token_ids) - 1
            names.append(engine.drafter_names)
            prompt = [*prompt, *result.token_ids, *engine.encode(texts["count"])]
            engine.configure(speculation, drafters)
            assert engine.speculation == speculation
        _check(result_of(session.generate(prompt, _ask())), prompt, _ask(), target)
    assert names == [
        ("draft-simple",),
        ("draft-simple",),
        ("draft-simple",),
        (),
        ("ngram-simple", "draft-simple"),
        ("draft-simple",),
    ]


@pytest.mark.parametrize("wrong", ["unknown kind", "no model", "n-min"])
def test_a_way_that_cannot_work_leaves_the_former_one(
    wrong: str, target: Path, simple: DrafterSettings, texts: dict[str, str]
) -> None:
    ways: dict[str, tuple[SpeculationSettings, list[DrafterSettings]]] = {
        "unknown kind": (FIXED, [simple, DrafterSettings("draft-simpel")]),
        "no model": (FIXED, [NGRAM, DrafterSettings("draft-simple")]),
        "n-min": (replace(FIXED, n_min=2, sampling="probabilistic"), [simple]),
    }
    with Engine.load(engine_settings(target, [simple], n_max=4)) as engine:
        session = engine.session()
        prompt = engine.encode(texts["table"])
        before = result_of(session.generate(prompt, _ask()))
        with pytest.raises(InputError):
            engine.configure(*ways[wrong])
        assert engine.speculation.n_max == 4
        assert engine.drafter_names == ("draft-simple",)
        after = result_of(session.generate(prompt, _ask()))
        assert after.token_ids == before.token_ids
        assert after.stats.drafted == before.stats.drafted > 0


@pytest.mark.parametrize("parallel", [1, 2])
def test_speculation_changes_when_the_context_is_full(
    parallel: int, target: Path, simple: DrafterSettings, texts: dict[str, str]
) -> None:
    """The warm-up measures on the live cache: nothing fits into it."""
    settings = engine_settings(target, [simple], ctx_size=256, parallel=parallel, n_max=8)
    with Engine.load(settings) as engine:
        session = engine.session()
        prompt = engine.encode(texts["story-fox"]) * 4
        asked = GenerationSettings(replace(GREEDY, ignore_eos=True))
        full = result_of(session.generate(prompt, asked))
        assert full.finish_reason == "context"
        assert session.context_used == engine.n_ctx - 1
        if parallel > 1:  # the last cell
            result_of(engine.session().generate([1], _ask(1)))
        engine.configure(SpeculationSettings(n_max=8))
        again = result_of(session.generate(prompt, asked))
        assert again.token_ids == full.token_ids
        assert again.cached_tokens == len(prompt) - 1


# how long drafts are


def _longest_draft(
    settings: EngineSettings, text: str, generation: GenerationSettings
) -> dict[str, int]:
    """The longest draft of each drafter in an answer."""
    with Engine.load(settings) as engine:
        longest: dict[str, int] = {}
        session = engine.session()
        counts: dict[str, int] = {}
        for event in session.generate(engine.encode(text), generation):
            if isinstance(event, StepEvent):
                per_drafter = session.stats.per_drafter
                drafted = {name: c.drafted for name, c in per_drafter.items()}
                for name, count in drafted.items():
                    longest[name] = max(longest.get(name, 0), count - counts.get(name, 0))
                counts = drafted
        return longest


# counting begins again: a draft may be as long as what was counted before
COUNTED = ", ".join(map(str, range(1, 25))) + ".\n1, 2, 3,"


@pytest.mark.parametrize(
    ("own", "bound", "expected"),
    [(None, None, 3), (6, None, 6), (None, 5, 5), (6, 2, 2), (2, 6, 2)],
)
def test_the_length_of_a_model_drafter(
    own: int | None,
    bound: int | None,
    expected: int,
    target: Path,
    simple: DrafterSettings,
    texts: dict[str, str],
) -> None:
    settings = engine_settings(target, [replace(simple, n_max=own)], n_max=bound)
    assert _longest_draft(settings, texts["table"], _ask()) == {"draft-simple": expected}


@pytest.mark.parametrize(
    ("own", "size", "bound", "expected"),
    [
        (None, None, None, 48),
        (None, 7, None, 7),
        (None, 60, None, 60),
        (5, 7, None, 5),
        (None, 7, 4, 4),
        (None, 7, 12, 7),
    ],
)
def test_the_length_of_ngram_drafts(
    own: int | None,
    size: int | None,
    bound: int | None,
    expected: int,
    target: Path,
) -> None:
    drafter = DrafterSettings("ngram-simple", n_max=own, options={"match": 3, "size": size})
    settings = engine_settings(target, [drafter], n_max=bound)
    assert _longest_draft(settings, COUNTED, _ask(90)) == {"ngram-simple": expected}


def test_each_drafter_of_a_chain_keeps_its_length(
    target: Path, simple: DrafterSettings, texts: dict[str, str]
) -> None:
    settings = engine_settings(target, [replace(NGRAM, n_max=2), replace(simple, n_max=6)])
    assert _longest_draft(settings, texts["table"], _ask(80)) == {
        "ngram-simple": 2,
        "draft-simple": 6,
    }


# seeds and rules


def test_a_seeded_run_of_ratio_tests_drafts_by_count(
    target: Path, simple: DrafterSettings, texts: dict[str, str]
) -> None:
    """What the machine does and what was answered before has no part in the text."""
    settings = engine_settings(
        target, [simple], adaptive=True, sampling="probabilistic", verify="rejection"
    )
    results = []
    for _ in range(2):
        with Engine.load(settings) as engine:
            prompt = engine.encode(texts["story-owl"])
            session = engine.session()
            for slowed in ({1: 1.0, 8: 1.1}, {1: 1.0, 8: 30.0}):
                engine._running.costs.calibrate(slowed)
                session.reset()
                results.append(result_of(session.generate(prompt, SEEDED)))
                result_of(session.generate(prompt, replace(SEEDED, seed=None)))
    first, *others = results
    second = others[-1]
    assert all(one.token_ids == first.token_ids for one in others)
    assert first.token_ids == second.token_ids
    assert first.stats.accepted_histogram == second.stats.accepted_histogram
    assert first.stats.verification["rejection"] == first.stats.drafts > 0
    assert first.stats.drafted > first.stats.drafts


def test_the_seed_that_was_used_is_told(target: Path, texts: dict[str, str]) -> None:
    with Engine.load(engine_settings(target)) as engine:
        session = engine.session()
        prompt = engine.encode(texts["story-fox"])
        free = replace(SEEDED, seed=None)
        one, two = (result_of(session.generate(prompt, free)) for _ in range(2))
        assert one.seed != two.seed
        again = result_of(session.generate(prompt, replace(free, seed=one.seed)))
        assert again.token_ids == one.token_ids


def test_the_rule_that_auto_means(target: Path, simple: DrafterSettings) -> None:
    warm = SamplingSettings(temp=0.8)
    with Engine.load(engine_settings(target, [simple])) as engine:
        assert engine.resolve_rule(GREEDY) == "greedy"
        assert engine.resolve_rule(warm) == "match"
        engine.configure(replace(FIXED, sampling="probabilistic"))
        assert engine.resolve_rule(warm) == "rejection"
        assert engine.resolve_rule(GREEDY) == "greedy"
        engine.configure(replace(FIXED, sampling="probabilistic"), [NGRAM])
        assert engine.resolve_rule(warm) == "match"
        engine.configure(replace(FIXED, verify="rejection"))
        assert engine.resolve_rule(warm) == "rejection"
        engine.configure(replace(FIXED, verify="greedy"))
        with pytest.raises(InputError, match=r"--spec-verify greedy: only at temperature 0"):
            engine.session().generate([1, 5], GenerationSettings(warm))


# slots


def test_two_sessions_take_turns(
    target: Path, simple: DrafterSettings, texts: dict[str, str]
) -> None:
    asked = ["story-fox", "table"]
    with Engine.load(engine_settings(target, [NGRAM, simple], parallel=2, n_max=4)) as engine:
        prompts = [engine.encode(texts[name]) for name in asked]
        answers = [engine.session().generate(prompt, SEEDED) for prompt in prompts]
        with pytest.raises(InputError, match="all 2 slots are taken"):
            engine.session()
        ends: dict[int, FinishEvent] = {}
        while len(ends) < 2:
            for i, events in enumerate(answers):
                event = next(events, None)
                if isinstance(event, FinishEvent):
                    ends[i] = event
        for i, prompt in enumerate(prompts):
            _check(ends[i].result, prompt, SEEDED, target)


@pytest.mark.parametrize("temp", [0, 0.8])
def test_two_sequences_in_one_batch(
    temp: float, target: Path, simple: DrafterSettings, texts: dict[str, str]
) -> None:
    settings = GenerationSettings(SamplingSettings(temp=temp), predict=48, seed=2)
    with Engine.load(engine_settings(target, [NGRAM, simple], parallel=2, n_max=4)) as engine:
        scheduler = engine._running
        recorder = RecordingRunner(scheduler.runner)
        scheduler.runner = recorder
        prompts = [engine.encode(texts[name]) for name in ("story-owl", "json-tom")]
        generations = [engine.session().begin(prompt, settings) for prompt in prompts]
        while running := [g for g in generations if g.finish_reason is None]:
            scheduler.round(running)
            for generation in running:
                length = scheduler.runner.cached_length(generation.slot.seq_id)
                assert length == len(generation.slot.tokens) - 1
        shared = [c for c in recorder.calls if isinstance(c, Decoded) and len(c.blocks) == 2]
        assert len(shared) > 5
        answers = {}
        for i, (prompt, generation) in enumerate(zip(prompts, generations, strict=True)):
            scheduler.end(generation)
            check_counts(generation)
            result = generation.finish_event().result
            _check(result, prompt, settings, target)
            answers[i] = Answer(prompt, settings, result)
        runner = fresh_runner(engine, recorder.max_outputs)
        Replay(runner, engine._target.vocabulary).check(recorder.calls, answers)
        runner.close()


def test_the_cache_has_all_tokens_but_the_last_after_every_step(
    target: Path, simple: DrafterSettings, texts: dict[str, str]
) -> None:
    with Engine.load(engine_settings(target, [simple], n_max=5)) as engine:
        session = engine.session()
        witness = Witness(engine)
        for name in ("code-add", "json-ruby", "multi"):
            prompt = engine.encode(texts[name])
            emitted = 0
            for event in session.generate(prompt, _ask(60)):
                if isinstance(event, StepEvent):
                    emitted += len(event.token_ids)
                    assert session.context_used == len(prompt) + emitted - 1
            assert emitted > 20
        witness.close()
