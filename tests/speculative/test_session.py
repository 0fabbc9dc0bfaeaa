"""Conversations: what is kept between answers, and answers that end early or go wrong."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np
import pytest
from numpy.typing import NDArray
from tools.recording_runner import RecordingRunner
from tools.toy_runner import ToyRunner, ToyTokenizer, blurred, reciting, remembering
from tools.toy_session import answer, check_counts, fixed, result_of, toy_session

from outrider.speculative.drafters.drafter import Drafter
from outrider.speculative.drafters.model_drafter import ModelDrafter
from outrider.speculative.drafters.ngram_simple import NgramSimpleDrafter
from outrider.speculative.errors import InputError, PromptTooLongError
from outrider.speculative.events import FinishEvent, PromptEvent, StepEvent
from outrider.speculative.session import Session
from outrider.speculative.settings import GenerationSettings, SamplingSettings

SIZE = 20
END = 19
TOKENIZER = ToyTokenizer([bytes([97 + i]) for i in range(SIZE)], {END})
TARGET = remembering(SIZE, seed=41)
NEAR = blurred(TARGET, SIZE, seed=42, spread=0.7)
PROMPT = [1, 2, 3, 1, 2, 4]
N_CTX = 1400


def _settings(predict: int = 24, temp: float = 0, seed: int = 3) -> GenerationSettings:
    sampling = SamplingSettings(temp=temp, ignore_eos=True)
    return GenerationSettings(sampling, predict=predict, seed=seed)


def _runner(n_ctx: int = N_CTX, failing: Sequence[int] = ()) -> ToyRunner:
    return ToyRunner(TARGET, SIZE, n_ctx=n_ctx, n_batch=2048, failing=failing)


def _near(failing: Sequence[int] = ()) -> ModelDrafter:
    runner = ToyRunner(NEAR, SIZE, n_ctx=N_CTX, n_batch=2048, failing=failing)
    return ModelDrafter(runner, SIZE, n_max=8)


def _session(runner: ToyRunner | RecordingRunner, members: Sequence[Drafter]) -> Session:
    return toy_session(runner, TOKENIZER, members, fixed(3))


def _fresh(prompt: Sequence[int], settings: GenerationSettings) -> list[int]:
    """The tokens of a new session without a drafter."""
    return answer(_session(_runner(), []), prompt, settings).token_ids


# between answers


@pytest.mark.parametrize("temp", [0, 0.9])
def test_a_second_turn_is_that_of_a_fresh_session(temp: float) -> None:
    runner = _runner()
    session = _session(runner, [NgramSimpleDrafter(1, 2), _near()])
    prompt = PROMPT
    for turn in range(4):
        settings = _settings(10 + turn, temp, seed=turn)
        result = answer(session, prompt, settings)
        assert result.token_ids == _fresh(prompt, settings)
        assert session.context_used == len(runner.caches[0]) == len(prompt) + 10 + turn - 1
        prompt = [*prompt, *result.token_ids, 7, 8]


def test_what_is_reused_and_read_is_counted() -> None:
    session = _session(_runner(), [_near()])
    first = answer(session, PROMPT, _settings(10))
    assert (first.prompt_tokens, first.cached_tokens) == (6, 0)

    # the whole first turn but its last token, which was never decoded
    longer = [*PROMPT, *first.token_ids, 7]
    events = list(session.generate(longer, _settings(10)))
    assert events[0] == PromptEvent(done=17, total=17, cached=15)
    second = result_of(events)
    assert (second.prompt_tokens, second.cached_tokens) == (17, 15)
    assert second.timings.prompt_tokens == 2

    # again: one token at least is read, its row starts the answer
    again = answer(session, longer, _settings(10))
    assert again.cached_tokens == 16
    assert again.token_ids == second.token_ids

    # another beginning
    other = [PROMPT[0], 9, *PROMPT]
    assert answer(session, other, _settings(10)).cached_tokens == 1

    # a beginning of what is cached
    assert answer(session, other[:4], _settings(10)).cached_tokens == 3


def test_reset_forgets_everything() -> None:
    runner = _runner()
    draft = ToyRunner(NEAR, SIZE)
    session = _session(runner, [ModelDrafter(draft, SIZE, 8)])
    first = answer(session, PROMPT, _settings())
    assert draft.caches[0]
    session.reset()
    assert runner.caches == draft.caches == [[]]
    assert session.context_used == 0
    second = answer(session, PROMPT, _settings())
    assert second.cached_tokens == 0
    assert second.token_ids == first.token_ids


def test_what_a_session_tells_while_it_writes() -> None:
    session = _session(_runner(), [_near()])
    assert session.draft_length is None
    assert session.stats.steps == session.context_used == 0
    for event in session.generate(PROMPT, _settings(12)):
        if isinstance(event, StepEvent) and session.stats.steps:
            before = session.stats.emitted - len(event.token_ids)
            assert session.draft_length == min(3, 12 - before - 1)
            assert session.context_used == len(PROMPT) + session.stats.emitted - 1
    assert session.stats.emitted == session.timings.tokens == 12


# prompts


@pytest.mark.parametrize("length", [511, 512, 513, 1024, 1300])
def test_a_long_prompt_is_read_in_chunks(length: int) -> None:
    prompt = [i % 17 for i in range(length)]
    recorder = RecordingRunner(_runner())
    session = _session(recorder, [_near()])
    events = list(session.generate(prompt, _settings(8)))
    done = [event.done for event in events if isinstance(event, PromptEvent)]
    parts = [end - begin for begin, end in zip([0, *done], done, strict=False)]
    assert recorder.block_lengths()[: len(done)] == parts
    assert done[-1] == length
    # how fast they are read decides how many there are, but not where these ends are
    assert set(range(512, length, 512)) <= set(done)
    assert min(parts) >= min(64, length % 512 or 512)
    assert len(parts) == 1 if length <= 512 else parts[0] == 64
    assert result_of(events).token_ids == _fresh(prompt, _settings(8))


def test_a_prompt_that_does_not_fit_says_both_numbers() -> None:
    runner = _runner(n_ctx=20)
    session = _session(runner, [])
    first = answer(session, PROMPT, _settings(4))
    cached = list(runner.caches[0])
    with pytest.raises(PromptTooLongError, match="needs 21 tokens, has 20") as caught:
        session.generate([0] * 20, _settings())
    assert (caught.value.needed, caught.value.available) == (21, 20)
    assert runner.caches[0] == cached
    assert answer(session, PROMPT, _settings(4)).token_ids == first.token_ids


def test_the_longest_prompt_that_fits_gets_one_token() -> None:
    result = answer(_session(_runner(n_ctx=20), [_near()]), [3] * 19, _settings())
    assert len(result.token_ids) == 1
    assert result.finish_reason == "context"


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(InputError, match="the prompt is empty"):
        _session(_runner(), []).generate([], _settings())


def test_no_tokens_wanted_decodes_nothing() -> None:
    runner = _runner()
    session = _session(runner, [_near()])
    result = answer(session, PROMPT, _settings(predict=0))
    assert (result.text, result.token_ids, result.finish_reason) == ("", [], "length")
    assert runner.num_decodes == 0
    check_counts(result)
    assert answer(session, PROMPT, _settings()).token_ids == _fresh(PROMPT, _settings())


# answers that end early


@pytest.mark.parametrize("num_events", range(8))
def test_a_cancelled_answer_keeps_what_was_said(num_events: int) -> None:
    runner = _runner()
    session = _session(runner, [_near()])
    events = session.generate(PROMPT, _settings())
    begun = list(islice(events, num_events))
    session.cancel()
    result = result_of([*begun, *events])
    assert result.finish_reason == "cancelled"
    assert result.token_ids == _fresh(PROMPT, _settings())[: len(result.token_ids)]
    check_counts(result)
    said = [token for e in begun if isinstance(e, StepEvent) for token in e.token_ids]
    assert result.token_ids[: len(said)] == said
    assert runner.caches[0] == [*PROMPT, *result.token_ids][: len(runner.caches[0])]

    prompt = [*PROMPT, *result.token_ids, 5]
    assert answer(session, prompt, _settings()).token_ids == _fresh(prompt, _settings())


def test_a_long_prompt_is_cancelled_between_chunks() -> None:
    runner = _runner()
    session = _session(runner, [_near()])
    prompt = [i % 17 for i in range(1300)]
    events = session.generate(prompt, _settings())
    assert next(events) == PromptEvent(64, 1300, 0)
    session.cancel()
    [last] = events
    assert isinstance(last, FinishEvent)
    assert (last.result.finish_reason, last.result.token_ids) == ("cancelled", [])
    assert runner.num_decodes == 1
    # as after a step: one token is not cached
    assert len(session.slot.tokens) == session.context_used + 1 == 65

    again = answer(session, prompt, _settings())
    assert again.cached_tokens == 64
    assert again.token_ids == _fresh(prompt, _settings())


@pytest.mark.parametrize("num_events", range(7))
def test_closing_the_iterator_is_normal(num_events: int) -> None:
    runner = _runner()
    session = _session(runner, [NgramSimpleDrafter(1, 2), _near()])
    events = session.generate(PROMPT, _settings())
    said = [t for e in islice(events, num_events) if isinstance(e, StepEvent) for t in e.token_ids]
    events.close()
    text = [*PROMPT, *said]
    assert runner.caches[0] == text[: len(runner.caches[0])]
    if said:
        assert session.context_used == len(text) - 1

    prompt = [*text, 5]
    result = answer(session, prompt, _settings())
    assert result.token_ids == _fresh(prompt, _settings())


def test_an_iterator_that_was_never_read_does_no_harm() -> None:
    session = _session(_runner(), [_near()])
    first = answer(session, PROMPT, _settings())
    session.generate([*PROMPT, 9, 9], _settings())
    prompt = [*PROMPT, *first.token_ids, 5]
    assert answer(session, prompt, _settings()).token_ids == _fresh(prompt, _settings())


# answers that go wrong


@pytest.mark.parametrize("failing", range(1, 8))
def test_a_decode_that_fails_ends_the_answer_and_no_more(failing: int) -> None:
    runner = _runner(failing=[failing])
    session = _session(runner, [_near()])
    result = answer(session, PROMPT, _settings())
    assert result.finish_reason == "error"
    assert result.error == ("decode_failed", f"decode {failing} was told to fail")
    assert result.token_ids == _fresh(PROMPT, _settings())[: len(result.token_ids)]
    assert bool(result.token_ids) == (failing > 1)
    check_counts(result)

    prompt = [*PROMPT, *result.token_ids, 5]
    again = answer(session, prompt, _settings())
    assert again.finish_reason == "length"
    assert again.token_ids == _fresh(prompt, _settings())


def test_logits_that_are_no_numbers_end_the_answer() -> None:
    def broken(tokens: Sequence[int]) -> NDArray[np.float32]:
        row = TARGET(tokens)
        return np.full_like(row, np.nan) if len(tokens) == 10 else row

    runner = ToyRunner(broken, SIZE)
    result = answer(_session(runner, [_near()]), PROMPT, _settings())
    assert result.finish_reason == "error"
    assert result.error is not None
    assert "no usable logits" in result.error[1]
    # the row after ten tokens is bad: the answer has those of the rows before
    assert result.token_ids == _fresh(PROMPT, _settings())[:4]
    check_counts(result)


@pytest.mark.parametrize("failing", [1, 2, 5, 9])
def test_a_drafter_that_fails_is_dropped_and_the_answer_goes_on(failing: int) -> None:
    drafter = _near(failing=[failing])
    session = _session(_runner(), [drafter])
    result = answer(session, PROMPT, _settings())
    assert result.finish_reason == "length"
    assert result.token_ids == _fresh(PROMPT, _settings())
    assert result.stats.paused is not None
    assert result.stats.paused.reason == (
        f"draft-simple dropped: decode {failing} was told to fail"
    )
    check_counts(result)

    prompt = [*PROMPT, *result.token_ids, 5]
    again = answer(session, prompt, _settings())
    assert again.stats.drafts == 0
    assert again.token_ids == _fresh(prompt, _settings())


def test_the_others_go_on_when_one_drafter_is_dropped() -> None:
    text = [i % 4 for i in range(40)]
    rows = reciting(TARGET, text)
    failing = ModelDrafter(ToyRunner(rows, SIZE, failing=[1]), SIZE, 8)
    session = _session(ToyRunner(rows, SIZE), [failing, NgramSimpleDrafter(2, 3)])
    result = answer(session, text[:12], _settings(20))
    assert result.token_ids == text[12:32]
    assert result.stats.per_drafter.keys() == {"ngram-simple"}
    assert result.stats.acceptance_rate == 1
