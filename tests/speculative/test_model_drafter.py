"""The drafter that is a model: its cache, its limits, and the laws its tokens come from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tools.draft_law import draft_law
from tools.recording_runner import RecordingRunner
from tools.toy_runner import ToyRunner, blurred, markov, remembering
from tools.toy_session import result_of
from tools.witness import engine_settings, model_settings

from outrider.speculative.batch_outputs import Block
from outrider.speculative.drafters.model_drafter import ModelDrafter
from outrider.speculative.engine import Engine
from outrider.speculative.errors import EngineError
from outrider.speculative.llama_runner import LlamaRunner
from outrider.speculative.model import Model
from outrider.speculative.proposal import DraftRequest
from outrider.speculative.sampler import Sampler
from outrider.speculative.settings import DrafterSettings, GenerationSettings, SamplingSettings
from outrider.speculative.uniforms import Uniforms

SIZE = 20
ROWS = remembering(SIZE, seed=51)
GREEDY = SamplingSettings(temp=0)
WARM = SamplingSettings(temp=1.0, top_k=0, top_p=1.0, min_p=0.0)


def _request(
    tokens: Sequence[int],
    max_tokens: int = 4,
    *,
    seq_id: int = 0,
    sampling: SamplingSettings = GREEDY,
    uniforms: Uniforms | None = None,
    min_prob: float = 0.0,
) -> DraftRequest:
    uniform = None if uniforms is None else uniforms.proposal
    ids = np.array(tokens, np.int32)
    return DraftRequest(seq_id, ids, max_tokens, draft_law(sampling), uniform, min_prob=min_prob)


def _greedy(tokens: Sequence[int], count: int) -> tuple[int, ...]:
    """What the toy model would write, by hand."""
    text = list(tokens)
    for _ in range(count):
        text.append(int(ROWS(text).argmax()))
    return tuple(text[len(tokens) :])


# the cache follows the committed tokens


def test_accepted_tokens_are_not_evaluated_twice() -> None:
    runner = RecordingRunner(ToyRunner(ROWS, SIZE))
    drafter = ModelDrafter(runner, SIZE, n_max=8)
    text = [1, 2, 3]
    [first] = drafter.propose([_request(text)])
    assert first.token_ids == _greedy(text, 4)
    # the prompt, then each draft token but the last
    assert runner.block_lengths() == [3, 1, 1, 1]

    text += [*first.token_ids, 7]  # all accepted and a bonus token
    [second] = drafter.propose([_request(text)])
    assert second.token_ids == _greedy(text, 4)
    assert runner.block_lengths()[4:] == [2, 1, 1, 1]

    text += [second.token_ids[0], (second.token_ids[1] + 1) % SIZE]  # one accepted
    [third] = drafter.propose([_request(text)])
    assert third.token_ids == _greedy(text, 4)
    assert runner.block_lengths()[8:] == [1, 1, 1, 1]


@pytest.mark.parametrize("seed", range(20))
def test_drafts_are_right_after_anything_that_can_happen(seed: int) -> None:
    """Accepted, rejected, skipped, undone, asked again: the drafts are those of the text."""
    numbers = np.random.default_rng(seed)
    drafter = ModelDrafter(ToyRunner(ROWS, SIZE, n_ctx=400, n_batch=16), SIZE, n_max=8)
    text = numbers.integers(0, SIZE, 5).tolist()
    for _ in range(40):
        length = int(numbers.integers(1, 7))
        [proposal] = drafter.propose([_request(text, length)])
        assert proposal.token_ids == _greedy(text, length)
        match numbers.integers(0, 5):
            case 0:  # steps of somebody else
                text += numbers.integers(0, SIZE, numbers.integers(1, 40)).tolist()
            case 1:  # undo
                text = text[: numbers.integers(1, len(text) + 1)]
            case 2:
                pass
            case _:
                kept = proposal.token_ids[: numbers.integers(0, length + 1)]
                text += [*kept, int(numbers.integers(0, SIZE))]
        text = text[-300:]


def test_a_forgotten_sequence_is_read_again() -> None:
    runner = RecordingRunner(ToyRunner(ROWS, SIZE))
    drafter = ModelDrafter(runner, SIZE, n_max=8)
    drafter.propose([_request([1, 2, 3, 4, 5], 1)])
    drafter.forget(0)
    assert runner.cached_length(0) == 0
    [proposal] = drafter.propose([_request([1, 2, 3, 4, 5], 1)])
    assert proposal.token_ids == _greedy([1, 2, 3, 4, 5], 1)
    assert runner.block_lengths() == [5, 5]


def test_a_token_is_timed_on_an_empty_cache_only() -> None:
    runner = RecordingRunner(ToyRunner(ROWS, SIZE))
    drafter = ModelDrafter(runner, SIZE, n_max=8)
    seconds = drafter.time_token()
    assert seconds is not None
    assert seconds > 0
    assert runner.block_lengths() == [1, 1, 1]
    assert runner.cached_length(0) == 0
    [proposal] = drafter.propose([_request([1, 2, 3], 2)])
    assert proposal.token_ids == _greedy([1, 2, 3], 2)
    assert drafter.time_token() is None


def test_a_long_text_is_read_in_batches() -> None:
    runner = RecordingRunner(ToyRunner(ROWS, SIZE, n_batch=16))
    drafter = ModelDrafter(runner, SIZE, n_max=8)
    text = [i % SIZE for i in range(40)]
    [proposal] = drafter.propose([_request(text, 2)])
    assert proposal.token_ids == _greedy(text, 2)
    assert runner.block_lengths() == [16, 16, 8, 1]
    assert proposal.catch_up_s > 0
    [proposal] = drafter.propose([_request([*text, *proposal.token_ids, 3], 2)])
    assert proposal.catch_up_s == 0


def test_two_sequences_are_drafted_in_one_batch() -> None:
    runner = RecordingRunner(ToyRunner(ROWS, SIZE, n_seq=2))
    drafter = ModelDrafter(runner, SIZE, n_max=8)
    texts = [[1, 2, 3], [9, 8, 7, 6, 5]]
    for lengths in ((3, 3), (2, 5), (5, 1)):
        before = runner.num_decodes
        requests = [_request(texts[i], lengths[i], seq_id=i) for i in (1, 0)]
        second, first = drafter.propose(requests)
        assert first.token_ids == _greedy(texts[0], lengths[0])
        assert second.token_ids == _greedy(texts[1], lengths[1])
        # one decode for the texts and one for each further token of the longer draft
        assert runner.num_decodes - before == max(lengths)
        texts = [[*texts[0], *first.token_ids, 4], [*texts[1], second.token_ids[0], 4]]


# limits


@pytest.mark.parametrize("room", range(6))
def test_drafts_end_where_the_context_ends(room: int) -> None:
    """The last draft token needs no cell: it is not decoded."""
    drafter = ModelDrafter(ToyRunner(ROWS, SIZE, n_ctx=12), SIZE, n_max=8)
    text = [i % SIZE for i in range(13 - room)]
    [proposal] = drafter.propose([_request(text, 4)])
    assert proposal.token_ids == _greedy(text, min(room, 4))


def test_a_smaller_vocabulary_drafts_only_for_texts_it_can_read() -> None:
    small = markov(12, 1, seed=52)
    drafter = ModelDrafter(ToyRunner(small, 12), SIZE, n_max=8)
    [proposal] = drafter.propose([_request([1, 2, 11], 3)])
    assert len(proposal) == 3
    [proposal] = drafter.propose([_request([1, 2, 12], 3)])
    assert len(proposal) == 0
    # and a law that speaks of tokens it does not have
    biased = SamplingSettings(temp=0, logit_bias={15: 5.0}, repeat_penalty=1.5)
    [proposal] = drafter.propose([_request([1, 2, 11], 3, sampling=biased)])
    assert len(proposal) == 3


def test_tokens_the_target_does_not_have_are_never_drafted() -> None:
    large = markov(SIZE, 1, seed=53)
    rows = blurred(lambda tokens: large(tokens) + 20 * (np.arange(SIZE) >= 12), SIZE, 1, 0.0)
    drafter = ModelDrafter(ToyRunner(rows, SIZE), 12, n_max=8)
    assert rows([3]).argmax() >= 12
    for sampling, uniforms in ((GREEDY, None), (WARM, Uniforms(1))):
        [proposal] = drafter.propose([_request([1, 2, 3], 8, sampling=sampling, uniforms=uniforms)])
        assert len(proposal) == 8
        assert max(proposal.token_ids) < 12


def test_a_decode_that_fails_is_the_callers_to_handle() -> None:
    drafter = ModelDrafter(ToyRunner(ROWS, SIZE, failing=[2]), SIZE, n_max=8)
    with pytest.raises(EngineError, match="decode 2 was told to fail"):
        drafter.propose([_request([1, 2, 3], 3)])
    [proposal] = drafter.propose([_request([1, 2, 4], 3)])
    assert proposal.token_ids == _greedy([1, 2, 4], 3)


# confidence

SURE = remembering(SIZE, seed=54, spread=3.5)


def _top_ten_prob(row: NDArray[np.float32]) -> float:
    best = np.sort(row.astype(np.float64))[::-1][:10]
    weights = np.exp(best - best[0])
    return float(weights[0] / weights.sum())


@pytest.mark.parametrize("min_prob", [0.4, 0.6, 0.8])
def test_greedy_drafts_stop_before_a_token_of_less_than_p_min(min_prob: float) -> None:
    """The chance of the best among the ten best, as in llama.cpp."""
    drafter = ModelDrafter(ToyRunner(SURE, SIZE), SIZE, n_max=8)
    stops = set()
    for first in range(SIZE):
        [proposal] = drafter.propose([_request([first, 1], 6, min_prob=min_prob)])
        text = [first, 1]
        while len(text) < 8 and _top_ten_prob(SURE(text)) >= min_prob:
            text.append(int(SURE(text).argmax()))
        assert proposal.token_ids == tuple(text[2:])
        stops.add(len(proposal))
    assert len(stops) > 2


@pytest.mark.parametrize("min_prob", [0.3, 0.5, 0.7])
def test_sampled_drafts_stop_where_no_token_has_p_min(min_prob: float) -> None:
    """Decided before the draw, by the law and not by the token: no bias."""
    drafter = ModelDrafter(ToyRunner(SURE, SIZE), SIZE, n_max=8)
    weak = 0
    for seed in range(30):
        request = _request([1, 2], 6, sampling=WARM, uniforms=Uniforms(seed), min_prob=min_prob)
        [proposal] = drafter.propose([request])
        assert proposal.distributions is not None
        assert all(law.probs.max() >= min_prob for law in proposal.distributions)
        weak += sum(
            law.prob(token) < min_prob
            for token, law in zip(proposal.token_ids, proposal.distributions, strict=True)
        )
        if len(proposal) < 6:
            after = SURE([1, 2, *proposal.token_ids])
            assert Sampler(WARM).distribution(after, np.empty(0, np.int32)).probs.max() < min_prob
    assert weak > 0


def test_sampled_drafts_carry_the_law_they_were_drawn_from() -> None:
    sampling = SamplingSettings(temp=0.7, top_k=6, repeat_penalty=1.5, repeat_last_n=3)
    sampler = Sampler(sampling)
    drafter = ModelDrafter(ToyRunner(ROWS, SIZE), SIZE, n_max=8)
    uniforms, same = Uniforms(8), Uniforms(8)
    text = [4, 5, 6]
    for _ in range(5):
        [proposal] = drafter.propose([_request(text, 4, sampling=sampling, uniforms=uniforms)])
        assert proposal.distributions is not None
        for token, law in zip(proposal.token_ids, proposal.distributions, strict=True):
            expected = sampler.distribution(ROWS(text), np.array(text, np.int32))
            assert law.token_ids.tolist() == expected.token_ids.tolist()
            assert law.probs.tolist() == expected.probs.tolist()
            assert token == expected.draw(same.proposal())
            text.append(token)


# the tiny trained pair


@pytest.fixture
def simple(zoo: Path) -> Iterator[Model]:
    model = Model(model_settings(zoo / "draft-simple.gguf"), "drafter")
    yield model
    model.close()


def _native(model: Model, n_seq: int = 1) -> LlamaRunner:
    settings = model_settings(model.path)
    return LlamaRunner(model, settings, n_ctx=1024, n_seq=n_seq, max_outputs=n_seq)


@pytest.mark.parametrize("seed", range(4))
def test_the_next_logits_are_those_of_a_cache_that_is_built_anew(seed: int, simple: Model) -> None:
    numbers = np.random.default_rng(seed)
    runner = _native(simple)
    drafter = ModelDrafter(runner, simple.vocabulary.size, n_max=8)
    text = [1, *simple.vocabulary.encode("Once upon a time", parse_special=False)]
    for _ in range(12):
        length = int(numbers.integers(1, 7))
        [proposal] = drafter.propose([_request(text, length)])
        kept = proposal.token_ids[: numbers.integers(0, length + 1)]
        text += [*kept, int(numbers.integers(6, 512))]
        if numbers.integers(0, 3) == 0:  # steps without this drafter
            text += numbers.integers(6, 512, 5).tolist()

    # the whole law of the next draft token, and the logits of a cache without a past
    [proposal] = drafter.propose([_request(text, 1, sampling=WARM, uniforms=Uniforms(1))])
    assert proposal.distributions is not None
    [law] = proposal.distributions
    assert law.token_ids.tolist() == list(range(simple.vocabulary.size))
    fresh = _native(simple)
    block = Block(0, np.array(text, np.int32), 0, 1)
    logits = fresh.decode([block]).logits(block)[0].astype(np.float64)
    expected = logits - np.log(np.exp(logits).sum())
    # F16 in batches of other shapes: 0.0005 on one processor, 0.003 on another; one wrong token
    # of a text of 80 moves it by 0.01 to 5, depending on the place
    assert np.abs(np.log(law.probs) - expected).max() < 5e-3
    fresh.close()
    drafter.close()


def test_a_model_accepts_what_it_drafted_itself(zoo: Path) -> None:
    drafter = DrafterSettings("draft-simple", model_settings(zoo / "target-llama.gguf"))
    settings = engine_settings(zoo / "target-llama.gguf", [drafter], n_max=5)
    with Engine.load(settings) as engine:
        session = engine.session()
        for prompt in map(json.loads, (zoo / "prompts.jsonl").read_text().splitlines()):
            asked = GenerationSettings(SamplingSettings(temp=0), predict=40)
            result = result_of(session.generate(engine.encode(prompt["text"]), asked))
            assert result.stats.acceptance_rate == 1


def test_the_end_of_an_answer_cuts_the_cache() -> None:
    runner = ToyRunner(ROWS, SIZE)
    drafter = ModelDrafter(runner, SIZE, n_max=8)
    text = [1, 2, 3]
    [proposal] = drafter.propose([_request(text, 6)])
    assert runner.cached_length(0) == 3 + 5
    text += proposal.token_ids[:2]  # a stop string was complete
    drafter.settle(0, np.array(text, np.int32))
    assert runner.cached_length(0) == 5
    drafter.settle(1, np.array(text, np.int32))  # a sequence it never drafted for
    [proposal] = drafter.propose([_request(text)])
    assert proposal.token_ids == _greedy(text, 4)
