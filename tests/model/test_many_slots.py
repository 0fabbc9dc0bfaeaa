"""Many slots at once: each answer is the one that its prompt gets alone, whatever runs beside it.

The caches of all slots are one, so what is added up for a row lies in another order than alone.
Where that decides a tie the answers part; each is what its own row of logits says all the same,
which the replay shows without a tolerance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from tools.recording_runner import RecordingRunner, Shared, Truncated
from tools.replay import Answer, _Checker
from tools.ties import check_same
from tools.toy_session import check_counts, result_of
from tools.witness import engine_settings, fresh_runner
from tools.zoo_pairs import PAIRS, PROMPTS, Pair

from outrider.speculative.engine import Engine
from outrider.speculative.events import FinishEvent, GenerationResult
from outrider.speculative.generation import Generation
from outrider.speculative.law import token_law
from outrider.speculative.llama_runner import LlamaRunner
from outrider.speculative.session import Session
from outrider.speculative.settings import DrafterSettings, GenerationSettings, SamplingSettings

NGRAMS = DrafterSettings("ngram-simple", options={"match": 3, "size": 6})
GREEDY = GenerationSettings(SamplingSettings(temp=0, ignore_eos=True), predict=32)
SAMPLED = GenerationSettings(SamplingSettings(temp=0.8, ignore_eos=True), predict=24, seed=5)
NUM_SLOTS = 8
CELLS = 8192
SHORTEST, LONGEST = 5, 700


def _prompts(engine: Engine, count: int) -> list[list[int]]:
    """Chats, code and lists of many lengths; every fourth is as the models were trained on."""
    texts = [prompt.text for prompt in PROMPTS]
    prompts = []
    for i in range(count):
        ids = engine.encode(texts[i % len(texts)])
        if i % 4:
            length = SHORTEST + (i - 1) * 131 % (LONGEST - SHORTEST + 1)
            more = engine.encode("\n".join(texts[i % len(texts) :] + 2 * texts))
            ids = more[:length]
            assert len(ids) == length
        prompts.append(ids)
    return prompts


class Slots:
    """All slots of an engine, with a record of what its target was told."""

    def __init__(self, engine: Engine) -> None:
        runner = engine._running.runner
        assert isinstance(runner, LlamaRunner)
        self.engine = engine
        self.recorder = RecordingRunner(runner)
        self.most_parked = 0
        engine._running.runner = self.recorder
        self._sessions = [engine.session() for _ in range(engine._settings.parallel)]
        self._num_snapshots = runner.num_snapshots
        # the call before which a slot begins with an answer
        self._begun: dict[int, list[tuple[int, int]]] = defaultdict(list)

    def answer(
        self, prompts: Sequence[Sequence[int]], asked: GenerationSettings
    ) -> list[GenerationResult]:
        """All prompts; a slot that is free takes the next one."""
        free, waiting = list(self._sessions), list(enumerate(prompts))
        places: dict[Generation, tuple[int, Session]] = {}
        results: dict[int, GenerationResult] = {}
        with closing(self.engine.rounds()) as rounds:
            while waiting or places:
                while free and waiting:
                    session, (place, prompt) = free.pop(0), waiting.pop(0)
                    self._begun[len(self.recorder.calls)].append((session.slot.seq_id, place))
                    generation = session.begin(prompt, asked)
                    places[generation] = place, session
                    rounds.join(generation)
                for generation, events in rounds.advance():
                    for event in events:
                        if isinstance(event, FinishEvent):
                            place, session = places.pop(generation)
                            results[place] = event.result
                            free.append(session)
                self.most_parked = max(self.most_parked, rounds.num_parked)
        return [results[place] for place in range(len(prompts))]

    def check_replay(
        self,
        prompts: Sequence[Sequence[int]],
        asked: GenerationSettings,
        results: Sequence[GenerationResult],
    ) -> None:
        """Self-consistency: the same calls, without drafters, give every token of every answer."""
        runner = fresh_runner(self.engine, self.recorder.max_outputs, self._num_snapshots)
        vocabulary = self.engine._target.vocabulary
        checkers: dict[int, _Checker] = {}
        for number, call in enumerate(self.recorder.calls):
            for seq_id, place in self._begun[number]:
                if seq_id in checkers:
                    checkers[seq_id].check_complete()
                one = Answer(prompts[place], asked, results[place])
                checkers[seq_id] = _Checker(one, vocabulary, token_law(asked, vocabulary))
            if isinstance(call, Truncated):
                runner.truncate(call.seq_id, call.length)  # all of it where no part can stay
            elif isinstance(call, Shared):
                assert runner.share(call.source, call.target, call.length)
            else:
                outputs = runner.decode(call.blocks)
                for block in call.blocks:
                    checkers[block.seq_id].check_block(block, outputs.logits(block))
        for checker in checkers.values():
            checker.check_complete()
        runner.close()


def _alone(
    engine: Engine, prompts: Sequence[Sequence[int]], asked: GenerationSettings
) -> list[GenerationResult]:
    session, results = engine.session(), []
    for prompt in prompts:
        session.reset()
        results.append(result_of(session.generate(prompt, asked)))
    return results


def _check(
    pair: Pair,
    asked: GenerationSettings,
    count: int,
    *,
    num_slots: int = NUM_SLOTS,
    cells: int = CELLS,
    skipped: int = 0,
    drafters: Sequence[DrafterSettings] | None = None,
    **speculation: Any,
) -> tuple[list[GenerationResult], Slots, int]:
    """The answers in ``num_slots`` slots, compared with those alone; how many parted at a tie."""
    chain = [pair.drafter] if drafters is None else drafters
    together = engine_settings(
        pair.target, chain, ctx_size=cells, parallel=num_slots, **speculation
    )
    alone = engine_settings(pair.target, chain, ctx_size=cells, **speculation)
    with Engine.load(together) as engine, Engine.load(alone) as single:
        prompts = _prompts(engine, count)[skipped:]
        slots = Slots(engine)
        results = slots.answer(prompts, asked)
        slots.check_replay(prompts, asked, results)
        ties = 0
        for prompt, expected, found in zip(
            prompts, _alone(single, prompts, asked), results, strict=True
        ):
            assert found.finish_reason == expected.finish_reason
            check_counts(found)
            ties += check_same(expected, found, prompt, asked, single) is not None
        assert not engine._running.drafter.dropped
    return results, slots, ties


def test_64_mixed_prompts_in_eight_slots() -> None:
    results, slots, ties = _check(
        PAIRS["draft-simple"],
        GREEDY,
        64,
        drafters=[NGRAMS, PAIRS["draft-simple"].drafter],
        adaptive=True,
    )
    lengths = [one.prompt_tokens for one in results]
    assert min(lengths) < 10
    assert sum(length > 512 for length in lengths) >= 10
    assert ties <= 6
    assert slots.most_parked == 0
    assert all(one.finish_reason == "length" for one in results)


@pytest.mark.parametrize("name", ["draft-simple", "eagle3-full", "dspark"])
def test_always_drafting(name: str) -> None:
    results, _, ties = _check(PAIRS[name], GREEDY, 16, n_max=4)
    assert sum(one.stats.drafted for one in results) > 500
    assert ties <= 3


def test_with_a_seed_an_answer_is_the_one_alone() -> None:
    # the shortest prompt is half a word: after it laws are so flat that last bits move them far
    results, _, ties = _check(
        PAIRS["draft-simple"], SAMPLED, 16, skipped=2, n_max=4, verify="match"
    )
    assert sum(one.stats.verification["match"] for one in results) > 100
    assert ties <= 2


# recurrent layers with snapshots (lfm2, qwen35), a sliding window (gemma3)
OTHERS = ["lfm2+draft-simple", "lfm2-dflash", "qwen35+draft-simple", "gemma3+draft-simple"]


@pytest.mark.parametrize("name", [*OTHERS, "mtp-qwen35"])
def test_states_and_windows_are_taken_back(name: str) -> None:
    """Blocks of other lengths beside it must not touch what a sequence goes back to."""
    results, _, ties = _check(PAIRS[name], GREEDY, 16, n_max=4)
    assert sum(one.stats.drafted - one.stats.accepted for one in results) > 300
    assert ties <= 5


@pytest.mark.parametrize("name", [*OTHERS[1:], "mtp-qwen35", "eagle3-full"])
def test_what_is_parked_goes_on(name: str) -> None:
    results, slots, ties = _check(PAIRS[name], GREEDY, 12, n_max=4, cells=1024)
    assert slots.most_parked > 2
    # the drafters have room again, too
    assert all(one.stats.drafted > 20 for one in results)
    assert ties <= 3


def test_no_drafts_while_more_slots_generate_than_the_limit() -> None:
    drafters = [PAIRS["draft-simple"].drafter]
    asked = engine_settings(
        PAIRS["draft-simple"].target, drafters, ctx_size=CELLS, parallel=4, n_max=4, max_slots=2
    )
    with Engine.load(asked) as engine:
        slots = Slots(engine)
        prompts = _prompts(engine, 4)
        rounds = engine.rounds()
        sessions = slots._sessions
        lengths = [12, 40, 40, 12]
        running = {}
        for session, prompt, length in zip(sessions, prompts, lengths, strict=True):
            generation = session.begin(prompt, replace(GREEDY, predict=length))
            running[generation] = session
            rounds.join(generation)
        seen = set()
        while rounds.num_running:
            generating = sum(not one.is_reading for one in running)
            before = {one: one.stats.drafts for one in running}
            told = dict(rounds.advance())
            for one in list(running):
                if generating > 2:
                    assert one.stats.drafts == before[one]
                    if not one.is_reading:
                        assert one.stats.paused is not None
                        assert one.stats.paused.reason == f"{generating} slots generate, limit 2"
                seen.add((generating > 2, one.stats.drafts > before[one]))
                if any(isinstance(event, FinishEvent) for event in told.get(one, ())):
                    stats = one.stats
                    # a step without a draft is no draft of which nothing was accepted
                    assert stats.drafts < stats.steps
                    assert sum(stats.accepted_histogram) == stats.drafts
                    check_counts(one)
                    del running[one]
        assert (False, True) in seen
        assert (True, False) in seen
        assert (True, True) not in seen
