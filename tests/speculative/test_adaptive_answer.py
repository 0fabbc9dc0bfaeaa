"""Whole answers with a drafter whose drafts are known: when it is given up, and when taken back."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from tools.toy_runner import ToyRunner, ToyTokenizer, remembering
from tools.toy_session import adaptive, answer, toy_session

from outrider.speculative.drafters.made_up import OracleDrafter
from outrider.speculative.events import StepEvent
from outrider.speculative.settings import GenerationSettings, SamplingSettings

SIZE = 24
PROMPT = (1, 2, 3)
LENGTH = 200
ASKED = GenerationSettings(SamplingSettings(temp=0), predict=LENGTH)
TOKENIZER = ToyTokenizer([bytes([65 + i]) for i in range(SIZE)])


def _runner() -> ToyRunner:
    return ToyRunner(remembering(SIZE, seed=5), SIZE)


def _steps(wrong: Collection[int]) -> tuple[list[int], list[int]]:
    """For each step of an answer: where in the answer it began, and how many tokens it drafted."""
    plain = answer(toy_session(_runner(), TOKENIZER), PROMPT, ASKED).token_ids
    assert len(plain) == LENGTH
    oracle = OracleDrafter(plain, len(PROMPT), wrong)
    session = toy_session(_runner(), TOKENIZER, [oracle], adaptive(8))
    begins, drafted, before = [0], [0], 0
    for event in session.generate(PROMPT, ASKED):
        if isinstance(event, StepEvent):
            begins.append(begins[-1] + len(event.token_ids))
            drafted.append(session.stats.drafted - before)
            before = session.stats.drafted
    return begins, drafted[1:]


def test_a_losing_drafter_is_at_length_0_within_20_steps() -> None:
    _, drafted = _steps(range(LENGTH))
    assert sum(drafted) > 0
    assert not any(drafted[20:])


@pytest.mark.parametrize("num_bad", [20, 60, 120])
def test_one_that_becomes_right_is_used_again_within_64_tokens(num_bad: int) -> None:
    begins, drafted = _steps(range(num_bad))
    again = [begin for begin, count in zip(begins, drafted, strict=False) if count]
    assert not [begin for begin in again if 20 < begin < num_bad - 8]
    back = next(begin for begin in again if begin >= num_bad)
    assert back - num_bad <= 64
    # and from then on whole drafts pay
    assert sum(drafted) > (LENGTH - back) / 2


def test_a_drafter_that_is_always_right_is_used_from_the_start() -> None:
    begins, drafted = _steps(())
    assert drafted[1] > 0
    assert len(begins) < LENGTH / 4
