"""From token bytes to text: characters, stop strings, and how many tokens stay."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.properties import PROPERTY

from outrider.speculative.text_stream import AcceptedText, TextStream


def _run(pieces: Sequence[bytes], stop: Sequence[str] = ()) -> tuple[list[str], TextStream]:
    """Push and release token by token, to the stop or the end; what was released each time."""
    stream, released = TextStream(stop), []
    for piece in pieces:
        stopped = stream.push(piece)
        released.append(stream.release())
        if stopped:
            break
    released.append(stream.finish())
    return released, stream


def _decoded(data: bytes) -> str:
    """The complete characters of ``data``: an unfinished one at the end does not count."""
    for tail in range(3, 0, -1):
        try:
            data[-tail:].decode()
        except UnicodeDecodeError as error:
            if error.start == 0 and error.reason == "unexpected end of data":
                return data[:-tail].decode(errors="replace")
    return data.decode(errors="replace")


def test_text_comes_as_it_is_pushed() -> None:
    released, stream = _run([b"Hel", b"", b"lo", b" you"])
    assert released == ["Hel", "", "lo", " you", ""]
    assert stream.text == "Hello you"
    assert not stream.is_stopped


def test_a_character_waits_for_its_last_byte() -> None:
    released, _ = _run([b"a\xf0", b"\x9f\xa6", b"\x8a", b"b\xc3", b"\xa9"])
    assert released == ["a", "", "🦊", "b", "é", ""]


@pytest.mark.parametrize("lone", [b"\xff", b"\x80", b"\xc3"])
def test_a_lone_invalid_byte_is_a_replacement_character(lone: bytes) -> None:
    released, stream = _run([b"a", lone, b"b"])
    assert stream.text == "a\ufffdb"
    assert "".join(released) == "a\ufffdb"


def test_an_incomplete_tail_is_dropped() -> None:
    released, stream = _run([b"ok\xe2", b"\x82"])
    assert released == ["ok", "", ""]
    assert stream.text == "ok"


def test_a_stop_string_across_tokens_is_cut_off() -> None:
    released, stream = _run([b"one<", b"st", b"op", b"> two"], ["<stop>"])
    assert released == ["one", "", "", "", ""]
    assert stream.is_stopped
    assert stream.text == "one"
    assert stream.num_tokens_kept() == 1


def test_a_stop_string_in_the_middle_of_a_token_keeps_the_token() -> None:
    """The token holds the last kept character; it counts whole."""
    released, stream = _run([b"one", b" two<stop> three", b"never"], ["<stop>"])
    assert released == ["one", " two", ""]
    assert stream.num_tokens_kept() == 2


def test_a_stop_string_at_the_very_beginning_keeps_nothing() -> None:
    released, stream = _run([b"<st", b"op>"], ["<stop>"])
    assert "".join(released) == ""
    assert stream.num_tokens_kept() == 0


def test_tokens_without_text_before_a_stop_string_are_not_kept() -> None:
    _, stream = _run([b"one", b"", b"<stop>"], ["<stop>"])
    assert stream.num_tokens_kept() == 1


def test_the_token_that_completes_the_last_kept_character_is_kept() -> None:
    _, stream = _run([b"a\xc3", b"\xa9", b"<stop>"], ["<stop>"])
    assert stream.text == "aé"
    assert stream.num_tokens_kept() == 2


def test_text_that_may_become_a_stop_string_is_held_back_until_it_is_known() -> None:
    released, stream = _run([b"a<st", b"op", b"pers"], ["<stop>"])
    assert released == ["a", "", "<stoppers", ""]
    assert not stream.is_stopped


def test_held_back_text_is_released_at_the_end() -> None:
    released, stream = _run([b"a", b"<sto"], ["<stop>"])
    assert released == ["a", "", "<sto"]
    assert stream.text == "a<sto"


def test_stop_strings_with_a_shared_beginning() -> None:
    stop = ["\n\nUser:", "\n\nUsage", "\n\nUs"]
    released, stream = _run([b"a\n", b"\nU", b"sage"], stop[:2])
    assert released == ["a", "", "", ""]
    assert stream.is_stopped
    # the shortest is complete first
    _, stream = _run([b"a\n", b"\nU", b"s", b"age"], stop)
    assert stream.text == "a"
    assert stream.num_tokens_kept() == 1


def test_the_longest_possible_beginning_is_held_back() -> None:
    """After "ab" of "aab" comes another "a": what began earlier is still possible."""
    released, stream = _run([b"xa", b"a", b"a", b"b"], ["aab"])
    assert released == ["x", "", "a", "", ""]
    assert stream.text == "xa"
    released, stream = _run([b"abab", b"a", b"bc"], ["ababc"])
    assert released == ["", "ab", "", ""]
    assert stream.text == "ab"


@pytest.mark.parametrize("stop", [["three", "two"], ["two", "three"]])
def test_the_first_of_several_wins(stop: list[str]) -> None:
    _, stream = _run([b"one two three"], stop)
    assert stream.text == "one "


@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        ("abcdef", ["bcde", "cd"], "ab"),  # the longer one begins first and is complete later
        ("abcdef", ["bcd", "cd"], "a"),  # complete with the same character: the longer one
        ("abcdef", ["cd", "cdef"], "ab"),  # one is the beginning of the other
        ("aaab", ["aab"], "a"),
        ("aaaab", ["aaab", "ab"], "a"),
        ("ababac", ["abac"], "ab"),
        ("abcabcabd", ["abcabd"], "abc"),
        ("aaa", ["aa"], ""),
        ("x🦊🦊é", ["🦊é"], "x🦊"),
    ],
)
def test_where_stop_strings_overlap(text: str, stop: list[str], expected: str) -> None:
    """However the text is cut into tokens."""
    data = text.encode()
    for cuts in ([*range(len(data) + 1)], [0, len(data)], [0, 1, len(data)], [0, 2, 3, len(data)]):
        cut = [data[a:b] for a, b in pairwise(cuts)]
        for given_stop in (stop, stop[::-1]):
            released, stream = _run(cut, given_stop)
            assert "".join(released) == stream.text == expected


def test_a_stop_string_may_hold_any_character() -> None:
    _, stream = _run(["ok 🦊".encode()[:5], "🦊".encode()[2:], "é!".encode()], ["🦊é"])
    assert stream.text == "ok "


def test_empty_stop_strings_stop_nothing() -> None:
    _, stream = _run([b"abc"], ["", "x"])
    assert stream.text == "abc"


data = st.one_of(
    st.binary(max_size=24),
    st.text(alphabet="ab<>é🦊", max_size=16).map(str.encode),
)
stops = st.lists(st.text(alphabet="ab<>é", min_size=1, max_size=3), max_size=3)


@st.composite
def _split(draw: st.DrawFn) -> list[bytes]:
    """Any bytes, split into tokens anywhere; some tokens print nothing."""
    whole = draw(data)
    cuts = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=12)))
    return [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]


@PROPERTY
@given(_split(), stops)
def test_any_split_gives_the_text_up_to_the_stop(pieces: list[bytes], stop: list[str]) -> None:
    released, stream = _run(pieces, stop)

    # by brute force: every beginning of the whole text, searched anew
    expected = text = _decoded(b"".join(pieces))
    is_stopped = False
    for count in range(1, len(text) + 1):
        complete = [len(s) for s in stop if text[:count].endswith(s)]
        if complete:
            expected, is_stopped = text[: count - max(complete)], True
            break
    assert "".join(released) == stream.text == expected
    assert stream.is_stopped == is_stopped
    assert not any(s in stream.text for s in stop)
    if is_stopped:
        ends = [len(_decoded(b"".join(pieces[:n]))) for n in range(len(pieces) + 1)]
        enough = next(n for n, end in enumerate(ends) if end >= len(expected))
        assert stream.num_tokens_kept() == enough


@PROPERTY
@given(_split(), stops)
def test_the_text_does_not_depend_on_the_cut_into_tokens(
    pieces: list[bytes], stop: list[str]
) -> None:
    whole = b"".join(pieces)
    texts = {
        _run(cut, stop)[1].text
        for cut in (pieces, [whole], [whole[i : i + 1] for i in range(len(whole))])
    }
    assert len(texts) == 1


@PROPERTY
@given(_split())
def test_what_is_shown_is_what_is_certain(pieces: list[bytes]) -> None:
    """After every token: no character is missing, none turns out to be another one later."""
    stream, shown = TextStream(), ""
    for count, piece in enumerate(pieces, 1):
        stream.push(piece)
        shown += stream.release()
        assert shown == _decoded(b"".join(pieces[:count]))


@pytest.mark.parametrize(
    "data",
    [
        b"\xc0\xaf",  # overlong: a slash in two bytes
        b"\xe0\x80\xaf",
        b"\xf0\x80\x80\xaf",
        b"\xc1\xbf",
        b"\xed\xa0\x80",  # a surrogate
        b"\xed\xa0\xbd\xed\xb8\x80",  # a pair of them
        b"\xf4\x90\x80\x80",  # beyond the last code point
        b"\xf5\x80\x80\x80",
        b"\xff\xfe",
        b"\x80\x80\xc3",
        b"\xe2\x82\xe2\x82\xac",  # cut short, then whole
        b"\xf0\x9f\xf0\x9f\xa6\x8a",
    ],
)
def test_what_is_no_character_is_replaced(data: bytes) -> None:
    whole = b"a" + data + b"b"
    for size in (1, 2, 3, len(whole)):
        released, stream = _run([whole[i : i + size] for i in range(0, len(whole), size)])
        assert "".join(released) == stream.text == whole.decode(errors="replace")


def test_a_very_long_token() -> None:
    piece = ("x" * 9_999 + "é").encode() * 3
    released, stream = _run([piece[:-1], piece[-1:] + b"<st", b"op>y"], ["<stop>", "y" * 5_000])
    assert stream.text == piece.decode()
    assert "".join(released) == stream.text
    assert stream.num_tokens_kept() == 2


def test_no_token_is_read_again() -> None:
    """A hundred thousand characters that all could begin the stop string: each is held once."""
    stream, most = TextStream(["a" * 99 + "b", "ab"]), 0
    for _ in range(25_000):
        stream.push(b"aaaa")
        stream.release()
        most = max(most, len(stream._held))
    assert most == 99
    assert stream.text == "a" * 100_000


@PROPERTY
@given(_split(), stops)
def test_what_was_released_is_never_taken_back(pieces: list[bytes], stop: list[str]) -> None:
    """And no more is held back than what begins a stop string."""
    stream, shown = TextStream(stop), ""
    for piece in pieces:
        stopped = stream.push(piece)
        shown += stream.release()
        assert stream.text.startswith(shown)
        held = stream.text[len(shown) :]
        assert held == "" or any(s.startswith(held) and s != held for s in stop)
        if stopped:
            break
    assert shown + stream.finish() == stream.text


@PROPERTY
@given(_split(), stops)
def test_releasing_by_block_gives_the_same_text(pieces: list[bytes], stop: list[str]) -> None:
    """A step pushes several tokens before it releases."""
    _, one_by_one = _run(pieces, stop)
    stream = TextStream(stop)
    for piece in pieces:
        if stream.push(piece):
            break
    assert stream.release() + stream.finish() == stream.text == one_by_one.text
    assert stream.num_tokens_kept() == one_by_one.num_tokens_kept()


@PROPERTY
@given(
    st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=20),
    st.lists(st.integers(1, 9), min_size=1, max_size=20),
)
def test_accepted_text_is_given_out_once_however_it_is_asked_for(
    pieces: list[tuple[int, bool]], lengths: list[int]
) -> None:
    accepted, owners = AcceptedText(), list[bool]()
    for length, is_accepted in pieces:
        owners += [is_accepted] * length
        accepted.add(len(owners), is_accepted)
    given, start, turn = list[bool](), 0, 0
    while start < len(owners):
        end = min(start + lengths[turn % len(lengths)], len(owners))
        spans = accepted.take(start, end)
        assert all(before[1] < after[0] for before, after in pairwise(spans))
        given += [any(a <= place < b for a, b in spans) for place in range(end - start)]
        start, turn = end, turn + 1
    assert given == owners


def test_accepted_text_that_is_not_asked_for_is_passed_over() -> None:
    accepted = AcceptedText()
    for end, is_accepted in ((4, True), (6, False), (9, True)):
        accepted.add(end, is_accepted)
    assert accepted.take(5, 8) == ((1, 3),)
    assert accepted.take(8, 9) == ((0, 1),)
