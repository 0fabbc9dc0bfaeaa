"""A conversation that is regenerated, undone, edited, branched, stopped: as if told anew.

After every step the answer is that of a fresh session which is given the same messages, what
is cached of the prompt is the longest beginning it shares with the text before, and the drafter
drafts what it drafts in a fresh session.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tools.recording_runner import Call, Decoded, Truncated
from tools.replay import Answer, Replay
from tools.ties import check_same
from tools.toy_session import check_counts, result_of
from tools.witness import Witness, engine_settings, model_settings
from tools.zoo_pairs import PROMPTS

from outrider.speculative.engine import Engine
from outrider.speculative.events import Event, GenerationResult, StepEvent
from outrider.speculative.settings import DrafterSettings, GenerationSettings, SamplingSettings
from outrider.speculative.statistics import SpeculationStats

ZOO = Path(__file__).parents[1] / "fixtures" / "zoo"
LLAMA, HYBRID = ZOO / "target-llama.gguf", ZOO / "target-hybrid-lfm2.gguf"
GREEDY = GenerationSettings(SamplingSettings(temp=0), predict=32)
QUESTIONS = [
    prompt.text.partition("user\n")[2].partition("<|im_end|>")[0]
    for prompt in PROMPTS
    if prompt.text.count("<|im_start|>") == 2
]
SYSTEMS = [None, "Be brief.", "You are a poet. Be kind.", "You are a poet."]
DECK = [*["ask"] * 3, *["stop"] * 2, "system", "regenerate", "edit", "undo", "branch"]
NUM_STEPS = 3 * len(DECK)
MOST_TOKENS = 440  # with the answer below 512 cells: beyond, rows depend on the batch


def _neural(kind: str, name: str) -> DrafterSettings:
    return DrafterSettings(kind, model_settings(ZOO / f"{name}.gguf"))


@dataclass(frozen=True)
class Case:
    """A target with drafters.

    ``knows_more`` is true of a drafter that learns from texts which are no part of the
    conversation any more: it may draft more than in a fresh session, never other answers.
    ``is_cut`` is false of a target that cannot drop any tail of its cache: it may have to read
    all of a prompt again, and the newest token stays where it cannot be dropped.
    ``is_exact`` is false where the drafter's near ties fall otherwise: the last bits of a hidden
    state depend on the batch it was read in, and the cells made of it are kept.
    """

    target: Path
    drafters: Sequence[DrafterSettings]
    knows_more: bool = False
    is_cut: bool = True
    is_exact: bool = True


NGRAMS = DrafterSettings("ngram-simple", options={"match": 2, "size": 4})
CASES = {
    "none": Case(LLAMA, []),
    "draft-simple": Case(LLAMA, [_neural("draft-simple", "draft-simple")]),
    "draft-eagle3": Case(LLAMA, [_neural("draft-eagle3", "eagle3-full")]),
    "ngram-simple": Case(LLAMA, [NGRAMS]),
    "ngram-edit": Case(LLAMA, [DrafterSettings("ngram-edit", options={"match": 2})]),
    "chain": Case(LLAMA, [NGRAMS, _neural("draft-simple", "draft-simple")]),
    # its tables keep what was said in answers that were taken back
    "ngram-cache": Case(LLAMA, [DrafterSettings("ngram-cache")], knows_more=True),
    # and so does its pool
    "ngram-mod": Case(
        LLAMA,
        [DrafterSettings("ngram-mod", options={"match": 4, "n_min": 0})],
        knows_more=True,
    ),
    "hybrid": Case(HYBRID, [NGRAMS], is_cut=False),
    "hybrid-eagle3": Case(
        HYBRID,
        [_neural("draft-eagle3", "lfm2-eagle3-d2t")],
        is_cut=False,
        is_exact=False,
    ),
}


@dataclass(frozen=True)
class Turn:
    message: str
    answer: str


@dataclass(frozen=True)
class Conversation:
    """What the user sees; every step makes a new one."""

    system: str | None = None
    turns: tuple[Turn, ...] = ()

    def messages(self, question: str) -> list[Mapping[str, str]]:
        messages = [{"role": "system", "content": self.system}] if self.system else []
        for turn in self.turns:
            messages.append({"role": "user", "content": turn.message})
            messages.append({"role": "assistant", "content": turn.answer})
        return [*messages, {"role": "user", "content": question}]


@dataclass(frozen=True)
class Asked:
    """One thing the user does: a question after some turns.

    The answer is stopped after ``stop_after`` steps; after none no token of it is read.
    """

    name: str
    conversation: Conversation
    question: str
    stop_after: int | None = None


class User:
    """Does things at random."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._deck: list[str] = []
        self.conversation = Conversation()

    def next(self) -> Asked:
        turns, choose = self.conversation.turns, self._random
        question = choose.choice(QUESTIONS)
        if not self._deck:
            self._deck = choose.sample(DECK, len(DECK))
        name = self._deck.pop() if turns else "ask"
        now = self.conversation
        if name == "regenerate":
            return Asked(name, replace(now, turns=turns[:-1]), turns[-1].message)
        if name == "edit":
            place = choose.randrange(len(turns))
            edited = turns[place].message.replace("?", " now?")
            return Asked(name, replace(now, turns=turns[:place]), edited)
        if name in ("undo", "branch"):
            kept = len(turns) - 1 if name == "undo" else choose.randrange(len(turns) + 1)
            return Asked(name, replace(now, turns=turns[:kept]), question)
        if name == "system":
            return Asked(name, replace(now, system=choose.choice(SYSTEMS)), question)
        return Asked(name, now, question, choose.randrange(4) if name == "stop" else None)

    def hear(self, asked: Asked, answer: str) -> None:
        turn = Turn(asked.question, answer)
        before = asked.conversation
        self.conversation = replace(before, turns=(*before.turns, turn))

    def begin_again(self) -> None:
        self.conversation = replace(self.conversation, turns=())


class Told:
    """A session that is told everything in order; all its answers are replayed."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._witness = Witness(engine)
        self._session = engine.session()
        self._text: list[int] = []

    def close(self) -> None:
        self._witness.close()

    def answer(self, prompt_ids: list[int], stop_after: int | None) -> GenerationResult:
        witness, session = self._witness, self._session
        witness.recorder.calls.clear()
        events: list[Event] = []
        answer = session.generate(prompt_ids, GREEDY)
        if stop_after == 0:
            session.cancel()
        for event in answer:
            events.append(event)
            if sum(isinstance(one, StepEvent) for one in events) == stop_after:
                session.cancel()
        result = result_of(events)
        check_counts(result)
        replay: Replay = witness._replay
        calls = _since_begun(witness.recorder.calls)
        replay.check(calls, {0: Answer(prompt_ids, GREEDY, result)})
        self._text = [*prompt_ids, *result.token_ids]
        if stop_after == 0:
            del self._text[result.cached_tokens + 1 :]
        return result

    def shared(self, prompt_ids: Sequence[int]) -> int:
        """Tokens of a prompt that are the text so far; one of it is read in any case."""
        pairs = zip(self._text, prompt_ids[:-1], strict=False)
        differ = (count for count, (ours, theirs) in enumerate(pairs) if ours != theirs)
        return next(differ, min(len(self._text), len(prompt_ids) - 1))

    @property
    def num_read(self) -> int:
        """Tokens of the text but the newest."""
        return max(len(self._text) - 1, 0)


def _since_begun(calls: Sequence[Call]) -> list[Call]:
    """Without what came before the text was read from its start, if it was.

    A target that cannot drop a tail drops everything.
    """
    for index, call in enumerate(calls):
        if isinstance(call, Decoded) and call.blocks[0].start_pos == 0:
            return [Truncated(0, 0), *calls[index:]]
    return list(calls)


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture
def engines(case: Case) -> Iterator[tuple[Engine, Engine]]:
    """The same twice: one for the conversation, one for fresh sessions."""
    settings = engine_settings(case.target, case.drafters, ctx_size=512, n_max=4)
    with Engine.load(settings) as told, Engine.load(settings) as fresh:
        yield told, fresh


@pytest.mark.parametrize("seed", [1, 2])
def test_every_answer_is_that_of_a_fresh_session(
    case: Case, engines: tuple[Engine, Engine], seed: int
) -> None:
    engine, other = engines
    told, fresh, user = Told(engine), other.session(), User(seed)
    done: set[str] = set()
    most_cached = 0
    ours, theirs = SpeculationStats(), SpeculationStats()
    for _ in range(NUM_STEPS):
        asked = user.next()
        prompt_ids = engine.render(asked.conversation.messages(asked.question))
        if len(prompt_ids) > MOST_TOKENS:
            user.begin_again()
            continue
        shared = told.shared(prompt_ids)
        cached = min(shared, told.num_read)
        result = told.answer(prompt_ids, asked.stop_after)
        assert result.cached_tokens in ([cached] if case.is_cut else [0, cached, shared])
        fresh.reset()
        expected = result_of(fresh.generate(prompt_ids, GREEDY))
        assert expected.cached_tokens == 0
        _compare(result, expected, prompt_ids, case, other)
        if result.text:  # a question without an answer is back in the input
            user.hear(asked, result.text)
        done.add(asked.name)
        if result.finish_reason != "cancelled":
            ours.merge(result.stats)
            theirs.merge(expected.stats)
        most_cached = max(most_cached, result.cached_tokens)
    told.close()
    assert done == {*DECK}
    assert most_cached > 100
    assert bool(case.drafters) == (ours.drafted > 50)
    if not case.knows_more and case.drafters:
        assert ours.accepted == pytest.approx(theirs.accepted, rel=0.02)
        assert ours.drafted == pytest.approx(theirs.drafted, rel=0.02)


def _compare(
    result: GenerationResult,
    expected: GenerationResult,
    prompt_ids: list[int],
    case: Case,
    engine: Engine,
) -> None:
    """The same text and, if it was not stopped, the same drafts."""
    if result.finish_reason == "cancelled":
        count = len(result.token_ids)
        assert result.token_ids == expected.token_ids[:count]
        assert expected.text.startswith(result.text)
        return
    if check_same(expected, result, prompt_ids, GREEDY, engine) is not None:
        return  # a tie: what was cached in other batches differs in its last bits
    assert result.text == expected.text
    assert result.finish_reason == expected.finish_reason
    if case.is_exact and not case.knows_more:
        ours, theirs = result.stats, expected.stats
        assert (ours.drafts, ours.drafted, ours.accepted) == (
            theirs.drafts,
            theirs.drafted,
            theirs.accepted,
        )
