"""Every kind of drafter on a trained pair, against what llama-server recorded.

Answers must be those of plain decoding at every draft length. Drafts must be llama-server's,
step by step; where it errs and we do not, the difference is shown to be that and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import pytest
from tools.draft_law import draft_law
from tools.processor import is_recording_processor
from tools.recording_drafter import Draft, RecordingDrafter
from tools.ties import check_same
from tools.toy_session import check_counts, result_of
from tools.witness import Witness
from tools.zoo_pairs import (
    MAX_OTHERS,
    PAIRS,
    PROMPTS,
    SERVER_STEPS,
    Pair,
    Prompt,
    ServerStep,
    counts_by_design,
)

from outrider.speculative.drafters.draft_context import Part
from outrider.speculative.drafters.eagle3 import Eagle3Drafter
from outrider.speculative.drafters.mtp import MtpDrafter
from outrider.speculative.drafters.open_draft import OpenDraft
from outrider.speculative.engine import Engine
from outrider.speculative.events import GenerationResult
from outrider.speculative.proposal import DraftRequest
from outrider.speculative.session import Session
from outrider.speculative.settings import (
    GenerationSettings,
    SamplingSettings,
    SpeculationSettings,
)

GREEDY = SamplingSettings(temp=0)
ASKED = GenerationSettings(GREEDY, predict=100)
N_MAX = 4
LENGTHS = range(1, 9)

all_pairs = pytest.mark.parametrize("pair", PAIRS.values(), ids=lambda pair: pair.name)


def some_pairs(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("pair", [PAIRS[name] for name in names], ids=lambda p: p.name)


# the text


@all_pairs
def test_answers_are_those_of_plain_decoding_at_every_length(pair: Pair) -> None:
    """A third of the prompts at each length: each has lengths up to 4 and longer ones."""
    drafted = accepted = 0
    with pair.load(n_max=LENGTHS[0]) as engine:
        session = engine.session()
        for n_max in LENGTHS:
            engine.configure(SpeculationSettings(adaptive=False, n_max=n_max))
            for prompt in pair.prompts[n_max % 3 :: 3]:
                result = result_of(session.generate(engine.encode(prompt.text), ASKED))
                assert result.token_ids == pair.answer(prompt), (n_max, prompt.name)
                check_counts(result)
                if n_max <= N_MAX:
                    drafted += result.stats.drafted
                    accepted += result.stats.accepted
            assert not engine._running.drafter.dropped
    assert accepted / drafted > pair.rate - 0.05  # short drafts stand more often than those of 4


@all_pairs
def test_every_token_is_the_best_of_its_row(pair: Pair) -> None:
    """Self-consistency: the same blocks and removals, without a drafter."""
    with pair.load(n_max=N_MAX) as engine:
        witness, session = Witness(engine), engine.session()
        for prompt in pair.prompts:
            result = witness.answer(session, engine.encode(prompt.text), ASKED, reset=True)
            assert result.token_ids == pair.answer(prompt), prompt.name
            # the text stays in the cache, but for the newest token of it
            length = result.prompt_tokens + len(result.token_ids)
            assert length - 1 <= session.context_used <= length
        witness.close()


@all_pairs
@pytest.mark.parametrize("is_drafting", [True, False])
def test_a_second_turn_goes_on_from_the_first(pair: Pair, is_drafting: bool) -> None:
    """As a fresh engine that reads the whole, but for ties: what was cached in other pieces is
    not the same to the last bit."""
    question = next(prompt for prompt in PROMPTS if prompt.name == "list")
    with pair.load(n_max=N_MAX) as engine, pair.load(n_max=N_MAX) as fresh:
        if not is_drafting:
            engine.configure(SpeculationSettings(), [])
        session, asked = engine.session(), fresh.session()
        ties = []
        for one in pair.prompts[:12]:
            prompt = engine.encode(one.text)
            next_turn = engine.encode("\n" + question.text)[1:]
            text = [*prompt, *one.answers[pair.target.stem], *next_turn]
            result_of(session.generate(prompt, ASKED))
            result = result_of(session.generate(text, ASKED))
            # recurrent layers cannot forget the newest token: all of it is kept
            assert result.cached_tokens >= len(prompt) + len(pair.answer(one)) - 1, one.name
            asked.reset()
            expected = result_of(asked.generate(text, ASKED))
            ties.append(check_same(expected, result, text, ASKED, fresh))
    assert ties.count(None) > 8


# the drafts


def _answer(
    engine: Engine, session: Session, prompt: Prompt
) -> tuple[GenerationResult, list[Draft]]:
    """An answer from an empty cache, as the server was asked, and what was drafted for it."""
    [recorder] = engine._running.drafter.members
    assert isinstance(recorder, RecordingDrafter)
    session.reset()
    result = result_of(session.generate(engine.encode(prompt.text), ASKED))
    return result, recorder.made()


def _as_server_step(draft: Draft, is_logged: bool) -> ServerStep:
    token_ids = draft.token_ids if is_logged else None
    return ServerStep(draft.num_cached, len(draft.token_ids), token_ids, draft.num_accepted)


def _are_steps(drafts: Sequence[Draft], expected: Sequence[ServerStep]) -> bool:
    is_logged = expected[0].draft is not None if expected else False
    return [_as_server_step(draft, is_logged) for draft in drafts] == list(expected)


def _check_others(pair: Pair, differing: Sequence[str]) -> None:
    """No draft is another one; on another processor few are, by near ties of the drafter."""
    most = 0 if is_recording_processor() else MAX_OTHERS * len(pair.prompts)
    assert len(differing) <= most, differing


def _check_counts(
    pair: Pair, prompt: Prompt, result: GenerationResult, drafts: Sequence[Draft]
) -> None:
    """Our counts are the server's up to the end of the text."""
    counts = counts_by_design(pair, prompt, [draft.token_ids for draft in drafts])
    stats = result.stats
    assert (stats.drafts, stats.drafted, stats.accepted) == counts, prompt.name


SAME_STEPS = (
    "draft-simple",
    "eagle3-d2t",
    "eagle3-full",
    "dflash",
    "dflash2",
    "dspark",
    "dspark-spec",
    "lfm2-dflash",
    "gemma3+draft-simple",
    "llama+ngram-simple",
)
STALE_ROW = ("mtp-glm4moe", "mtp-qwen35", "mtp-qwen35-head", "mtp3-mimo2")
WRONG_BRIDGE = ("lfm2-eagle3-d2t",)
CHECKPOINTS = ("lfm2+draft-simple", "qwen35+draft-simple")


def test_the_pairs_below_are_all_there_are() -> None:
    assert {*SAME_STEPS, *STALE_ROW, *WRONG_BRIDGE, *CHECKPOINTS} == set(PAIRS)
    assert len(PAIRS) == 17
    assert set(SERVER_STEPS) == {(pair, prompt.name) for pair in PAIRS for prompt in PROMPTS}


@some_pairs(*SAME_STEPS)
def test_drafts_are_those_of_llama_server(pair: Pair) -> None:
    with pair.load(n_max=N_MAX) as engine:
        RecordingDrafter.watch(engine)
        session = engine.session()
        others = []
        for prompt in pair.prompts:
            result, drafts = _answer(engine, session, prompt)
            if _are_steps(drafts, SERVER_STEPS[pair.name, prompt.name]):
                _check_counts(pair, prompt, result, drafts)
            else:
                others.append(prompt.name)
    _check_others(pair, others)


SETTINGS = {
    "n7": SpeculationSettings(adaptive=False, n_max=7),
    "n8": SpeculationSettings(adaptive=False, n_max=8),
    "n4p50": SpeculationSettings(adaptive=False, n_max=4, p_min=0.5),
    "n4p90": SpeculationSettings(adaptive=False, n_max=4, p_min=0.9),
}
# llama-server ran without a drafter: it refuses p_min for a DSpark without a confidence head
UNUSABLE = {("dspark-spec", "n4p50")}


@pytest.mark.parametrize(
    ("pair", "setting"),
    [
        pytest.param(PAIRS[name], setting, id=f"{name}-{setting}")
        for name in SAME_STEPS
        for setting in SETTINGS
        if setting in PAIRS[name].counts and (name, setting) not in UNUSABLE
    ],
)
def test_counts_of_longer_and_of_cut_drafts_are_those_of_llama_server(
    pair: Pair, setting: str
) -> None:
    with pair.load(n_max=N_MAX) as engine:
        engine.configure(SETTINGS[setting])
        RecordingDrafter.watch(engine)
        session = engine.session()
        others = []
        for prompt in pair.prompts:
            _, drafts = _answer(engine, session, prompt)
            accepted = sum(draft.num_accepted for draft in drafts)
            drafted = sum(len(draft.token_ids) for draft in drafts)
            if (accepted, drafted) != pair.counts[setting][prompt.name]:
                others.append(prompt.name)
    _check_others(pair, others)


# where llama-server errs

Prepare = Callable[[RecordingDrafter, ServerStep | None], None]
"""Called before each prompt with the last step of the answer before."""


def _differing(pair: Pair, prepare: Prepare, *, expected: bool) -> list[str]:
    """The prompts whose steps are not llama-server's, none if they are ``expected`` to be.

    What the server drafts here depends on the request before: both must have its answers.
    """
    differing, others = list[str](), list[str]()
    is_same = True
    with pair.load(n_max=N_MAX) as engine:
        recorder = RecordingDrafter.watch(engine)
        session = engine.session()
        last = None
        for prompt in PROMPTS:
            prepare(recorder, last)
            steps = SERVER_STEPS[pair.name, prompt.name]
            result, drafts = _answer(engine, session, prompt)
            is_told, is_same = is_same, prompt in pair.prompts
            last = steps[-1]
            if not (is_told and is_same):
                continue
            assert result.token_ids == pair.answer(prompt)
            if expected and not _are_steps(drafts, steps):
                others.append(prompt.name)
            elif expected:
                _check_counts(pair, prompt, result, drafts)
            elif [draft.token_ids for draft in drafts] != [step.draft for step in steps]:
                differing.append(prompt.name)
    _check_others(pair, others)
    return differing


def _nothing(recorder: RecordingDrafter, last: ServerStep | None) -> None:
    pass


def _stale_row(recorder: RecordingDrafter, last: ServerStep | None) -> None:
    """llama.cpp pairs position 0 with the row that the request before left pending."""
    drafter = recorder.drafter
    assert isinstance(drafter, MtpDrafter)
    if last is None:
        assert not drafter.row_before.any()
    else:
        position = last.cached + last.num_accepted
        drafter.row_before = drafter._mirror(0).ring.read(position, position + 1)


@some_pairs(*STALE_ROW)
def test_nextn_heads_differ_from_llama_server_by_its_stale_row(pair: Pair) -> None:
    """Ours are zeros, so that an answer does not depend on the request before it."""
    assert not _differing(pair, _stale_row, expected=True)
    differing = _differing(pair, _nothing, expected=False)
    assert 0 < len(differing) < len(PROMPTS) / 2
    # nothing is left by the request before the first
    assert PROMPTS[0].name not in differing


@all_pairs
def test_drafts_do_not_depend_on_the_request_before(pair: Pair) -> None:
    with pair.load(n_max=N_MAX) as engine:
        RecordingDrafter.watch(engine)
        session = engine.session()
        forward, backward = (
            {
                prompt.name: [draft.token_ids for draft in _answer(engine, session, prompt)[1]]
                for prompt in prompts
            }
            for prompts in (pair.prompts, pair.prompts[::-1])
        )
        assert forward == backward


class WronglyBridged(Eagle3Drafter):
    """llama.cpp's cell where two parts of a prompt meet.

    It reads the last four tokens of a recurrent target's prompt apart, for a checkpoint. The
    cell before them waits for its token and its row; when that is written the batch points at
    the row by address, where the newest row lies by then.
    """

    def _missing(self, draft: OpenDraft) -> Part:
        part = super()._missing(draft)
        if part.start_pos == 0:
            assert part.rows is not None
            part.rows[-5] = part.rows[-1]
        return part


def _wrong_bridge(recorder: RecordingDrafter, last: ServerStep | None) -> None:
    right = recorder.drafter
    assert isinstance(right, Eagle3Drafter)
    if last is None:
        recorder.drafter = WronglyBridged(
            right._context, right.taps, right._width, right._vocab_size, right.n_max
        )


@some_pairs(*WRONG_BRIDGE)
def test_eagle3_of_a_hybrid_differs_from_llama_server_by_its_bridge(pair: Pair) -> None:
    assert not _differing(pair, _wrong_bridge, expected=True)
    differing = _differing(pair, _nothing, expected=False)
    assert 0 < len(differing) < len(PROMPTS) / 2


def _texts_before(pair: Pair, prompt: Prompt, engine: Engine) -> Iterator[tuple[list[int], int]]:
    """The committed tokens before each of the server's steps, and how many are still to come."""
    text = [*engine.encode(prompt.text), *pair.answer(prompt)]
    for step in SERVER_STEPS[pair.name, prompt.name]:
        committed = text[: step.cached + 1]
        yield committed, len(text) - len(committed)


@some_pairs(*CHECKPOINTS)
def test_a_draft_model_of_a_hybrid_differs_from_llama_server_by_its_checkpoints(pair: Pair) -> None:
    """Where the server goes back to a checkpoint it decodes the accepted tokens and its
    correction as the next draft, and the bonus token after them: its next draft begins one
    token later than ours. At its own beginnings we draft what it does."""
    restored = 0
    with pair.load(n_max=N_MAX) as engine:
        recorder = RecordingDrafter.watch(engine)
        for prompt in pair.prompts:
            steps = SERVER_STEPS[pair.name, prompt.name]
            recorder.drafter.forget(0)
            for step, (text, to_come) in zip(
                steps, _texts_before(pair, prompt, engine), strict=True
            ):
                [proposal] = recorder.propose([_request(text, N_MAX)])
                assert proposal.token_ids == step.draft, (prompt.name, step)
                rest = pair.answer(prompt)[-to_come:] if to_come else []
                stands = [a == b for a, b in zip(proposal.token_ids, rest, strict=False)]
                accepted = (*stands, False).index(False)
                assert min(step.num_accepted, to_come) == accepted, (prompt.name, step)
            for before, after in pairwise(steps):
                emitted = before.num_accepted + 1 + before.is_restored
                assert after.cached == before.cached + emitted
            restored += sum(step.is_restored for step in steps)
    assert restored > 26


def _request(text: list[int], max_tokens: int) -> DraftRequest:
    import numpy as np

    return DraftRequest(0, np.array(text, np.int32), max_tokens, draft_law(GREEDY))
