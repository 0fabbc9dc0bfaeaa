"""What is emitted and what is counted: blocks that end in every possible way, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from tools.toy_runner import ToyRunner, ToyTokenizer, reciting, remembering
from tools.toy_session import check_counts, fixed, result_of, toy_session

from outrider.speculative.drafters.made_up import ScriptDrafter
from outrider.speculative.events import Event, FinishEvent, GenerationResult, StepEvent
from outrider.speculative.settings import GenerationSettings, SamplingSettings

SIZE = 30
END, OTHER_END, XYZ, E_1, E_2 = 25, 26, 27, 28, 29
LETTERS = [bytes([97 + i]) for i in range(25)]  # token 1 is "b", 2 is "c", ...
TOKENIZER = ToyTokenizer([*LETTERS, b"", b"", b"xyz", b"\xc3", b"\xa9"], {END, OTHER_END})
PROMPT = [9, 8, 7, 6]
GREEDY = SamplingSettings(temp=0)


@dataclass(frozen=True)
class Block:
    """An answer of the target, the drafts that are made for it, and what must come of them."""

    told: Sequence[int]
    drafts: Sequence[Sequence[int]]
    token_ids: Sequence[int]
    steps: int
    drafted: int
    accepted: int
    own: int
    histogram: Sequence[int]
    finish_reason: str = "stop"
    text: str | None = None
    discarded: int = 0
    settings: GenerationSettings = field(default_factory=lambda: GenerationSettings(GREEDY))
    n_ctx: int = 256


def _asked(predict: int = -1, stop: tuple[str, ...] = ()) -> GenerationSettings:
    return GenerationSettings(GREEDY, predict=predict, stop=stop)


# The first token comes out of the prompt: own, but no step.
BLOCKS = {
    "all accepted, partly accepted, no room for a draft": Block(
        told=[1, 2, 3, 4, 5, 6, 7, 8],
        drafts=[[2, 3, 4], [6, 0]],  # + 5, 6 + 7, 8
        token_ids=[1, 2, 3, 4, 5, 6, 7, 8],
        steps=3,
        drafted=5,
        accepted=4,
        own=4,
        histogram=[0, 1, 0, 1],
        finish_reason="length",
        settings=_asked(predict=8),
    ),
    "nothing accepted": Block(
        told=[1, 2, 3, 4],
        drafts=[[0, 3], [0, 4]],  # 2, 3, 4
        token_ids=[1, 2, 3, 4],
        steps=3,
        drafted=3,  # the second draft is cut to what -n leaves
        accepted=0,
        own=4,
        histogram=[2],
        finish_reason="length",
        discarded=1,
        settings=_asked(predict=4),
    ),
    "a step without a draft between two drafts": Block(
        told=[1, 2, 3, 4, 5, 6],
        drafts=[[2], [], [5]],
        token_ids=[1, 2, 3, 4, 5, 6],
        steps=3,
        drafted=2,
        accepted=2,
        own=4,
        histogram=[0, 2],
        finish_reason="length",
        settings=_asked(predict=6),
    ),
    "the draft is cut by -n": Block(
        told=[1, 2, 3, 4, 5, 6],
        drafts=[[2, 3, 4, 5, 6]],
        token_ids=[1, 2, 3],
        steps=1,
        drafted=1,
        accepted=1,
        own=2,
        histogram=[0, 1],
        finish_reason="length",
        discarded=4,
        settings=_asked(predict=3),
    ),
    "the draft is cut by the context": Block(
        told=[1, 2, 3, 4, 5, 6],
        drafts=[[2, 3, 4, 5, 6]],  # of 8 cells 4 are the prompt and 1 the first token
        token_ids=[1, 2, 3, 4],
        steps=1,
        drafted=2,
        accepted=2,
        own=2,
        histogram=[0, 0, 1],
        finish_reason="context",
        discarded=3,
        n_ctx=8,
    ),
    "the first token is an end": Block(
        told=[END],
        drafts=[[2]],
        token_ids=[],
        steps=0,
        drafted=0,
        accepted=0,
        own=0,
        histogram=[],
    ),
    "an end in a step without a draft": Block(
        told=[1, OTHER_END],
        drafts=[],
        token_ids=[1],
        steps=0,
        drafted=0,
        accepted=0,
        own=1,
        histogram=[],
    ),
    "an end is accepted": Block(
        told=[1, 2, 3, END],
        drafts=[[2, 3, END, 4]],
        token_ids=[1, 2, 3],
        steps=1,
        drafted=2,
        accepted=2,
        own=1,
        histogram=[0, 0, 1],
    ),
    "an end is accepted first": Block(
        told=[1, END],
        drafts=[[END, 3, 4]],
        token_ids=[1],
        steps=0,
        drafted=0,
        accepted=0,
        own=1,
        histogram=[],
    ),
    "an end replaces a draft token": Block(
        told=[1, 2, END],
        drafts=[[2, 8, 9]],  # 8 was verified and rejected, 9 stands after the end
        token_ids=[1, 2],
        steps=1,
        drafted=2,
        accepted=1,
        own=1,
        histogram=[0, 1],
    ),
    "an end replaces the first draft token": Block(
        told=[1, END],
        drafts=[[2, 3]],
        token_ids=[1],
        steps=0,
        drafted=0,
        accepted=0,
        own=1,
        histogram=[],
    ),
    "an end is the bonus token": Block(
        told=[1, 2, 3, END],
        drafts=[[2, 3]],
        token_ids=[1, 2, 3],
        steps=1,
        drafted=2,
        accepted=2,
        own=1,
        histogram=[0, 0, 1],
    ),
    "an end is rejected": Block(
        told=[1, 2, 3],
        drafts=[[END, 3]],
        token_ids=[1, 2, 3],
        steps=2,
        drafted=1,
        accepted=0,
        own=3,
        histogram=[1],
        finish_reason="length",
        discarded=1,
        settings=_asked(predict=3),
    ),
    "a stop string ends on an accepted token": Block(
        told=[1, 2, 3, 4, 5],
        drafts=[[2, 3, 4]],
        token_ids=[1, 2],
        steps=1,
        drafted=1,
        accepted=1,
        own=1,
        histogram=[0, 1],
        text="bc",
        settings=_asked(stop=("d",)),
    ),
    "a stop string reaches back into an earlier block": Block(
        told=[1, 2, 3, 4, 5, 6, 7],
        drafts=[[2, 3], [5, 6, 7]],  # "b", "cd" + "e", "f"
        token_ids=[1, 2],
        steps=1,
        drafted=1,
        accepted=1,
        own=1,
        histogram=[0, 1],
        text="bc",
        settings=_asked(stop=("def",)),
    ),
    "a stop string reaches back to the first token": Block(
        told=[1, 2, 3, 4, 5],
        drafts=[[2, 3], [5]],
        token_ids=[],
        steps=0,
        drafted=0,
        accepted=0,
        own=0,
        histogram=[],
        text="",
        settings=_asked(stop=("bcdef",)),
    ),
    "a stop string begins inside a token, the draft is right": Block(
        told=[1, XYZ, 2, 3],
        drafts=[[XYZ, 2]],
        token_ids=[1, XYZ],
        steps=1,
        drafted=1,
        accepted=1,
        own=1,
        histogram=[0, 1],
        text="bxy",
        settings=_asked(stop=("z",)),
    ),
    "a stop string begins inside a token, the draft is wrong after it": Block(
        told=[1, XYZ, 2, 3],
        drafts=[[XYZ, 0]],
        token_ids=[1, XYZ],
        steps=1,
        drafted=1,
        accepted=1,
        own=1,
        histogram=[0, 1],
        text="bxy",
        settings=_asked(stop=("z",)),
    ),
    "a stop string begins inside the token of the target": Block(
        told=[1, 2, XYZ, 3],
        drafts=[[2, 0, 0]],
        token_ids=[1, 2, XYZ],
        steps=1,
        drafted=3,
        accepted=1,
        own=2,
        histogram=[0, 1],
        text="bcxy",
        settings=_asked(stop=("z",)),
    ),
    "a character of two tokens, one drafted": Block(
        told=[1, E_1, E_2, 2, END],
        drafts=[[E_1], [2, END]],
        token_ids=[1, E_1, E_2, 2],
        steps=2,
        drafted=2,
        accepted=2,
        own=2,
        histogram=[0, 2],
        text="béc",
    ),
}


def _run(block: Block) -> GenerationResult:
    return result_of(_events(block))


def _events(block: Block) -> list[Event]:
    told = reciting(remembering(SIZE, seed=4), [*PROMPT, *block.told])
    runner = ToyRunner(told, SIZE, n_ctx=block.n_ctx)
    session = toy_session(runner, TOKENIZER, [ScriptDrafter(block.drafts)], fixed(8))
    return list(session.generate(PROMPT, block.settings))


@pytest.mark.parametrize("name", BLOCKS)
def test_counts_by_hand(name: str) -> None:
    block = BLOCKS[name]
    result = _run(block)
    stats = result.stats
    assert result.token_ids == block.token_ids
    assert result.finish_reason == block.finish_reason
    if block.text is not None:
        assert result.text == block.text
    counts = (stats.steps, stats.drafted, stats.accepted, stats.own, stats.discarded)
    assert counts == (block.steps, block.drafted, block.accepted, block.own, block.discarded)
    assert stats.accepted_histogram == block.histogram
    assert stats.drafts == sum(block.histogram)
    assert stats.verification["greedy"] == stats.verification.total() == stats.drafts
    check_counts(result)


def test_rates_by_hand() -> None:
    result = _run(BLOCKS["all accepted, partly accepted, no room for a draft"])
    stats = result.stats
    assert stats.acceptance_rate == 4 / 5
    assert stats.mean_accepted_length == 1 + 4 / 2
    assert stats.drafts_per_position == [2, 2, 1]
    assert stats.accepted_per_position == [1, 1 / 2, 1]
    script = stats.per_drafter["script"]
    assert (script.drafts, script.drafted, script.accepted) == (2, 5, 4)


def test_without_a_draft_there_is_no_rate() -> None:
    stats = _run(BLOCKS["an end in a step without a draft"]).stats
    assert stats.acceptance_rate is None
    assert stats.mean_accepted_length is None
    assert stats.accepted_per_position == []


def test_steps_say_what_they_emitted() -> None:
    told = reciting(remembering(SIZE, seed=4), [*PROMPT, 1, 2, 3, 4, 5, 6, 7, 8])
    members = [ScriptDrafter([[2, 3, 4], [6, 0]])]
    session = toy_session(ToyRunner(told, SIZE), TOKENIZER, members, fixed(8))
    events = list(session.generate(PROMPT, _asked(predict=8)))
    steps = [event for event in events if isinstance(event, StepEvent)]
    assert [(step.token_ids, step.num_accepted, step.text) for step in steps] == [
        ((1,), 0, "b"),
        ((2, 3, 4, 5), 3, "cdef"),
        ((6, 7), 1, "gh"),
        ((8,), 0, "i"),
    ]


@pytest.mark.parametrize("name", BLOCKS)
def test_steps_sum_to_the_counts_but_for_what_a_stop_string_takes_back(name: str) -> None:
    block = BLOCKS[name]
    events = _events(block)
    steps = [event for event in events if isinstance(event, StepEvent)]
    stats = result_of(events).stats
    sums = (
        sum(len(step.token_ids) for step in steps),
        sum(step.num_drafted for step in steps),
        sum(step.num_accepted for step in steps),
    )
    counts = (stats.emitted, stats.drafted, stats.accepted)
    assert sums == counts or (block.settings.stop and sums > counts)


@pytest.mark.parametrize("length", [0, 1, 3])
@pytest.mark.parametrize("stop", [(), ("yza",), ("\xe9x", "qrs")])
def test_events_mark_the_text_of_accepted_tokens(stop: tuple[str, ...], length: int) -> None:
    # with a character of two tokens, and text that is held back for a stop string
    told = np.random.default_rng(6).choice([0, 16, 17, 24, XYZ], 30).tolist()
    told[10:10] = [E_1, E_2]
    told[20:20] = [24, 24, E_1, E_2]
    wrong = {0: 5, 16: 0, 17: 0, 24: 0, XYZ: 0, E_1: 0, E_2: 0}
    drafts: list[list[int]] = []
    for begin in range(1, len(told), length + 1):
        draft = told[begin : begin + length]
        # every second draft ends with an error
        drafts.append([*draft[:-1], wrong[draft[-1]]] if len(drafts) % 2 and draft else draft)
    rows = reciting(remembering(SIZE, seed=4), [*PROMPT, *told])
    session = toy_session(ToyRunner(rows, SIZE), TOKENIZER, [ScriptDrafter(drafts)], fixed(8))
    settings = replace(_asked(predict=len(told), stop=stop), marks_accepted=True)
    events = list(session.generate(PROMPT, settings))
    shown = [event for event in events if isinstance(event, StepEvent | FinishEvent)]
    is_tinted = [
        any(start <= place < end for start, end in event.accepted)
        for event in shown
        for place in range(len(event.text))
    ]
    assert is_tinted == _owners(events)[: len(is_tinted)]
    assert len(is_tinted) == len(result_of(events).text)
    assert any(is_tinted) == (length > 0)


def _owners(events: Sequence[Event]) -> list[bool]:
    """For each character whether the token that completes it was accepted."""
    owners: list[bool] = []
    data = b""
    for step in (event for event in events if isinstance(event, StepEvent)):
        for number, token in enumerate(step.token_ids):
            data += TOKENIZER.piece(token)
            complete = len(data.decode(errors="ignore"))
            owners += [number < step.num_accepted] * (complete - len(owners))
    return owners


def test_text_that_was_held_back_is_marked_in_the_last_event() -> None:
    told = reciting(remembering(SIZE, seed=4), [*PROMPT, 1, 2, 3, 4])
    session = toy_session(ToyRunner(told, SIZE), TOKENIZER, [ScriptDrafter([[2, 3]])], fixed(8))
    settings = replace(_asked(predict=4, stop=("dex",)), marks_accepted=True)
    *_, step, last = session.generate(PROMPT, settings)
    assert isinstance(step, StepEvent)
    assert isinstance(last, FinishEvent)
    assert (step.text, step.accepted) == ("c", ((0, 1),))
    assert (last.text, last.accepted) == ("de", ((0, 1),))  # e is the target's own


def test_nothing_is_marked_unless_it_is_asked_for() -> None:
    events = _events(BLOCKS["all accepted, partly accepted, no room for a draft"])
    assert all(event.accepted == () for event in events if isinstance(event, StepEvent))


@pytest.mark.parametrize("length", [0, 1, 2, 5])
@pytest.mark.parametrize("stop", ["a", "fx", "qrs", "yz", "nothing", "xyza"])
def test_the_text_ends_before_the_first_stop_string(stop: str, length: int) -> None:
    told = np.random.default_rng(5).choice([0, 5, 16, 17, 18, 23, 24, XYZ], 60).tolist()
    whole = b"".join(TOKENIZER.piece(token) for token in told).decode()
    rows = reciting(remembering(SIZE, seed=4), [*PROMPT, *told])
    drafts = [told[begin : begin + length] for begin in range(1, 60, length + 1)]
    session = toy_session(ToyRunner(rows, SIZE), TOKENIZER, [ScriptDrafter(drafts)], fixed(8))
    settings = _asked(predict=60, stop=(stop,))
    events = list(session.generate(PROMPT, settings))
    shown = "".join(event.text for event in events if isinstance(event, StepEvent))
    expected, found, _ = whole.partition(stop)
    result = result_of(events)
    assert result.text == expected
    assert expected.startswith(shown)
    assert result.finish_reason == ("stop" if found else "length")
    check_counts(result)
