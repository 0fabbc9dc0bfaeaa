"""Rounds of several sequences: one decode, and each gets what it gets alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from tools.recording_runner import Decoded, RecordingRunner
from tools.replay import Answer, Replay
from tools.toy_runner import ToyRunner, ToyTokenizer, blurred, reciting, remembering
from tools.toy_session import adaptive, check_counts, fixed, toy_scheduler

from outrider.speculative.draft_length import DraftLength
from outrider.speculative.drafters.drafter import Drafter
from outrider.speculative.drafters.model_drafter import ModelDrafter
from outrider.speculative.drafters.ngram_simple import NgramSimpleDrafter
from outrider.speculative.events import Event, GenerationResult, PromptEvent, StepEvent
from outrider.speculative.generation import Generation, Slot
from outrider.speculative.law import token_law
from outrider.speculative.scheduler import Scheduler
from outrider.speculative.settings import GenerationSettings, SamplingSettings, SpeculationSettings
from outrider.speculative.step_costs import StatedCosts

SIZE = 20
END = 19
TOKENIZER = ToyTokenizer([bytes([97 + i]) for i in range(SIZE)], {END})
TARGET = remembering(SIZE, seed=31)
GREEDY = SamplingSettings(temp=0, ignore_eos=True)
N_CTX = 160
MAX_OUTPUTS = 20


def _runner(n_seq: int = 2, n_batch: int = 64) -> ToyRunner:
    return ToyRunner(
        TARGET, SIZE, n_ctx=N_CTX, n_seq=n_seq, n_batch=n_batch, max_outputs=MAX_OUTPUTS
    )


def _near(n_seq: int = 2) -> ModelDrafter:
    rows = blurred(TARGET, SIZE, seed=32, spread=0.8)
    runner = ToyRunner(rows, SIZE, n_ctx=N_CTX, n_seq=n_seq, max_outputs=n_seq)
    return ModelDrafter(runner, SIZE, n_max=8)


@dataclass(frozen=True)
class Request:
    """One answer that is wanted."""

    prompt: tuple[int, ...]
    settings: GenerationSettings

    def begin(
        self, scheduler: Scheduler, slot: Slot, length: Callable[[], DraftLength]
    ) -> Generation:
        generation = Generation(
            slot,
            self.prompt,
            self.settings,
            TOKENIZER,
            scheduler.runner.n_ctx,
            length(),
            token_law(self.settings, TOKENIZER),
        )
        scheduler.begin(generation)
        return generation


def _ask(prompt: tuple[int, ...], predict: int, *, seed: int = 5, temp: float = 0) -> Request:
    sampling = SamplingSettings(temp=temp, top_k=0, ignore_eos=True, repeat_penalty=1.2)
    return Request(prompt, GenerationSettings(sampling, predict=predict, seed=seed))


def _rounds(scheduler: Scheduler, generations: list[Generation]) -> Iterator[list[list[Event]]]:
    """Rounds until all have ended; the cache is looked at after each."""
    while running := [g for g in generations if g.finish_reason is None]:
        yield scheduler.round(running)
        for generation in running:
            _check_cache(scheduler, generation)
    for generation in generations:
        scheduler.end(generation)
        _check_cache(scheduler, generation)


def _check_cache(scheduler: Scheduler, generation: Generation) -> None:
    slot = generation.slot
    cached = scheduler.runner.cached_length(slot.seq_id)
    if generation.is_reading:
        assert cached == generation.slot.num_read
    else:
        assert cached == len(slot.tokens) - 1
        text = [*generation.prompt.tolist(), *generation.token_ids]
        assert slot.tokens.ids.tolist() == text


def _result(generation: Generation) -> GenerationResult:
    check_counts(generation)
    return generation.finish_event().result


def _alone(
    request: Request,
    members: Callable[[], list[Drafter]],
    length: Callable[[], DraftLength],
    speculation: SpeculationSettings | None = None,
) -> GenerationResult:
    scheduler = toy_scheduler(_runner(), members(), speculation)
    generation = request.begin(scheduler, Slot(0), length)
    for _ in _rounds(scheduler, [generation]):
        pass
    return _result(generation)


class ToldCosts(StatedCosts):
    """Keeps the cells that rows were said to read."""

    def __init__(self) -> None:
        super().__init__({1: 1.0, 64: 30.0}, {})
        self.num_cells: list[int] = []

    def observe_verify(self, num_rows: int, seconds: float, num_cells: int = 0) -> None:
        self.num_cells.append(num_cells)


def test_costs_are_told_what_a_row_reads_not_what_all_have_cached() -> None:
    scheduler = toy_scheduler(_runner(), MEMBERS["ngram"]())
    scheduler.costs = costs = ToldCosts()
    slots = [Slot(0), Slot(1)]
    requests = (_ask((1, 2, 3), 40), _ask(tuple(range(18)) * 3, 40))
    generations = [
        request.begin(scheduler, slot, fixed(4))
        for request, slot in zip(requests, slots, strict=True)
    ]
    means = set()
    for _ in _rounds(scheduler, generations):
        if all(one.finish_reason is None for one in generations):
            means.add(sum(slot.num_read for slot in slots) // 2)
    # the first of them are of steps of both
    assert len(costs.num_cells) > 5
    assert set(costs.num_cells[:5]) <= means


MEMBERS: dict[str, Callable[[], list[Drafter]]] = {
    "none": list,
    "model": lambda: [_near()],
    "ngram": lambda: [NgramSimpleDrafter(1, 3)],
    "chain": lambda: [NgramSimpleDrafter(1, 3), _near()],
}
SHORT, LONG = (1, 2, 3), tuple(i % 7 for i in range(90))
REQUESTS = {
    "greedy": (_ask(SHORT, 40), _ask(LONG, 25)),
    "match": (_ask(LONG, 20, temp=0.8, seed=1), _ask(SHORT, 40, temp=1.0, seed=2)),
    "greedy beside match": (_ask(SHORT, 30), _ask(SHORT, 30, temp=1.0)),
}


@pytest.mark.parametrize("requests", REQUESTS)
@pytest.mark.parametrize("members", MEMBERS)
@pytest.mark.parametrize("length", [fixed(1), fixed(4), adaptive(8)], ids=["1", "4", "adaptive"])
def test_two_sequences_in_one_batch_get_what_they_get_alone(
    length: Callable[[], DraftLength], members: str, requests: str
) -> None:
    recorder = RecordingRunner(_runner())
    scheduler = toy_scheduler(recorder, MEMBERS[members]())
    pair = REQUESTS[requests]
    generations = [r.begin(scheduler, Slot(i), length) for i, r in enumerate(pair)]
    num_rounds = len(list(_rounds(scheduler, generations)))
    assert num_rounds == sum(isinstance(call, Decoded) for call in recorder.calls)
    results = [_result(generation) for generation in generations]
    for request, result in zip(pair, results, strict=True):
        alone = _alone(request, MEMBERS[members], length)
        assert result.token_ids == alone.token_ids
        assert result.stats.drafted == alone.stats.drafted
        assert result.stats.accepted == alone.stats.accepted
        assert result.stats.steps == alone.stats.steps
    answers = {
        i: Answer(request.prompt, request.settings, result)
        for i, (request, result) in enumerate(zip(pair, results, strict=True))
    }
    Replay(_runner(), TOKENIZER).check(recorder.calls, answers)


def test_ratio_tests_of_two_sequences_do_not_share_coins() -> None:
    speculation = SpeculationSettings(sampling="probabilistic")
    pair = (_ask(LONG, 20, temp=1.0, seed=1), _ask(SHORT, 30, temp=1.0, seed=1))
    scheduler = toy_scheduler(_runner(), [_near()], speculation)
    generations = [r.begin(scheduler, Slot(i), fixed(3)) for i, r in enumerate(pair)]
    for _ in _rounds(scheduler, generations):
        pass
    for request, generation in zip(pair, generations, strict=True):
        alone = _alone(request, lambda: [_near()], fixed(3), speculation)
        assert _result(generation).token_ids == alone.token_ids
        assert generation.stats.verification["rejection"] == generation.stats.drafts > 0


def test_a_sequence_that_comes_later_is_read_while_another_writes() -> None:
    scheduler = toy_scheduler(_runner(), [_near()])
    first = _ask(SHORT, 40).begin(scheduler, Slot(0), fixed(3))
    for _ in range(4):
        scheduler.round([first])
    second = _ask(LONG, 10).begin(scheduler, Slot(1), fixed(3))
    both, *_ = [*_rounds(scheduler, [first, second])]
    assert [type(events[0]) for events in both] == [StepEvent, PromptEvent]
    for request, generation in ((_ask(SHORT, 40), first), (_ask(LONG, 10), second)):
        assert _result(generation).token_ids == _alone(request, list, fixed(0)).token_ids


def test_prompts_share_the_batch_with_drafts() -> None:
    """Half a batch is left for the prompt: it is read in as many rounds as that takes."""
    scheduler = toy_scheduler(_runner(n_batch=6), [_near()])
    writer = _ask(SHORT, 120).begin(scheduler, Slot(0), fixed(3))
    scheduler.round([writer])
    reader = _ask(LONG, 5).begin(scheduler, Slot(1), fixed(3))
    rounds = [events[-1] for events in _rounds(scheduler, [writer, reader])]
    read = [e.done for events in rounds for e in events if isinstance(e, PromptEvent)]
    assert read == [*range(3, 91, 3)]
    assert _result(reader).token_ids == _alone(_ask(LONG, 5), list, fixed(0)).token_ids
    assert _result(writer).token_ids == _alone(_ask(SHORT, 120), list, fixed(0)).token_ids


def test_a_prompt_that_is_given_up_leaves_one_token_not_cached() -> None:
    scheduler = toy_scheduler(_runner(n_batch=10))
    slot = Slot(0)
    generation = _ask(LONG, 5).begin(scheduler, slot, fixed(0))
    scheduler.round([generation])
    scheduler.end(generation)
    assert slot.tokens.ids.tolist() == list(LONG[:11])
    assert scheduler.runner.cached_length(0) == 10


def test_one_sequence_ends_and_its_slot_is_used_again() -> None:
    scheduler = toy_scheduler(_runner(), [NgramSimpleDrafter(1, 3), _near()])
    slots = Slot(0), Slot(1)
    long = _ask(SHORT, 60).begin(scheduler, slots[0], fixed(3))
    first = _ask((4, 5, 6), 5).begin(scheduler, slots[1], fixed(3))
    while first.finish_reason is None:
        scheduler.round([long, first])
    scheduler.end(first)
    turn = _ask((4, 5, 6, *first.token_ids, 2), 12)
    second = turn.begin(scheduler, slots[1], fixed(3))
    # of five answer tokens the last was never cached
    assert second.num_cached_prompt == 3 + 4
    for _ in _rounds(scheduler, [long, second]):
        pass
    assert _result(second).token_ids == _alone(turn, list, fixed(0)).token_ids
    assert _result(long).token_ids == _alone(_ask(SHORT, 60), list, fixed(0)).token_ids


@pytest.mark.parametrize("length", [1, 3, 8])
def test_a_draft_is_no_longer_than_the_rows_of_a_decode(length: int) -> None:
    told = [i % 5 for i in range(40)]
    runner = ToyRunner(reciting(TARGET, [*SHORT, *told]), SIZE, max_outputs=4)
    recorder = RecordingRunner(runner)
    itself = ModelDrafter(ToyRunner(reciting(TARGET, [*SHORT, *told]), SIZE), SIZE, n_max=8)
    scheduler = toy_scheduler(recorder, [itself])
    generation = _ask(SHORT, 30).begin(scheduler, Slot(0), fixed(length))
    for _ in _rounds(scheduler, [generation]):
        pass
    assert max(recorder.block_lengths()[1:]) == 1 + min(length, 3)
    assert _result(generation).stats.acceptance_rate == 1


def test_drafts_of_many_sequences_share_the_rows_of_a_decode() -> None:
    """Two drafts of 8 do not fit 10 rows: each is cut to 4."""
    told = [i % 5 for i in range(40)]
    rows = reciting(TARGET, [*SHORT, *told])
    recorder = RecordingRunner(ToyRunner(rows, SIZE, n_seq=2, max_outputs=10))
    itself = ModelDrafter(ToyRunner(rows, SIZE, n_seq=2), SIZE, n_max=8)
    scheduler = toy_scheduler(recorder, [itself])
    request = Request(SHORT, GenerationSettings(GREEDY, predict=30))
    generations = [request.begin(scheduler, Slot(i), fixed(8)) for i in range(2)]
    for _ in _rounds(scheduler, generations):
        pass
    for generation in generations:
        assert max(recorder.block_lengths(generation.slot.seq_id)[1:]) == 1 + 4
        assert _result(generation).token_ids == told[:30]
