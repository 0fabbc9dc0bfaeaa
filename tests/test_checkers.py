"""The checkers of the other tests: they must see what is wrong."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from tools.recording_runner import Call, Decoded, RecordingRunner, Truncated
from tools.replay import Answer, Replay
from tools.ties import check_against_plain
from tools.toy_runner import ToyRunner, ToyTokenizer, reciting, remembering
from tools.toy_session import answer, fixed, toy_session

from outrider.speculative.drafters.made_up import OracleDrafter
from outrider.speculative.events import GenerationResult
from outrider.speculative.law import token_law
from outrider.speculative.settings import GenerationSettings, SamplingSettings

SIZE = 20
END = 19
TOKENIZER = ToyTokenizer([bytes([97 + i]) for i in range(SIZE)], {END})
PROMPT = [1, 2, 3]
TOLD = [4, 5, 6, 7, 8, 9, 10, 11]
ROWS = reciting(remembering(SIZE, seed=61), [*PROMPT, *TOLD, END])
GREEDY = GenerationSettings(SamplingSettings(temp=0))
WARM = GenerationSettings(SamplingSettings(temp=1.2, ignore_eos=True), predict=8, seed=3)


def _record(settings: GenerationSettings) -> tuple[list[Call], GenerationResult]:
    recorder = RecordingRunner(ToyRunner(ROWS, SIZE))
    oracle = OracleDrafter(TOLD, len(PROMPT), wrong={2, 6})
    result = answer(toy_session(recorder, TOKENIZER, [oracle], fixed(3)), PROMPT, settings)
    return recorder.calls, result


def _replay(calls: Sequence[Call], settings: GenerationSettings, result: GenerationResult) -> None:
    replay = Replay(ToyRunner(ROWS, SIZE), TOKENIZER)
    replay.check(calls, {0: Answer(PROMPT, settings, result)})


@pytest.mark.parametrize("settings", [GREEDY, WARM], ids=["greedy", "match"])
def test_a_right_record_passes(settings: GenerationSettings) -> None:
    calls, result = _record(settings)
    assert len(result.token_ids) == 8
    _replay(calls, settings, result)


@pytest.mark.parametrize("settings", [GREEDY, WARM], ids=["greedy", "match"])
@pytest.mark.parametrize("index", range(8))
def test_a_wrong_token_is_seen(settings: GenerationSettings, index: int) -> None:
    calls, result = _record(settings)
    result.token_ids[index] = (result.token_ids[index] + 1) % END
    with pytest.raises(AssertionError):
        _replay(calls, settings, result)


def test_a_wrong_uniform_is_seen() -> None:
    calls, result = _record(WARM)
    with pytest.raises(AssertionError, match="token"):
        _replay(calls, WARM, replace(result, seed=4))


def test_a_token_without_a_row_is_seen() -> None:
    calls, result = _record(GREEDY)
    short = calls[: -sum(isinstance(call, Decoded) for call in calls) // 2]
    with pytest.raises(AssertionError, match="no recorded row gives the tokens"):
        _replay(short, GREEDY, result)


def test_an_end_that_the_model_did_not_say_is_seen() -> None:
    calls, result = _record(replace(GREEDY, predict=5))
    assert len(result.token_ids) == 5
    with pytest.raises(AssertionError, match=r"ends it|no recorded row"):
        _replay(calls, GREEDY, replace(result, token_ids=TOLD[:4], finish_reason="stop"))


def test_a_cache_that_was_cut_wrong_is_seen() -> None:
    """A rejected draft token that stays in the cache."""
    calls, result = _record(GREEDY)
    cuts = [i for i, call in enumerate(calls) if isinstance(call, Truncated)]
    assert cuts
    with pytest.raises(AssertionError):
        _replay([call for i, call in enumerate(calls) if i != cuts[0]], GREEDY, result)


def _with_gap(gap: float) -> ToyRunner:
    """After the prompt token 6 is ``gap`` logits behind token 5."""

    def rows(tokens: Sequence[int]) -> NDArray[np.float32]:
        row = np.zeros(SIZE, np.float32)
        row[5], row[6] = 3, 3 - gap
        return row

    return ToyRunner(rows, SIZE)


@pytest.mark.parametrize(("gap", "is_tie"), [(0.1, True), (0.49, True), (0.6, False), (2, False)])
def test_a_greedy_difference_is_a_tie_up_to_half_a_logit(gap: float, is_tie: bool) -> None:
    settings = replace(GREEDY, predict=3)
    plain = answer(toy_session(_with_gap(gap), TOKENIZER), PROMPT, settings)
    assert plain.token_ids == [5, 5, 5]
    other = replace(plain, token_ids=[5, 6, 6])
    said = Answer(PROMPT, settings, plain)
    if is_tie:
        tie = check_against_plain(said, other, _with_gap(gap), token_law(settings, TOKENIZER))
        assert tie is not None
        assert tie.index == 1
        assert tie.gap == pytest.approx(gap, abs=1e-6)
    else:
        with pytest.raises(AssertionError):
            check_against_plain(said, other, _with_gap(gap), token_law(settings, TOKENIZER))
    assert check_against_plain(said, plain, _with_gap(gap), token_law(settings, TOKENIZER)) is None


def test_a_sampled_difference_is_a_tie_near_an_edge_of_the_law() -> None:
    law = SamplingSettings(temp=1.0, top_k=0, top_p=1, min_p=0, logit_bias={END: -100.0})
    near = far = 0
    for seed in random.Random(1).sample(range(10_000), 300):
        settings = GenerationSettings(law, predict=1, seed=seed)
        plain = answer(toy_session(ToyRunner(ROWS, SIZE), TOKENIZER), PROMPT, settings)
        other = replace(plain, token_ids=[(plain.token_ids[0] + 1) % END])
        try:
            tie = check_against_plain(
                Answer(PROMPT, settings, plain),
                other,
                ToyRunner(ROWS, SIZE),
                token_law(settings, TOKENIZER),
            )
        except AssertionError:
            far += 1
        else:
            assert tie is not None
            near += 1
    # about twenty edges, each with a hundredth on both sides, many of them close together
    assert 0 < near < far


def test_an_answer_that_only_goes_on_is_no_tie() -> None:
    plain = answer(toy_session(ToyRunner(ROWS, SIZE), TOKENIZER), PROMPT, GREEDY)
    longer = replace(plain, token_ids=[*plain.token_ids, 3])
    with pytest.raises(AssertionError, match="one answer has 8 tokens, the other 9"):
        check_against_plain(
            Answer(PROMPT, GREEDY, plain),
            longer,
            ToyRunner(ROWS, SIZE),
            token_law(GREEDY, TOKENIZER),
        )
