"""A text ends where plain decoding ends it, wherever in a block that is.

Stop strings, end tokens, the token limit and the end of the context; what is expected is found
from the target's tokens alone, one character after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.properties import PROPERTY
from tools.toy_runner import ToyRunner, ToyTokenizer, reciting, remembering
from tools.toy_session import check_counts, fixed, result_of, toy_session

from outrider.speculative.drafters.made_up import ScriptDrafter
from outrider.speculative.events import FinishEvent, GenerationResult, StepEvent
from outrider.speculative.session import Session
from outrider.speculative.settings import GenerationSettings, SamplingSettings

GREEDY = SamplingSettings(temp=0)
PIECES = [
    *(b"a", b"b", b"c", b"ab", b"ba", b"aab", b"bca", b"cab"),
    *("é".encode(), b"\xc3", b"\xa9", b"\xf0\x9f", b"\xa6\x8a", b"b\xc3", b"\xa9a"),
    *(b"\xff", b"\x80", b"<0xE2>", b"", b"c" * 40),
]
ENDS = (len(PIECES), len(PIECES) + 1, len(PIECES) + 2)
SIZE = len(PIECES) + len(ENDS)
TOKENIZER = ToyTokenizer([*PIECES, *[b""] * len(ENDS)], ENDS)
PROMPT = [3, 1, 4, 1]
N_CTX = 256


@dataclass(frozen=True)
class Expected:
    """What one answer must be."""

    text: str
    token_ids: Sequence[int]
    finish_reason: str


def _decoded(tokens: Sequence[int]) -> str:
    """The characters that are complete: what may still become one at the end is none."""
    data = b"".join(map(TOKENIZER.piece, tokens))
    for count in range(3, 0, -1):
        tail = data[-count:]
        try:
            tail.decode()
        except UnicodeDecodeError as error:
            if (error.start, error.reason) == (0, "unexpected end of data"):
                return data[:-count].decode(errors="replace")
    return data.decode(errors="replace")


def _stopped(text: str, stop: Sequence[str]) -> str | None:
    """The text before the stop string that is complete first."""
    for end in range(len(text) + 1):
        complete = [len(s) for s in stop if text[:end].endswith(s)]
        if complete:
            return text[: end - max(complete)]
    return None


def _expected(told: Sequence[int], settings: GenerationSettings, n_ctx: int) -> Expected:
    ids: list[int] = []
    room = n_ctx - len(PROMPT)
    for token in told:
        if token in ENDS:
            return Expected(_decoded(ids), ids, "stop")
        ids.append(token)
        text = _stopped(_decoded(ids), settings.stop)
        if text is not None:
            kept = next(n for n in range(len(ids) + 1) if len(_decoded(ids[:n])) >= len(text))
            return Expected(text, ids[:kept], "stop")
        if len(ids) == settings.predict:
            return Expected(_decoded(ids), ids, "length")
        if len(ids) == room:
            return Expected(_decoded(ids), ids, "context")
    raise AssertionError("the target's tokens do not reach the end")


def _drafts(told: Sequence[int], blocks: Sequence[tuple[int, int]]) -> list[list[int]]:
    """A draft for each step: its length, and how many of its tokens are right."""
    drafts, position = [], 1  # the first token comes out of the prompt
    for length, right in blocks:
        draft = list(told[position : position + length])
        right = min(right, len(draft))
        for i in range(right, len(draft)):
            draft[i] = (draft[i] + 1) % SIZE
        drafts.append(draft)
        position += right + 1
    return drafts


def _session(told: Sequence[int], drafts: Sequence[Sequence[int]], n_ctx: int) -> Session:
    rows = reciting(remembering(SIZE, seed=8), [*PROMPT, *told])
    return toy_session(
        ToyRunner(rows, SIZE, n_ctx=n_ctx), TOKENIZER, [ScriptDrafter(drafts)], fixed(9)
    )


def _answer(session: Session, settings: GenerationSettings) -> GenerationResult:
    """An answer, all that was shown of it on the way checked against its text."""
    events, shown = [], ""
    for event in session.generate(PROMPT, settings):
        events.append(event)
        if isinstance(event, StepEvent | FinishEvent):
            shown += event.text
            assert session.stats.emitted == session.stats.accepted + session.stats.own
    result = result_of(events)
    assert shown == result.text
    check_counts(result)
    return result


def _check(
    told: Sequence[int],
    blocks: Sequence[tuple[int, int]],
    settings: GenerationSettings,
    n_ctx: int = N_CTX,
) -> GenerationResult:
    """The answer with drafts, the one without, and what both must be; then a next turn."""
    expected = _expected(told, settings, n_ctx)
    for drafts in (_drafts(told, blocks), []):
        session = _session(told, drafts, n_ctx)
        result = _answer(session, settings)
        assert result.text == expected.text
        assert result.token_ids == expected.token_ids
        assert result.finish_reason == expected.finish_reason
        assert result.stats.emitted == len(expected.token_ids)
        if drafts:
            speculative = result
        _check_next_turn(session, told, n_ctx, result.token_ids)
    return speculative if blocks else result


def _check_next_turn(
    session: Session, told: Sequence[int], n_ctx: int, token_ids: Sequence[int]
) -> None:
    """The cache ends with the text, at once, and the next prompt goes on from there."""
    text = [*PROMPT, *token_ids]
    [cache] = session._scheduler().runner.caches  # type: ignore[attr-defined]
    assert cache == text[:-1]
    assert session.context_used == len(text) - 1
    prompt = [*text, 0, 1]
    if len(prompt) >= n_ctx:
        return
    asked = GenerationSettings(GREEDY, predict=3)
    result = result_of(session.generate(prompt, asked))
    fresh = result_of(_session(told, [], n_ctx).generate(prompt, asked))
    assert result.cached_tokens == len(text) - 1
    assert (result.text, result.token_ids) == (fresh.text, fresh.token_ids)


# by hand: what ends the text stands at every place of the blocks

TOLD = [0, 1, 2, 3, 8, 0, 9, 10, 2, 5, 11, 12, 1, 2]
FULL = [(4, 4)] * 5
BLOCKS = {
    "no drafts": [],
    "all right": FULL,
    "none right": [(4, 0)] * 20,
    "some right": [(4, 2), (3, 0), (4, 3), (2, 1), (4, 1), (4, 4)],
    "one long block": [(9, 9), (9, 9)],
}
every_kind_of_block = pytest.mark.parametrize("blocks", BLOCKS.values(), ids=BLOCKS)


@every_kind_of_block
@pytest.mark.parametrize("end", ENDS)
def test_an_end_token_at_every_place(blocks: list[tuple[int, int]], end: int) -> None:
    for place in range(len(TOLD)):
        told = [*TOLD[:place], end, *TOLD[place:]]
        result = _check(told, blocks, GenerationSettings(GREEDY))
        assert result.token_ids == TOLD[:place]


@every_kind_of_block
def test_the_token_limit_at_every_place(blocks: list[tuple[int, int]]) -> None:
    for predict in range(1, len(TOLD) + 1):
        result = _check(TOLD, blocks, GenerationSettings(GREEDY, predict=predict))
        assert result.token_ids == TOLD[:predict]
        assert result.finish_reason == "length"


@every_kind_of_block
def test_the_end_of_the_context_at_every_place(blocks: list[tuple[int, int]]) -> None:
    for room in range(1, len(TOLD) + 1):
        result = _check(TOLD, blocks, GenerationSettings(GREEDY), len(PROMPT) + room)
        assert result.token_ids == TOLD[:room]
        assert result.finish_reason == "context"


@every_kind_of_block
@pytest.mark.parametrize("length", [1, 2, 3, 6])
def test_a_stop_string_from_every_place(blocks: list[tuple[int, int]], length: int) -> None:
    """It begins and ends anywhere: in a token, at its edge, in another block."""
    text = _decoded(TOLD)
    for begin in range(len(text) - length + 1):
        stop = text[begin : begin + length]
        settings = GenerationSettings(GREEDY, predict=len(TOLD), stop=(stop,))
        result = _check(TOLD, blocks, settings)
        assert result.text == text.partition(stop)[0]


@pytest.mark.parametrize(
    ("stop", "text"),
    [
        (("cabé", "ab", "abé"), ""),  # "ab" is complete first
        (("cabé", "bcab"), "a"),
        (("cabéa", "cabé"), "ab"),
        (("éa🦊", "éaé", "éaéc"), "abcab"),
        (("nothing", "🦊b"), "abcabéaécaab"),
        (("aab", "caab"), "abcabéaé"),
    ],
)
@every_kind_of_block
def test_several_stop_strings(
    blocks: list[tuple[int, int]], stop: tuple[str, ...], text: str
) -> None:
    assert _decoded(TOLD) == "abcabéaécaab🦊bc"
    settings = GenerationSettings(GREEDY, predict=len(TOLD), stop=stop)
    assert _check(TOLD, blocks, settings).text == text


# anything

tokens = st.integers(0, len(PIECES) - 1)
blocks_ = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=12)
stops = st.lists(
    st.one_of(st.text("abcé🦊\ufffd", min_size=1, max_size=5), st.sampled_from(["aab", "abab"])),
    max_size=3,
)


@PROPERTY
@given(
    told=st.lists(tokens, min_size=1, max_size=24),
    end=st.sampled_from(ENDS),
    blocks=blocks_,
    stop=stops,
    predict=st.one_of(st.just(-1), st.integers(1, 24)),
    room=st.one_of(st.just(N_CTX), st.integers(1, 24)),
)
def test_any_text_in_any_blocks(
    told: list[int],
    end: int,
    blocks: list[tuple[int, int]],
    stop: list[str],
    predict: int,
    room: int,
) -> None:
    settings = GenerationSettings(GREEDY, predict=predict, stop=tuple(stop))
    _check([*told, end, *told], blocks, settings, min(len(PROMPT) + room, N_CTX))


@PROPERTY
@given(told=st.lists(tokens, min_size=1, max_size=24), blocks=blocks_, data=st.data())
def test_a_stop_string_of_the_text_itself(
    told: list[int], blocks: list[tuple[int, int]], data: st.DataObject
) -> None:
    text = _decoded(told)
    begin = data.draw(st.integers(0, max(len(text) - 1, 0)))
    stop = text[begin : begin + data.draw(st.integers(1, 8))] or "x"
    settings = GenerationSettings(GREEDY, stop=(stop, stop[1:] + "z"))
    _check([*told, ENDS[0]], blocks, settings)
