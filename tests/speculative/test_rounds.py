"""Answers that share one cache: each gets what it gets alone, whatever is parked on the way."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tools.recording_runner import Decoded, RecordingRunner, Shared
from tools.toy_runner import ToyRunner, ToyTokenizer, blurred, remembering
from tools.toy_session import check_counts, fixed, toy_scheduler

from outrider.speculative.drafters.drafter import Drafter
from outrider.speculative.drafters.model_drafter import ModelDrafter
from outrider.speculative.events import FinishEvent, GenerationResult
from outrider.speculative.generation import Generation, Slot
from outrider.speculative.rounds import Rounds
from outrider.speculative.scheduler import Scheduler
from outrider.speculative.session import Session
from outrider.speculative.settings import GenerationSettings, SamplingSettings, SpeculationSettings

SIZE = 20
TOKENIZER = ToyTokenizer([bytes([97 + i]) for i in range(SIZE)], {SIZE - 1})
TARGET = remembering(SIZE, seed=31)
N_CTX = 160
SAMPLED = SamplingSettings(temp=0.8, top_k=0, ignore_eos=True, repeat_penalty=1.1)


class Table:
    """Sessions on one runner, and what was told about each answer."""

    def __init__(
        self,
        num_slots: int,
        *,
        n_cells: int = 1 << 20,
        drafts: bool = False,
        n_ctx: int = N_CTX,
        n_batch: int = 256,
    ) -> None:
        self.runner = RecordingRunner(
            ToyRunner(
                TARGET,
                SIZE,
                n_ctx=n_ctx,
                n_seq=num_slots,
                n_batch=n_batch,
                max_outputs=40,
                n_cells=n_cells,
            )
        )
        self.scheduler: Scheduler = toy_scheduler(self.runner, _near(num_slots) if drafts else [])
        self.slots: list[Slot] = []
        self.sessions: list[Session] = []
        for seq_id in range(num_slots):
            session = Session(
                seq_id,
                lambda: self.scheduler,
                TOKENIZER,
                lambda _settings: fixed(3)(),
                slots=self.slots,
            )
            self.slots.append(session.slot)
            self.sessions.append(session)
        self.rounds = Rounds(lambda: self.scheduler, self.slots)
        self.most_parked = 0

    def answer(
        self, prompts: Sequence[Sequence[int]], predict: int = 30
    ) -> dict[int, GenerationResult]:
        """All prompts over the slots, in their order."""
        free, waiting = list(self.sessions), list(enumerate(prompts))
        places: dict[Generation, tuple[int, Session]] = {}
        results = {}
        while waiting or places:
            while free and waiting:
                place, prompt = waiting.pop(0)
                session = free.pop(0)
                asked = GenerationSettings(SAMPLED, predict=predict, seed=place)
                generation = session.begin(prompt, asked)
                places[generation] = (place, session)
                self.rounds.join(generation)
            for generation, events in self.rounds.advance():
                for event in events:
                    if isinstance(event, FinishEvent):
                        place, session = places.pop(generation)
                        results[place] = event.result
                        free.append(session)
            self.most_parked = max(self.most_parked, self.rounds.num_parked)
        return results


def _near(num_slots: int) -> list[Drafter]:
    rows = blurred(TARGET, SIZE, seed=32, spread=0.8)
    runner = ToyRunner(rows, SIZE, n_ctx=N_CTX, n_seq=num_slots, max_outputs=num_slots)
    return [ModelDrafter(runner, SIZE, n_max=8)]


def _alone(prompts: Sequence[Sequence[int]], predict: int = 30) -> list[list[int]]:
    """What each prompt gets by itself, without drafts and with all the room."""
    tokens = []
    for place, prompt in enumerate(prompts):
        session = Table(1).sessions[0]
        asked = GenerationSettings(SAMPLED, predict=predict, seed=place)
        *_, last = session.generate(prompt, asked)
        assert isinstance(last, FinishEvent)
        tokens.append(last.result.token_ids)
    return tokens


def _shared(table: Table) -> list[Shared]:
    return [call for call in table.runner.calls if isinstance(call, Shared)]


PROMPTS = [[1, 2, 3, 4, 5, i % 7, i % 5] for i in range(9)]


@pytest.mark.parametrize("drafts", [False, True])
@pytest.mark.parametrize("n_cells", [1 << 20, 160, 90, 45])
def test_every_answer_is_the_one_it_gets_alone(n_cells: int, drafts: bool) -> None:
    table = Table(4, n_cells=n_cells, drafts=drafts)
    results = table.answer(PROMPTS)
    assert [results[i].token_ids for i in range(len(PROMPTS))] == _alone(PROMPTS)
    assert {one.finish_reason for one in results.values()} == {"length"}
    for one in results.values():
        check_counts(one)
        assert (one.stats.drafted > 0) == drafts or n_cells == 45
    # four answers of 37 tokens need 144 cells in the end
    assert (table.most_parked > 0) == (n_cells < 144)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, SIZE - 2), min_size=1, max_size=90), min_size=1, max_size=8),
    st.integers(1, 4),
    st.integers(130, 300),
    st.integers(0, 25),
    st.booleans(),
)
def test_whatever_room_there_is(
    prompts: list[list[int]], num_slots: int, n_cells: int, predict: int, drafts: bool
) -> None:
    results = Table(num_slots, n_cells=n_cells, drafts=drafts).answer(prompts, predict)
    assert [results[i].token_ids for i in range(len(prompts))] == _alone(prompts, predict)


def test_an_answer_that_has_no_room_even_alone_ends_with_an_error() -> None:
    table = Table(2, n_cells=20)
    results = table.answer([[1, 2, 3], [4, 5, 6]], predict=40)
    for one in results.values():
        assert one.finish_reason == "error"
        assert one.error == ("cache_full", "no room")
        # the text so far stands: 20 cells, and the token that is not in them
        assert len(one.token_ids) == 20 - 3 + 1


def test_what_idle_slots_keep_goes_before_an_answer_is_parked() -> None:
    table = Table(3, n_cells=80)
    table.answer([[1, 2, 3]] * 3, predict=20)
    assert table.most_parked == 0
    kept = [session.context_used for session in table.sessions]
    assert sum(kept) > 40
    table.answer([[9, 8, 7]], predict=50)
    assert table.most_parked == 0
    assert sum(session.context_used > 0 for session in table.sessions) == 1


def test_a_beginning_that_another_slot_has_is_not_read_again() -> None:
    table = Table(2)
    long = [i % 17 for i in range(100)]
    results = table.answer([[*long, 1], [*long, 2], [*long, 3]], predict=5)
    # the second waits for the first to have read what they have in common
    assert [results[i].cached_tokens for i in range(3)] == [0, 100, 100]
    assert _shared(table)[0] == Shared(0, 1, 100)
    assert results[1].token_ids == _alone([[*long, 1], [*long, 2]], predict=5)[1]
    table = Table(2)
    first, second = table.sessions
    for session, last in ((first, 1), (second, 2)):
        *_, end = session.generate([*long, last], GenerationSettings(SAMPLED, predict=5, seed=last))
    assert isinstance(end, FinishEvent)
    assert end.result.cached_tokens == 100
    assert _shared(table) == [Shared(0, 1, 100)]
    assert end.result.token_ids == _alone([[*long, 0]] * 2 + [[*long, 2]], predict=5)[2]


def test_closing_leaves_every_slot_consistent() -> None:
    table = Table(3, n_cells=70)
    for place, session in enumerate(table.sessions):
        asked = GenerationSettings(SAMPLED, predict=60, seed=place)
        table.rounds.join(session.begin(PROMPTS[place], asked))
    while not table.rounds.num_parked:
        table.rounds.advance()
    table.rounds.close()
    assert table.rounds.num_running == 0
    for session in table.sessions:
        cached = table.runner.runner.caches[session.slot.seq_id]  # type: ignore[attr-defined]
        assert cached == session.slot.tokens.ids[: len(cached)].tolist()
        *_, last = session.generate([3, 4], GenerationSettings(SAMPLED, predict=5, seed=9))
        assert isinstance(last, FinishEvent)
        assert last.result.finish_reason == "length"


def _joined(table: Table, lengths: Sequence[int], predict: int) -> list[Generation]:
    """An answer on each slot, to prompts of these lengths."""
    generations = []
    for place, session in enumerate(table.sessions):
        prompt = [(place + i * i) % (SIZE - 1) for i in range(lengths[place])]
        asked = GenerationSettings(SAMPLED, predict=predict, seed=place)
        generations.append(session.begin(prompt, asked))
        table.rounds.join(generations[-1])
    return generations


@pytest.mark.parametrize("drafts", [False, True])
def test_one_that_is_cancelled_leaves_the_others_alone(drafts: bool) -> None:
    table, beside = Table(3, drafts=drafts), Table(3, drafts=drafts)
    expected = _joined(beside, [7, 8, 9], predict=30)
    while beside.rounds.num_running:
        beside.rounds.advance()
    generations = _joined(table, [7, 8, 9], predict=30)
    for _ in range(5):
        table.rounds.advance()
    table.sessions[1].cancel()
    last = dict(table.rounds.advance())[generations[1]][-1]
    assert isinstance(last, FinishEvent)
    assert last.result.finish_reason == "cancelled"
    assert 0 < len(last.result.token_ids) < 30
    while table.rounds.num_running:
        table.rounds.advance()
    for one, other in zip(generations, expected, strict=True):
        assert one.token_ids == other.token_ids[: len(one.token_ids)]
        check_counts(one)
    assert [len(one.token_ids) for one in generations[::2]] == [30, 30]


def test_one_that_is_parked_can_be_cancelled() -> None:
    table = Table(3, n_cells=70)
    generations = _joined(table, [7, 8, 9], predict=60)
    while not table.rounds.num_parked:
        table.rounds.advance()
    table.sessions[2].cancel()
    ((generation, [last]),) = table.rounds.advance()
    assert generation is generations[2]
    assert isinstance(last, FinishEvent)
    assert last.result.finish_reason == "cancelled"
    assert table.rounds.num_running == 2
    while table.rounds.num_running:
        table.rounds.advance()
    assert {one.finish_reason for one in generations[:2]} == {"length"}


def test_a_step_waits_for_one_part_of_a_prompt_however_many_are_read() -> None:
    table = Table(4, n_ctx=1024, n_batch=2048)
    generations = _joined(table, [5, 700, 700, 700], predict=60)
    table.rounds.advance()
    table.runner.calls.clear()
    while any(one.is_reading for one in generations[1:]):
        before = len(generations[0].token_ids)
        table.rounds.advance()
        # the one that generates takes part in every round
        assert len(generations[0].token_ids) == before + 1
    parts = [
        [(block.seq_id, len(block.token_ids)) for block in call.blocks if len(block.token_ids) > 1]
        for call in table.runner.calls
        if isinstance(call, Decoded)
    ]
    assert all(sum(length for _, length in part) <= 512 for part in parts)
    # the oldest first, and none in pieces too small
    order = [seq_id for part in parts for seq_id, _ in part]
    assert order == sorted(order)
    assert min(length for part in parts for _, length in part) >= 64


@pytest.mark.parametrize("limit", [1, 2])
def test_no_drafts_beyond_the_limit_and_no_verdict_on_them(limit: int) -> None:
    table = Table(3, drafts=True)
    table.scheduler.speculation = SpeculationSettings(adaptive=False, max_slots=limit)
    results = table.answer(PROMPTS[:3], predict=30)
    for one in results.values():
        assert one.stats.drafted == 0
        assert one.stats.acceptance_rate is None
        assert one.stats.paused_steps >= one.stats.steps > 0
        assert one.stats.paused is not None
        assert one.stats.paused.reason == f"3 slots generate, limit {limit}"
    assert all(one.stats.drafted > 20 for one in table.answer(PROMPTS[3:4]).values())
