"""Where thoughts end: the same at every cut, in text and in tokens, and within the budget."""

from __future__ import annotations

import codecs
import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import AnyStr

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.properties import PROPERTY

from outrider.speculative.model import Model
from outrider.speculative.reasoning import ReasoningSplitter, ReasoningTracker
from outrider.speculative.settings import ModelSettings, ReasoningSettings

ZOO = Path(__file__).parents[1] / "fixtures" / "zoo"

CLOSED = ReasoningSettings("<think>", "</think>")
OPEN = ReasoningSettings("<think>", "</think>", is_open=True)
CHANNELS = ReasoningSettings("<|a|>", "<|e|><|s|>f<|m|>")
SIGNS = ReasoningSettings("◁t▷", "◁/t▷")
ALL = [CLOSED, OPEN, CHANNELS, SIGNS]

FRAGMENTS = [
    *("<", "/", "think", ">", "<think>", "</think>", "</thi", "<|a|>", "<|e|>", "<|s|>f<|m|>"),
    *("◁t▷", "◁/t▷", "◁", "\n", " ", "\t", "\r\n", "\u00a0", "\u2028", "x", "é", "日本", "🦀"),
]
TEXTS = st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join)


def _split(settings: ReasoningSettings, pieces: Sequence[str]) -> tuple[str, str]:
    splitter = ReasoningSplitter(settings)
    parts = [splitter.push(piece) for piece in pieces] + [splitter.finish()]
    return "".join(r for r, _ in parts), "".join(a for _, a in parts)


def _expected(settings: ReasoningSettings, text: str) -> tuple[str, str]:
    """The same by one look at the whole text."""
    start, end = re.escape(settings.start), re.escape(settings.end)
    opening = "" if settings.is_open else rf"\s*{start}"
    whole = re.fullmatch(rf"(?as){opening}(.*?)(?:{end}[\r\n]*(.*))?", text)
    if whole is None:
        return "", text
    return whole[1].strip(" \t\n\r\f\v"), whole[2] or ""


def _cut(whole: AnyStr, places: Sequence[int]) -> list[AnyStr]:
    edges = [0, *sorted(places), len(whole)]
    return [whole[a:b] for a, b in itertools.pairwise(edges)]


# text


@pytest.mark.parametrize(
    ("settings", "text", "reasoning", "answer"),
    [
        (CLOSED, "<think>\nTwo.\n</think>\n\nThree.\n", "Two.", "Three.\n"),
        (CLOSED, " \n<think>a</think>b", "a", "b"),
        (CLOSED, "<think>\n\n</think>\n\nThree.", "", "Three."),
        (CLOSED, "<think></think>Three.", "", "Three."),
        (CLOSED, " \nThree. <think>a</think>", "", " \nThree. <think>a</think>"),
        (CLOSED, "</think>Three.", "", "</think>Three."),
        (CLOSED, "<think>a<think>b</think>c<think>d</think>", "a<think>b", "c<think>d</think>"),
        (CLOSED, "<think>a</think>\n    code", "a", "    code"),
        (CLOSED, "<think>a\n\n b </thin", "a\n\n b </thin", ""),
        (CLOSED, "<think>\u00a0a\u2028</think>b", "\u00a0a\u2028", "b"),
        (CLOSED, "<think>unfinished \n", "unfinished", ""),
        (CLOSED, "<thin", "", "<thin"),
        (CLOSED, " \n", "", " \n"),
        (OPEN, "\nTwo.\n</think>\n\nThree.", "Two.", "Three."),
        (OPEN, "</think>Three.", "", "Three."),
        (OPEN, "Two", "Two", ""),
        (CHANNELS, "<|a|>x<|e|>y<|e|><|s|>f<|m|>z", "x<|e|>y", "z"),
        (SIGNS, "◁t▷日◁/t▷本", "日", "本"),
    ],
)
def test_text_is_taken_apart(
    settings: ReasoningSettings, text: str, reasoning: str, answer: str
) -> None:
    assert _split(settings, [text]) == (reasoning, answer)
    assert _split(settings, list(text)) == (reasoning, answer)


def test_every_cut_gives_the_same() -> None:
    settings = ReasoningSettings("<t>", "</t>")
    text = "\n<t> a\n</t>\nb"
    for size in range(len(text)):
        for places in itertools.combinations(range(1, len(text)), size):
            assert _split(settings, _cut(text, places)) == ("a", "b")


@PROPERTY
@given(st.sampled_from(ALL), TEXTS, st.data())
def test_any_text_at_any_cut_is_what_one_look_finds(
    settings: ReasoningSettings, text: str, data: st.DataObject
) -> None:
    places = data.draw(st.lists(st.integers(0, len(text)), max_size=8))
    assert _split(settings, _cut(text, places)) == _expected(settings, text)


def test_only_what_could_become_a_tag_is_held_back() -> None:
    splitter = ReasoningSplitter(CLOSED)
    given_out = [
        splitter.push(piece) for piece in ("<thi", "nk>\nA", " B", "\n</", "b", "</think>")
    ]
    assert given_out == [("", ""), ("A", ""), (" B", ""), ("", ""), ("\n</b", ""), ("", "")]
    assert splitter.push("\nC") == ("", "C")
    assert splitter.push("<think>") == ("", "<think>")


def test_it_is_thinking_from_tag_to_tag() -> None:
    splitter = ReasoningSplitter(CLOSED)
    seen = []
    for piece in ("<thi", "nk>", "\n", "a</thi", "nk>", "b"):
        splitter.push(piece)
        seen.append(splitter.is_thinking)
    assert seen == [False, True, True, True, False, False]
    assert ReasoningSplitter(OPEN).is_thinking


def test_tags_are_found_with_the_template_s_white_space_around_them() -> None:
    settings = ReasoningSettings("<think>\n", "\n</think>\n\n")
    assert _split(settings, ["<think>a</think>b"]) == ("a", "b")


# tokens


class Pieces:
    """Tokens that are pieces of bytes; text is encoded by the longest piece that fits."""

    def __init__(self, *texts: str | bytes) -> None:
        self._pieces = [t if isinstance(t, bytes) else t.encode() for t in texts]

    def piece(self, token_id: int) -> bytes:
        return self._pieces[token_id]

    def ids(self, *texts: str | bytes) -> list[int]:
        return [self._pieces.index(t if isinstance(t, bytes) else t.encode()) for t in texts]

    def encode(self, text: str) -> list[int]:
        data, ids = text.encode(), []
        while data:
            fitting = [p for p in self._pieces if data.startswith(p)]
            best = max(fitting, key=len)
            ids.append(self._pieces.index(best))
            data = data[len(best) :]
        return ids

    def track(self, settings: ReasoningSettings, *texts: str | bytes) -> ReasoningTracker:
        tracker = ReasoningTracker(settings, self.piece, self.encode)
        for token_id in self.ids(*texts):
            tracker.push(token_id)
        return tracker


BYTES = Pieces(*(bytes([i]) for i in range(256)))
WORDS = Pieces("<think>", "</think>", "a", "b", "\n", "Stop", ".", *"</thinkOP>", "</think>\n\nYes")


@PROPERTY
@given(st.sampled_from(ALL), TEXTS, st.data())
def test_tokens_are_taken_apart_as_their_text_is(
    settings: ReasoningSettings, text: str, data: st.DataObject
) -> None:
    whole = text.encode()
    pieces = _cut(whole, data.draw(st.lists(st.integers(0, len(whole)), max_size=12)))
    vocabulary = Pieces(*pieces, *(bytes([i]) for i in range(256)))
    tracker = ReasoningTracker(settings, vocabulary.piece, vocabulary.encode)
    splitter = ReasoningSplitter(settings)
    decoder = codecs.getincrementaldecoder("utf-8")()
    from_tokens, from_text, reasoning = b"", "", ""
    for token_id, piece in enumerate(pieces):
        tracker.push(token_id)
        thought, answer = splitter.push(decoder.decode(piece))
        from_tokens += tracker.rest
        from_text += answer
        reasoning += thought
        if not decoder.getstate()[0]:
            assert tracker.is_thinking == splitter.is_thinking
            assert from_tokens == from_text.encode()
    rest, held = splitter.finish()
    assert (reasoning + rest, from_text + held) == _expected(settings, text)
    assert tracker.is_over == bool(text and not tracker.is_thinking and not held)


@pytest.mark.parametrize("pieces", [["<think>", "a", "</think>"], list("<think>a</think>")])
def test_the_answer_begins_right_after_the_end_tag(pieces: list[str]) -> None:
    tracker = WORDS.track(CLOSED, *pieces[:-1])
    assert (tracker.is_thinking, tracker.is_over) == (True, False)
    tracker.push(*WORDS.ids(pieces[-1]))
    assert (tracker.is_thinking, tracker.is_over, tracker.rest) == (False, True, b"")


def test_the_end_tag_shares_its_token_with_the_answer() -> None:
    tracker = WORDS.track(CLOSED, "<think>", "a", "</think>\n\nYes")
    assert tracker.is_over
    assert tracker.rest == b"Yes"


def test_without_a_start_tag_it_is_over_as_soon_as_that_is_certain() -> None:
    tracker = WORDS.track(CLOSED, "\n", "<", "t")
    assert not tracker.is_over
    tracker.push(*WORDS.ids("a"))
    assert (tracker.is_thinking, tracker.is_over, tracker.rest) == (False, True, b"\n<ta")


def test_the_opening_leads_into_the_thought() -> None:
    letters = Pieces(*"<think>/ab")
    tracker = letters.track(CLOSED)
    for letter in "<think>":
        assert tracker.opening == letters.ids(letter)[0]
        tracker.push(tracker.opening)
    assert tracker.is_thinking
    assert tracker.opening is None


@pytest.mark.parametrize("pieces", ["a", "<a", "<ta", "\n"])
def test_no_opening_once_something_else_has_come(pieces: str) -> None:
    letters = Pieces(*"<think>/ab\n")
    assert letters.track(CLOSED, *pieces).opening is None
    assert letters.track(OPEN).opening is None


# the budget


@pytest.fixture(scope="module")
def model() -> Model:
    return Model(ModelSettings(ZOO / "target-llama.gguf"), "target")


def _settings(budget: int, message: str = "", *, is_open: bool = False) -> ReasoningSettings:
    return ReasoningSettings("<think>", "</think>", is_open, budget, message)


def _follow(tracker: ReasoningTracker, limit: int = 99) -> list[int]:
    forced: list[int] = []
    while tracker.forced is not None and len(forced) < limit:
        forced.append(tracker.forced)
        tracker.push(tracker.forced)
    return forced


@pytest.mark.parametrize(
    ("settings", "before"),
    [
        (_settings(0, is_open=True), []),
        (_settings(0), ["<think>"]),
        (_settings(0), list("<think>")),
        (_settings(2, is_open=True), ["a", "b"]),
        (_settings(2), ["<think>", "\n", "a"]),
        (_settings(2), [*"<think>", "a", "b"]),
        (_settings(2), ["<think>", "a", "<"]),
    ],
)
def test_the_end_is_forced_when_the_budget_is_used_up(
    settings: ReasoningSettings, before: list[str]
) -> None:
    if before:
        assert WORDS.track(settings, *before[:-1]).forced is None
    tracker = WORDS.track(settings, *before)
    assert _follow(tracker) == WORDS.ids("</think>")
    assert tracker.is_over


def test_the_message_comes_first() -> None:
    tracker = WORDS.track(_settings(1, "Stop."), "<think>", "a")
    assert _follow(tracker) == WORDS.ids("Stop", ".", "</think>")
    assert tracker.is_over


@pytest.mark.parametrize(
    ("settings", "pieces"),
    [
        (_settings(-1), ["<think>", "a", "a", "a"]),
        (_settings(0), ["a", "<think>", "a"]),
        (_settings(0), ["\n"]),
        (_settings(3), ["<think>", "a", "b"]),
        (_settings(2), ["<think>", "a", "</think>", "a", "b", "<think>", "a", "b"]),
        (_settings(1), ["<think>", "</think>\n\nYes", "a"]),
    ],
)
def test_nothing_is_forced_within_the_budget_or_outside_of_a_thought(
    settings: ReasoningSettings, pieces: list[str]
) -> None:
    for count in range(len(pieces) + 1):
        assert WORDS.track(settings, *pieces[:count]).forced is None


def test_a_message_that_ends_the_thought_itself_is_the_last_that_is_forced() -> None:
    tracker = WORDS.track(_settings(0, "Stop</think>a"), "<think>")
    assert _follow(tracker) == WORDS.ids("Stop", "</think>")
    assert tracker.is_over


@pytest.mark.parametrize("character", ["é", "日", "🦀", "🦀é"])
def test_a_character_is_completed_first(character: str) -> None:
    data = [bytes([byte]) for byte in character.encode()]
    closing = BYTES.encode("</think>")
    for budget in range(1, len(data) + 1):
        tracker = BYTES.track(_settings(budget, is_open=True))
        num_read = 0
        while tracker.forced is None:
            tracker.push(*BYTES.ids(data[num_read]))
            num_read += 1
        # all of the character in which the budget ended, and no more
        first = len(character[0].encode())
        assert num_read == (first if budget <= first else len(data))
        assert _follow(tracker) == closing


def test_a_lone_byte_is_not_waited_for() -> None:
    assert BYTES.track(_settings(2, is_open=True), b"a", b"\x80").forced is not None
    assert BYTES.track(_settings(1, is_open=True), b"\xc3", b"a").forced is not None


@pytest.mark.parametrize("end", ["</think>", "[/THINK]", "◁/t▷", "<channel|>"])
def test_a_model_s_own_tokens_end_the_thought(model: Model, end: str) -> None:
    settings = ReasoningSettings("<think>", end, is_open=True, budget=3, message="\nEnough.\n")
    vocabulary = model.vocabulary
    tracker = ReasoningTracker(
        settings, vocabulary.piece, lambda text: vocabulary.encode(text, parse_special=True)
    )
    for token_id in vocabulary.encode("Two and two", parse_special=False)[:3]:
        assert tracker.forced is None
        tracker.push(token_id)
    forced = b"".join(map(vocabulary.piece, _follow(tracker)))
    assert forced.decode().split() == ["Enough.", end]
    assert tracker.is_over
    assert tracker.rest == b""


@PROPERTY
@given(st.integers(0, 6), st.booleans(), st.lists(st.integers(0, 17), max_size=30))
def test_no_thought_outlives_its_budget(budget: int, is_open: bool, choices: list[int]) -> None:
    """Tokens at will, except where one is forced."""
    tracker = WORDS.track(_settings(budget, "Stop.", is_open=is_open))
    num_inside = num_forced = 0
    for choice in choices:
        was_thinking = tracker.is_thinking
        num_forced += tracker.forced is not None
        num_inside += was_thinking and tracker.forced is None
        tracker.push(choice if tracker.forced is None else tracker.forced)
        assert num_inside <= budget
    if num_inside == budget and tracker.is_thinking:
        _follow(tracker)
        assert tracker.is_over


@PROPERTY
@given(st.lists(st.integers(0, 17), max_size=12), st.lists(st.integers(0, 17), max_size=12))
def test_a_copy_goes_its_own_way(tokens: list[int], others: list[int]) -> None:
    tracker, alone = WORDS.track(_settings(3)), WORDS.track(_settings(3))
    for token_id in tokens:
        twin = tracker.copy()
        for other in others:
            twin.push(other)
        tracker.push(token_id)
        alone.push(token_id)
        seen, expected = (
            (t.is_thinking, t.is_over, t.forced, t.opening, t.rest) for t in (tracker, alone)
        )
        assert seen == expected
