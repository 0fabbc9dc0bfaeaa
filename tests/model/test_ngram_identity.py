"""N-gram drafting on the tiny trained target changes nothing but the time."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from tools.recording_runner import Call, Decoded
from tools.replay import Answer, Replay
from tools.ties import check_same
from tools.toy_session import check_counts
from tools.witness import Witness, engine_settings, fresh_runner

from outrider.speculative.engine import Engine
from outrider.speculative.errors import InputError
from outrider.speculative.settings import DrafterSettings, GenerationSettings, SamplingSettings

ZOO = Path(__file__).parent.parent / "fixtures" / "zoo"
TARGET = ZOO / "target-llama.gguf"
PROMPTS: dict[str, str] = {
    prompt["id"]: prompt["text"]
    for prompt in map(json.loads, (ZOO / "prompts.jsonl").read_text().splitlines())
}
PREDICT = 60

SHORT = {"match": 2, "size": 6}
DRAFTERS = {
    "ngram-simple": DrafterSettings("ngram-simple", options={"match": 2, "size": 6}),
    "ngram-map-k": DrafterSettings("ngram-map-k", options=SHORT),
    "ngram-map-k4v": DrafterSettings("ngram-map-k4v", options=SHORT),
    "ngram-mod": DrafterSettings("ngram-mod", n_max=8, options={"n_match": 2, "n_min": 2}),
    "ngram-cache": DrafterSettings("ngram-cache"),
    "ngram-edit": DrafterSettings("ngram-edit", options={"match": 2}),
}
NO_ENDS = {2: -math.inf, 4: -math.inf}
LAWS = {
    "greedy": SamplingSettings(temp=0, logit_bias=NO_ENDS),
    "match": SamplingSettings(temp=0.7, logit_bias=NO_ENDS),
}
kinds = pytest.mark.parametrize("kind", DRAFTERS)


@kinds
@pytest.mark.parametrize("law", LAWS)
def test_answers_are_those_of_plain_decoding(kind: str, law: str) -> None:
    """Each prompt twice, the second time with text that came before."""
    asked = GenerationSettings(LAWS[law], predict=PREDICT, seed=4)
    drafted = accepted = num_ties = 0
    with Engine.load(engine_settings(TARGET, [DRAFTERS[kind]])) as engine:
        assert engine.drafter_names == (kind,)
        witness, session = Witness(engine), engine.session()
        settings = engine.speculation
        for text in list(PROMPTS.values())[::3]:
            prompt = engine.encode(text)
            for prompt_ids in (prompt, [*prompt, *prompt[1:]]):
                witness.configure(settings, [])
                plain = witness.answer(session, prompt_ids, asked)
                witness.configure(settings, [DRAFTERS[kind]])
                result = witness.answer(session, prompt_ids, asked)
                assert plain.finish_reason == result.finish_reason == "length"
                tie = check_same(plain, result, prompt_ids, asked, engine)
                num_ties += tie is not None
                drafted += result.stats.drafted
                accepted += result.stats.accepted
        witness.close()
    assert num_ties <= (0 if law == "greedy" else 2)
    assert drafted > accepted > 20


@kinds
def test_a_long_text_parts_from_plain_only_at_ties(kind: str) -> None:
    """Beyond 512 cells one row and several rows are computed in different ways."""
    asked = GenerationSettings(LAWS["greedy"], predict=120)
    with Engine.load(engine_settings(TARGET, [DRAFTERS[kind]])) as engine:
        witness, session = Witness(engine), engine.session()
        settings = engine.speculation
        prompt = engine.encode("".join(PROMPTS.values()))
        assert 512 < len(prompt) < 1024 - 120
        witness.configure(settings, [])
        plain = witness.answer(session, prompt, asked)
        witness.configure(settings, [DRAFTERS[kind]])
        result = witness.answer(session, prompt, asked)
        check_same(plain, result, prompt, asked, engine)
        witness.close()
    assert result.stats.drafted > 8


@kinds
def test_two_sequences_in_one_batch(kind: str) -> None:
    asked = GenerationSettings(LAWS["greedy"], predict=PREDICT)
    names = ("raw-table", "say")
    with Engine.load(engine_settings(TARGET, [DRAFTERS[kind]], parallel=2)) as engine:
        witness = Witness(engine)
        scheduler = engine._running
        prompts = [engine.encode(PROMPTS[name]) for name in names]
        calls: list[Call] = []
        witness.recorder.calls = calls
        generations = [engine.session().begin(prompt, asked) for prompt in prompts]
        while running := [g for g in generations if g.finish_reason is None]:
            scheduler.round(running)
        answers = {}
        for i, (prompt, generation) in enumerate(zip(prompts, generations, strict=True)):
            scheduler.end(generation)
            check_counts(generation)
            assert generation.stats.drafted > 0
            answers[i] = Answer(prompt, asked, generation.finish_event().result)
        assert sum(isinstance(c, Decoded) and len(c.blocks) == 2 for c in calls) > 5
        runner = fresh_runner(engine, witness.recorder.max_outputs)
        Replay(runner, engine._target.vocabulary).check(calls, answers)
        runner.close()
        witness.close()
    with Engine.load(engine_settings(TARGET)) as engine:
        witness = Witness(engine)
        session = engine.session()
        for i, prompt in enumerate(prompts):
            plain = witness.answer(session, prompt, asked)
            check_same(plain, answers[i].result, prompt, asked, engine)
        witness.close()


@pytest.mark.parametrize("name", ["static", "dynamic"])
def test_a_damaged_lookup_cache_stops_the_start(name: str, tmp_path: Path) -> None:
    path = tmp_path / "lookup.bin"
    path.write_bytes(bytes(22))
    drafter = DrafterSettings("ngram-cache", options={name: str(path)})
    with pytest.raises(InputError) as caught:
        Engine.load(engine_settings(TARGET, [drafter]))
    expected = "no lookup cache: 22 bytes are not whole numbers of 4 bytes"
    assert str(caught.value) == f"{path}: {expected}"


def test_a_dynamic_cache_grows_from_run_to_run(tmp_path: Path) -> None:
    drafter = DrafterSettings("ngram-cache", options={"dynamic": tmp_path / "dynamic.bin"})
    asked = GenerationSettings(LAWS["greedy"], predict=PREDICT)
    accepted, sizes, texts = [], [], []
    for _ in range(3):
        with Engine.load(engine_settings(TARGET, [drafter])) as engine:
            witness = Witness(engine)
            result = witness.answer(engine.session(), engine.encode(PROMPTS["say"]), asked)
            accepted.append(result.stats.accepted)
            texts.append(result.token_ids)
            witness.close()
        sizes.append((tmp_path / "dynamic.bin").stat().st_size)
    # the n-grams are the same: only their counts grow; at a tie another draft gives another text
    assert 1000 < sizes[0] <= sizes[1] <= sizes[2]
    for i in (1, 2):
        assert sizes[i] == sizes[i - 1] or texts[i] not in texts[:i]
    # the second time not every n-gram has come twice
    assert accepted[2] > accepted[0]
