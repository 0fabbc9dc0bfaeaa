"""The tokenizer of a real model: text to tokens and back, ends, control tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.properties import PROPERTY

from outrider.speculative.llama import NativeModel
from outrider.speculative.model import Model
from outrider.speculative.settings import ModelSettings
from outrider.speculative.vocabulary import Vocabulary

ZOO = Path(__file__).parents[1] / "fixtures" / "zoo"
UNKNOWN, BOS, EOS, START, END, MASK = range(6)
FIRST_BYTE = 6

# the tokenizer writes a space as U+2581: this letter alone does not come back
texts = st.text(st.characters(exclude_characters="\u2581", exclude_categories=()), max_size=30)


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Model(ModelSettings(ZOO / "target-llama.gguf"), "target").vocabulary


def _lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (ZOO / "prompts.jsonl").read_text().splitlines()]


def _printed(vocabulary: Vocabulary, token_ids: list[int]) -> bytes:
    return b"".join(map(vocabulary.piece, token_ids))


def test_prompts_have_as_many_tokens_as_the_server_counted(vocabulary: Vocabulary) -> None:
    for line in _lines():
        token_ids = vocabulary.with_bos(vocabulary.encode(line["text"], parse_special=True))
        assert len(token_ids) == line["greedy"]["target-llama"]["n_prompt"]
        assert token_ids[0] == BOS


def test_answers_read_as_the_server_s(vocabulary: Vocabulary) -> None:
    for line in _lines():
        answer = line["greedy"]["target-llama"]
        assert _printed(vocabulary, answer["tokens"]) == answer["text"].encode()


def test_byte_tokens_print_their_byte(vocabulary: Vocabulary) -> None:
    assert _printed(vocabulary, list(range(FIRST_BYTE, FIRST_BYTE + 256))) == bytes(range(256))


def test_control_tokens_print_nothing(vocabulary: Vocabulary) -> None:
    for token in (UNKNOWN, BOS, EOS, START, END, MASK):
        assert vocabulary.piece(token) == b""


@pytest.mark.parametrize("parse_special", [True, False])
def test_control_tokens_count_only_where_special_tokens_are_parsed(
    parse_special: bool, vocabulary: Vocabulary
) -> None:
    text = "<|im_start|>user\nHi<|im_end|></s><s><unk><|mask|>"
    token_ids = vocabulary.encode(text, parse_special=parse_special)
    control = [token for token in token_ids if token < FIRST_BYTE]
    if parse_special:
        assert control == [START, END, EOS, BOS, UNKNOWN, MASK]
        assert _printed(vocabulary, token_ids) == b"user\nHi"
    else:
        assert control == []
        assert _printed(vocabulary, token_ids) == text.encode()


@PROPERTY
@given(texts)
def test_any_text_comes_back(vocabulary: Vocabulary, text: str) -> None:
    """Zero bytes, lone surrogates and letters no token holds included."""
    token_ids = vocabulary.encode(text, parse_special=False)
    assert _printed(vocabulary, token_ids) == text.encode("utf-8", "surrogatepass")
    assert all(token >= FIRST_BYTE for token in token_ids)


def test_a_text_of_many_tokens_comes_back(vocabulary: Vocabulary) -> None:
    text = "".join(chr(0x4E00 + i) for i in range(3000))
    token_ids = vocabulary.encode(text, parse_special=False)
    assert len(token_ids) == 9000
    assert _printed(vocabulary, token_ids) == text.encode()


def test_no_text_is_no_token(vocabulary: Vocabulary) -> None:
    assert vocabulary.encode("", parse_special=True) == []


def test_ends(vocabulary: Vocabulary) -> None:
    """End of sequence and end of turn."""
    assert vocabulary.size == 512
    assert [token for token in range(512) if vocabulary.is_end(token)] == [EOS, END]
    assert vocabulary.end_ids == (EOS, END)


def test_spellings_of_control_tokens(vocabulary: Vocabulary) -> None:
    assert set(vocabulary.control_texts) == {
        "<unk>",
        "<s>",
        "</s>",
        "<|im_start|>",
        "<|im_end|>",
        "<|mask|>",
    }
    assert vocabulary.bos_text == "<s>"
    assert vocabulary.eos_text == "</s>"


def test_one_beginning_of_sequence_is_added_where_there_is_none(vocabulary: Vocabulary) -> None:
    assert vocabulary.with_bos([]) == [BOS]
    assert vocabulary.with_bos([100, BOS]) == [BOS, 100, BOS]
    assert vocabulary.with_bos([BOS, 100]) == [BOS, 100]


def test_a_model_that_wants_no_beginning_of_sequence_gets_none(
    vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NativeModel, "add_bos", False)
    assert vocabulary.with_bos([100]) == [100]


def test_a_model_without_special_tokens(
    vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NativeModel, "bos", -1)
    monkeypatch.setattr(NativeModel, "eos", -1)
    assert vocabulary.with_bos([100]) == [100]
    assert (vocabulary.bos_text, vocabulary.eos_text) == ("", "")
