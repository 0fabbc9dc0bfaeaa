"""ngram-cache against llama.cpp's, written out the slow way and without its faults."""

from __future__ import annotations

import logging
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.conversation import Answer, Talk, conversations
from tools.draft_law import GREEDY
from tools.properties import PROPERTY
from tools.slow_ngrams import Counts, SlowCache, counted

from outrider.speculative.drafters.ngram_cache import NgramCacheDrafter
from outrider.speculative.drafters.ngram_cache_file import add_counts, load_counts
from outrider.speculative.drafters.ngram_counts import NgramCounts
from outrider.speculative.errors import InputError
from outrider.speculative.proposal import DraftRequest

VOCAB_SIZE = 512


def _file(path: Path, counts: Counts) -> Path:
    made = NgramCounts()
    for ngram, part in counts.items():
        for token, count in part.items():
            made.add(struct.pack(f"<{len(ngram)}i", *ngram), token, count)
    add_counts(path, made, VOCAB_SIZE)
    return path


def _saved(path: Path) -> Counts:
    counts = load_counts(path, VOCAB_SIZE)
    return {struct.unpack(f"<{len(n) // 4}i", n): dict(part) for n, part in counts}


def _ask(
    drafter: NgramCacheDrafter,
    tokens: Sequence[int],
    max_tokens: int = 99,
    seq_id: int = 0,
    revision: int | None = None,
) -> tuple[int, ...]:
    ids = np.array(tokens, np.int32)
    request = DraftRequest(seq_id, ids, max_tokens, GREEDY, revision=revision)
    [proposal] = drafter.propose([request])
    return proposal.token_ids


@PROPERTY
@given(conversations(max_cut=30), st.booleans())
def test_one_text(talk: list[Answer], tell: bool) -> None:
    """Grows, is taken back, edited: what is counted is what a new count of the text gives."""
    made = Talk(NgramCacheDrafter(VOCAB_SIZE), SlowCache(), tell=tell)
    made.run(talk)
    drafter = made._drafter
    assert isinstance(drafter, NgramCacheDrafter)
    held = {
        struct.unpack(f"<{len(n) // 4}i", n): dict(part) for n, part in drafter._readers[0].context
    }
    assert held == counted(drafter._readers[0]._text.ids.tolist())


tokens = st.integers(0, 3)
corpora = st.lists(tokens, max_size=60)
parts = st.dictionaries(tokens, st.integers(1, 5), min_size=1, max_size=4)
statics = st.dictionaries(st.tuples(tokens, tokens), parts, max_size=16)


@PROPERTY
@given(conversations(max_cut=9), corpora, statics)
def test_with_earlier_texts_and_a_corpus(
    tmp_path_factory: pytest.TempPathFactory, talk: list[Answer], corpus: list[int], static: Counts
) -> None:
    folder = tmp_path_factory.mktemp("caches")
    dynamic = counted(corpus)
    paths = _file(folder / "static.bin", static), _file(folder / "dynamic.bin", dynamic)
    drafter = NgramCacheDrafter(VOCAB_SIZE, *paths)
    Talk(drafter, SlowCache(dynamic, static)).run(talk)


@PROPERTY
@given(conversations(max_cut=9), conversations(max_cut=9))
def test_sequences_do_not_mix(one: list[Answer], other: list[Answer]) -> None:
    drafter = NgramCacheDrafter(VOCAB_SIZE)
    talks = [Talk(drafter, SlowCache(), seq_id=i) for i in (4, 7)]
    for answers in zip(one, other, strict=False):
        for talk, answer in zip(talks, answers, strict=True):
            talk.run([answer])
    drafter.forget(4)
    Talk(drafter, SlowCache(), seq_id=4).run(one)


def test_by_hand() -> None:
    drafter = NgramCacheDrafter(VOCAB_SIZE)
    # nothing is read before the beginning of a short text
    for text in ([1], [1, 2], [1, 2, 3]):
        assert _ask(drafter, text) == ()
    # what followed 1 2 3 4, and so on, no more than eight
    text = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 1, 2, 3, 4]
    assert _ask(drafter, text) == (5, 6, 7, 8, 9, 10, 11, 12)
    assert _ask(drafter, text, max_tokens=3) == (5, 6, 7)
    # the text before a step and what came in it are counted as one
    for end in range(1, 12):
        _ask(drafter, [20, 21, 22, 23, 24, 25, 26, 27, 28, 20, 21, 22][:end])
    assert _ask(drafter, [20, 21, 22, 23, 24, 25, 26, 27, 28, 20, 21, 22], 2) == (23, 24)


def test_of_two_that_are_as_frequent_the_later_one_is_expected() -> None:
    drafter = NgramCacheDrafter(VOCAB_SIZE)
    for one, other in ((9, 3), (3, 9)):
        text = [1, 2, one, 30, 31, 1, 2, other, 32, 33, 1, 2]
        assert _ask(drafter, text, 1) == (other,)


def test_the_corpus_decides_between_what_the_text_knows(tmp_path: Path) -> None:
    text = [1, 2, 9, 30, 31, 1, 2, 3, 32, 33, 1, 2]
    assert _ask(NgramCacheDrafter(VOCAB_SIZE), text, 1) == (3,)
    static = _file(tmp_path / "static.bin", {(1, 2): {9: 1, 5: 8}})
    assert _ask(NgramCacheDrafter(VOCAB_SIZE, static), text, 1) == (9,)
    # what the text does not know at all
    assert _ask(NgramCacheDrafter(VOCAB_SIZE, static), [40, 1, 2], 1) == (5,)


# the dynamic cache


def _state(path: Path) -> tuple[int, int, bytes]:
    return path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes()


def test_what_was_read_is_saved_once(tmp_path: Path) -> None:
    path = tmp_path / "dynamic.bin"
    drafter = NgramCacheDrafter(VOCAB_SIZE, dynamic=path)
    for end in range(1, 9):
        _ask(drafter, [1, 2, 3, 4, 5, 6, 7, 8][:end], seq_id=1)
    # an answer that was undone leaves nothing
    _ask(drafter, [9, 10, 11, 12], seq_id=0)
    _ask(drafter, [9, 10, 13], seq_id=0)
    assert not path.exists()
    drafter.close()
    expected = counted([1, 2, 3, 4, 5, 6, 7, 8])
    for ngram, part in counted([9, 10, 13]).items():
        expected.setdefault(ngram, {}).update(part)
    assert _saved(path) == expected
    drafter.close()
    assert _saved(path) == expected


def test_it_is_added_to_what_others_saved_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "dynamic.bin"
    _file(path, {(1,): {2: 5}, (7,): {8: 1}})
    drafters = [NgramCacheDrafter(VOCAB_SIZE, dynamic=path) for _ in range(2)]
    for drafter in drafters:
        _ask(drafter, [1, 2])
    for drafter in drafters:
        drafter.close()
    assert _saved(path) == {(1,): {2: 7}, (7,): {8: 1}}


def test_a_forgotten_text_is_an_earlier_one(tmp_path: Path) -> None:
    text = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    question = [30, 1, 2, 3, 4]
    for path, expected in ((tmp_path / "dynamic.bin", (5, 6)), (None, ())):
        drafter = NgramCacheDrafter(VOCAB_SIZE, dynamic=path)
        # what is earlier must have come twice
        for _ in range(2):
            assert _ask(drafter, question, 2, seq_id=1) == ()
            _ask(drafter, text)
            drafter.forget(0)
            drafter.forget(0)
            drafter.forget(1)
        assert _ask(drafter, question, 2) == expected
        drafter.close()
    assert _saved(tmp_path / "dynamic.bin")[4, 5] == {6: 2}


def test_nothing_learned_writes_nothing(tmp_path: Path) -> None:
    path = _file(tmp_path / "dynamic.bin", {(1,): {2: 5}})
    before = _state(path)
    drafter = NgramCacheDrafter(VOCAB_SIZE, dynamic=path)
    drafter.close()
    assert _state(path) == before


def test_the_corpus_is_never_written(tmp_path: Path) -> None:
    path = _file(tmp_path / "static.bin", {(1, 2): {3: 5}})
    before = _state(path)
    drafter = NgramCacheDrafter(VOCAB_SIZE, static=path)
    _ask(drafter, [1, 2, 4, 5])
    drafter.close()
    assert _state(path) == before


def test_a_damaged_file_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "lookup.bin"
    path.write_bytes(b"1234567")
    for static, dynamic in ((path, None), (None, path)):
        with pytest.raises(InputError, match="no lookup cache: 7 bytes"):
            NgramCacheDrafter(VOCAB_SIZE, static, dynamic)


def test_a_missing_file_is_refused_or_begun(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the lookup cache: No such file"):
        NgramCacheDrafter(VOCAB_SIZE, static=tmp_path / "static.bin")
    with pytest.raises(InputError, match="cannot save a lookup cache there: no such folder"):
        NgramCacheDrafter(VOCAB_SIZE, dynamic=tmp_path / "gone" / "dynamic.bin")


def test_what_cannot_be_saved_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "dynamic.bin"
    drafter = NgramCacheDrafter(VOCAB_SIZE, dynamic=path)
    _ask(drafter, [1, 2, 3])
    folder.rmdir()
    with caplog.at_level(logging.WARNING):
        drafter.close()
    [record] = caplog.records
    assert record.getMessage().startswith(f"{path}: what was learned is not saved: ")
