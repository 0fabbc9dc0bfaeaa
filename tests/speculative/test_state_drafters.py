"""Drafters that read the target's hidden states: their cache is always that of the text.

After anything that can happen to a sequence, the next draft's rows must be those of an empty
draft cache that is given the target's rows anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from tools.gguf_edit import GgufEdit
from tools.recording_drafter import RecordingDrafter
from tools.state_rig import N_MAX, StateRig, assert_same_draft, exact_settings
from tools.toy_session import check_counts, result_of
from tools.witness import model_settings
from tools.zoo_pairs import PAIRS, PROMPTS, Pair

from outrider.speculative.drafters.seeded_drafter import SeededDrafter
from outrider.speculative.drafters.state_drafter import StateDrafter
from outrider.speculative.drafters.state_ring import RING_ROWS
from outrider.speculative.engine import Engine
from outrider.speculative.generation import Generation
from outrider.speculative.gguf_file import GgufFile
from outrider.speculative.session import Session
from outrider.speculative.settings import (
    EngineSettings,
    GenerationSettings,
    SamplingSettings,
    SpeculationSettings,
)

VOCAB_SIZE = 512
NAMES = (
    "eagle3-d2t",
    "eagle3-full",
    "dflash",
    "dflash2",
    "dspark",
    "dspark-spec",
    "mtp-glm4moe",
    "mtp-qwen35",
    "mtp-qwen35-head",
    "mtp3-mimo2",
    "lfm2-dflash",
    "lfm2-eagle3-d2t",
)
all_pairs = pytest.mark.parametrize("pair", [PAIRS[name] for name in NAMES], ids=NAMES)

MakeRig = Callable[..., StateRig]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exact")


@pytest.fixture
def make_rig(folder: Path) -> Iterator[MakeRig]:
    rigs = []

    def make(pair: Pair, *, n_seq: int = 1, n_ctx: int = 1024) -> StateRig:
        rigs.append(StateRig(*exact_settings(pair, folder, n_ctx), n_seq=n_seq))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.close()


class Fate:
    """Throws the dice."""

    def __init__(self, seed: int) -> None:
        self._numbers = np.random.default_rng(seed)

    def number(self, low: int, high: int) -> int:
        return int(self._numbers.integers(low, high + 1))

    def tokens(self, low: int, high: int) -> list[int]:
        return [self.token() for _ in range(self.number(low, high))]

    def token(self) -> int:
        return self.number(0, VOCAB_SIZE - 1)


# one sequence

EVENTS = (
    "own draft",
    "own draft",
    "own draft",
    "draft of another",
    "plain steps",
    "asked twice",
    "next turn",
    "undo",
    "new chat",
    "cancelled",
)


def _happen(rig: StateRig, event: str, fate: Fate) -> None:
    text = rig.texts[0]
    match event:
        case "own draft":
            draft = rig.draft(fate.number(1, N_MAX)).token_ids
            rig.step(draft, fate.number(0, len(draft)), fate.token())
        case "draft of another":
            tokens = fate.tokens(1, N_MAX)
            rig.step(tokens, fate.number(0, len(tokens)), fate.token())
        case "plain steps":
            for _ in range(fate.number(1, 20)):
                rig.step([], 0, fate.token())
        case "asked twice":
            rig.draft(fate.number(1, N_MAX))
        case "next turn":
            rig.prompt([*text, *fate.tokens(1, 30)], fate.token(), piece=fate.number(1, 40))
        case "undo":
            kept = text[: fate.number(1, len(text))]
            rig.prompt([*kept, *fate.tokens(1, 9)], fate.token(), piece=fate.number(3, 40))
        case "new chat":
            rig.reset()
            rig.prompt(fate.tokens(1, 60), fate.token())
        case "cancelled":
            # a prompt is given up in the middle, another takes its place
            given_up = [*text, *fate.tokens(20, 40)]
            rig.begin(given_up)
            block = rig.prompt_block(given_up, fate.number(1, 19))
            assert block is not None
            rig.decode([block])
            kept = given_up[: fate.number(1, len(given_up))]
            rig.prompt([*kept, *fate.tokens(1, 9)], fate.token())


@all_pairs
@pytest.mark.parametrize("seed", range(3))
def test_the_draft_cache_is_that_of_the_text(pair: Pair, seed: int, make_rig: MakeRig) -> None:
    rig, fate = make_rig(pair), Fate(seed)
    rig.prompt(fate.tokens(2, 60), fate.token())
    for _ in range(50):
        event = EVENTS[fate.number(0, len(EVENTS) - 1)]
        _happen(rig, "new chat" if len(rig.texts[0]) > 400 else event, fate)
        found = rig.draft()
        assert len(found.token_ids) == min(N_MAX, rig.drafter.n_max)
        assert_same_draft(found, rig.fresh_draft())
    rig.check_rows()


@all_pairs
def test_after_a_gap_longer_than_the_ring_drafts_begin_at_the_ring(
    pair: Pair, make_rig: MakeRig
) -> None:
    rig, fate = make_rig(pair), Fate(3)
    rig.prompt(fate.tokens(50, 50), fate.token())
    rig.step(rig.draft().token_ids, 2, fate.token())
    rig.prompt([*rig.texts[0], *fate.tokens(600, 600)], fate.token())
    first = len(rig.texts[0]) - 1 - RING_ROWS
    for _ in range(6):
        found = rig.draft()
        assert len(found.token_ids) == min(N_MAX, rig.drafter.n_max)
        # the draft cache goes on from there, although the ring forgets more
        assert_same_draft(found, rig.fresh_draft(first=first))
        rig.step(found.token_ids, fate.number(0, len(found.token_ids)), fate.token())


@all_pairs
def test_a_long_text_without_a_gap_is_remembered_whole(pair: Pair, make_rig: MakeRig) -> None:
    rig, fate = make_rig(pair), Fate(4)
    rig.prompt(fate.tokens(400, 400), fate.token())
    for _ in range(3):
        rig.draft()
        rig.prompt([*rig.texts[0], *fate.tokens(90, 90)], fate.token())
    assert len(rig.texts[0]) > RING_ROWS
    assert_same_draft(rig.draft(), rig.fresh_draft())


@all_pairs
def test_a_drafter_that_came_late_waits_for_rows(pair: Pair, make_rig: MakeRig) -> None:
    rig, fate = make_rig(pair), Fate(5)
    rig.prompt(fate.tokens(40, 40), fate.token(), is_seen=False)
    assert not rig.draft().token_ids
    first = len(rig.texts[0]) - 1
    for _ in range(4):
        rig.step(fate.tokens(2, 2), 1, fate.token())
        assert_same_draft(rig.draft(), rig.fresh_draft(first=first))


@all_pairs
def test_drafts_end_where_the_context_ends(pair: Pair, make_rig: MakeRig) -> None:
    n_ctx = 256
    rig, fate = make_rig(pair, n_ctx=n_ctx), Fate(6)
    rig.prompt(fate.tokens(n_ctx - 8, n_ctx - 8), fate.token())
    lengths = []
    while len(rig.texts[0]) < n_ctx:
        room = n_ctx - len(rig.texts[0])
        found = rig.draft()
        assert len(found.token_ids) == min(N_MAX, rig.drafter.n_max, room)
        assert_same_draft(found, rig.fresh_draft())
        lengths.append(len(found.token_ids))
        rig.step([], 0, fate.token())
    assert lengths[-3:] == [3, 2, 1]
    assert not rig.draft().token_ids


# several sequences


@all_pairs
def test_two_sequences_in_different_phases_are_drafted_as_if_alone(
    pair: Pair, make_rig: MakeRig
) -> None:
    rig, fate = make_rig(pair, n_seq=2), Fate(7)
    rig.prompt(fate.tokens(30, 30), fate.token())
    prompt, first = fate.tokens(45, 45), fate.token()
    rig.begin(prompt, seq=1)
    drafts = {0: rig.draft().token_ids}
    # one writes while the other reads, then both write
    while block := rig.prompt_block(prompt, 10, seq=1):
        rig.decode([rig.step_block(drafts[0]), block])
        rig.settle(drafts[0], fate.number(0, len(drafts[0])), fate.token())
        found = rig.draft()
        assert_same_draft(found, rig.fresh_draft())
        drafts[0] = found.token_ids
    rig.texts[1] = [*prompt, first]
    for i in range(8):
        order = (0, 1) if i % 2 else (1, 0)
        lengths = {seq: N_MAX if i < 4 else fate.number(1, N_MAX) for seq in order}
        both = rig.drafts(lengths)
        for seq, found in both.items():
            assert len(found.token_ids) == min(lengths[seq], rig.drafter.n_max)
            # a block is drafted in the length of the longest
            assert_same_draft(found, rig.fresh_draft(seq, length=max(lengths.values())))
        rig.decode([rig.step_block(both[seq].token_ids, seq=seq) for seq in order])
        for seq, found in both.items():
            kept = fate.number(0, len(found.token_ids))
            rig.settle(found.token_ids, kept, fate.token(), seq=seq)


@all_pairs
def test_two_sequences_share_every_decode_that_drafts(pair: Pair, make_rig: MakeRig) -> None:
    rig, fate = make_rig(pair, n_seq=2), Fate(8)
    for seq in (0, 1):
        rig.prompt(fate.tokens(20 + seq, 20 + seq), fate.token(), seq=seq)
    for _ in range(3):
        rig.context.decodes.clear()
        both = rig.drafts({0: N_MAX, 1: N_MAX})
        decodes = rig.context.decodes
        # DFlash2's scores are no logits: its block has no outputs
        drafting = [
            entries
            for entries, outputs in (decodes[-1:] if pair.name == "dflash2" else decodes)
            if outputs or pair.name == "dflash2"
        ]
        if pair.name == "mtp3-mimo2":  # each head reads what the one before drafted, text by text
            assert all(len(entries) == 1 for entries in drafting)
        else:
            assert all(set(entries) == {0, 1} for entries in drafting)
            assert len(drafting) == (N_MAX if isinstance(rig.drafter, SeededDrafter) else 1)
        for seq, found in both.items():
            rig.step(found.token_ids, 2, fate.token(), seq=seq)


@pytest.mark.parametrize("name", ["eagle3-d2t", "dflash", "dspark", "mtp-qwen35-head"])
def test_a_drafter_trained_on_shorter_texts_stops_where_they_ended(
    name: str, folder: Path, tmp_path: Path
) -> None:
    pair = PAIRS[name]
    model = pair.drafter.model
    assert model is not None
    path = folder / f"short-{model.path.name}"
    architecture = GgufFile.open(model.path).text("general.architecture")
    GgufEdit(model.path).set(f"{architecture}.context_length", 64).write(path)
    drafter = replace(pair.drafter, model=replace(model, path=path))

    rig = StateRig(*exact_settings(replace(pair, drafter=drafter), tmp_path, 1024), n_seq=2)
    fate = Fate(9)
    for seq, length in enumerate((61, 30)):
        rig.prompt(fate.tokens(length, length), fate.token(), seq=seq)
    drafts = rig.drafts({0: N_MAX, 1: N_MAX})
    # the longer text has room for two; blocks have one length, others go on alone
    alone = N_MAX if isinstance(rig.drafter, SeededDrafter) else 2
    assert [len(drafts[seq].token_ids) for seq in (0, 1)] == [2, alone]
    rig.step([], 0, fate.token())
    rig.step([], 0, fate.token())
    drafts = rig.drafts({0: N_MAX, 1: N_MAX})
    assert [len(drafts[seq].token_ids) for seq in (0, 1)] == [0, N_MAX]
    rig.close()

    settings = EngineSettings(
        model_settings(pair.target), (drafter,), SpeculationSettings(adaptive=False, n_max=4)
    )
    with Engine.load(settings) as engine:
        [notice] = engine.notices
        assert notice == f"{path.name}: trained on 64 tokens, it drafts no further"
        prompt = next(prompt for prompt in PROMPTS if prompt.name == "story-fox")
        asked = GenerationSettings(SamplingSettings(temp=0), predict=100)
        recorder = RecordingDrafter.watch(engine)
        result = result_of(engine.session().generate(engine.encode(prompt.text), asked))
        assert result.token_ids == pair.answer(prompt)
        reached = {len(draft.text) for draft in recorder.made()}
        assert 55 < max(reached) < 64
        assert len(prompt.text) + len(result.token_ids) > 90


# a conversation


def _fresh_drafts_are_the_same(recorder: RecordingDrafter, rig: StateRig) -> int:
    """Check what was drafted against an empty drafter, and how many drafts that were."""
    drafts = recorder.made()
    for draft in drafts:
        rig.reset()
        rig.prompt(draft.text[:-1], draft.text[-1])
        fresh = rig.draft(N_MAX).token_ids
        assert draft.token_ids == fresh[: len(draft.token_ids)]
    return len(drafts)


@all_pairs
def test_a_conversation_that_changes_its_mind(pair: Pair, folder: Path, make_rig: MakeRig) -> None:
    """Next turn, cancel, undo, drafter off and on, other lengths, new chat."""
    rig = make_rig(pair)
    target, drafter = exact_settings(pair, folder, 1024)
    on = SpeculationSettings(adaptive=False, n_max=N_MAX)
    asked = GenerationSettings(SamplingSettings(temp=0), predict=24)
    count = next(prompt.text for prompt in PROMPTS if prompt.name == "count")
    story = next(prompt.text for prompt in PROMPTS if prompt.name == "story-owl")
    with Engine.load(EngineSettings(target, (drafter,), on)) as engine:
        session = engine.session()

        def answer(prompt: list[int], steps: int | None = None) -> list[int]:
            """Text after ``prompt``; given up after ``steps`` events."""
            events = session.generate(prompt, asked)
            if steps is None:
                result = result_of(events)
                check_counts(result)
                return [*prompt, *result.token_ids]
            list(islice(events, steps))
            events.close()
            return [*prompt, *session.slot.tokens.ids[len(prompt) :].tolist()]

        recorder = RecordingDrafter.watch(engine)
        first = answer(engine.encode(count))
        second = answer([*first, *engine.encode(story)[1:]], steps=4)
        answer([*second, *engine.encode(count)[1:]])
        answer(first[:-5])  # undone, and asked in other words
        answer(first)
        assert _fresh_drafts_are_the_same(recorder, rig) > 8

        engine.configure(on, [])
        plain = answer([*first, *engine.encode(story)[1:]])
        engine.configure(on, [drafter])
        recorder = RecordingDrafter.watch(engine)
        answer(plain)
        assert _fresh_drafts_are_the_same(recorder, rig) > 0

        engine.configure(replace(on, n_max=2))
        recorder = RecordingDrafter.watch(engine)
        answer(plain)
        session.reset()
        answer(engine.encode(count))
        assert _fresh_drafts_are_the_same(recorder, rig) > 4


def _generations(sessions: list[Session], prompts: list[list[int]]) -> list[Generation]:
    asked = GenerationSettings(SamplingSettings(temp=0), predict=40)
    return [session.begin(prompt, asked) for session, prompt in zip(sessions, prompts, strict=True)]


@all_pairs
def test_two_conversations_in_one_batch_are_those_of_each_alone(pair: Pair, folder: Path) -> None:
    target, drafter = exact_settings(pair, folder, 1024)
    on = SpeculationSettings(adaptive=False, n_max=N_MAX)
    texts = [p.text for p in PROMPTS if p.name in ("count", "json-tom")]

    def run(numbers: list[int]) -> dict[int, tuple[list[int], list[tuple[int, ...]]]]:
        with Engine.load(EngineSettings(target, (drafter,), on, parallel=2)) as engine:
            recorder = RecordingDrafter.watch(engine)
            sessions = [engine.session() for _ in range(2)]
            generations = dict(
                zip(
                    numbers,
                    _generations(
                        [sessions[i] for i in numbers], [engine.encode(texts[i]) for i in numbers]
                    ),
                    strict=True,
                )
            )
            # the second joins a few steps later
            for _ in range(3):
                engine._running.round([generations[numbers[0]]])
            while going := [g for g in generations.values() if g.finish_reason is None]:
                engine._running.round(going)
            drafts = recorder.made()
            return {
                i: (g.token_ids, [d.token_ids for d in drafts if d.seq_id == i])
                for i, g in generations.items()
            }

    assert run([0, 1]) == run([0]) | run([1])


@pytest.mark.parametrize("name", ["eagle3-d2t", "dflash", "mtp-glm4moe", "mtp3-mimo2"])
def test_the_end_of_an_answer_cuts_the_cache(name: str) -> None:
    """A stop string in the middle of a block: no cell of the draft context is beyond the text."""
    pair, prompt = PAIRS[name], next(p for p in PROMPTS if p.name == "count")
    with pair.load(n_max=4) as engine:
        drafter = engine._running.drafter.members[0]
        assert isinstance(drafter, StateDrafter)
        session = engine.session()
        for stop in (", 7", ", 9", "1", "12"):
            asked = GenerationSettings(SamplingSettings(temp=0), predict=60, stop=(stop,))
            result = result_of(session.generate(engine.encode(prompt.text), asked))
            assert result.finish_reason == "stop"
            text = [*engine.encode(prompt.text), *result.token_ids]
            assert session.slot.tokens.ids.tolist() == text
            assert 0 < drafter._context.end(0) < len(text)
            assert engine._running.runner.cached_length(0) == len(text) - 1
