"""The token table for llguidance against llama.cpp's own pieces."""

from __future__ import annotations

from pathlib import Path

import pytest
from llguidance import LLMatcher, LLTokenizer
from tools.gguf_edit import GgufEdit
from tools.gguf_writer import model, write

from outrider.speculative.errors import InputError
from outrider.speculative.grammar_vocabulary import GrammarVocabulary
from outrider.speculative.llama import NativeModel

ZOO = Path(__file__).parents[1] / "fixtures" / "zoo"
MODELS = sorted(ZOO.glob("target-*.gguf"))
TOKENS = "tokenizer.ggml.tokens"
TYPES = "tokenizer.ggml.token_type"
CONTROL, USER_DEFINED, UNUSED = 3, 4, 5


class Loaded:
    """A native model and the tokenizer made beside it."""

    def __init__(self, path: Path) -> None:
        vocabulary = GrammarVocabulary(path)
        native = NativeModel(path, 0, None)
        ids = range(native.vocab_size)
        self.pieces = [native.piece(id_) for id_ in ids]
        self.asked: list[int] = []
        self.ends = [id_ for id_ in ids if native.is_end(id_)]
        self.native = native
        self.tokenizer: LLTokenizer = vocabulary.tokenizer(self.encode, self.ends, self.piece)

    def encode(self, text: bytes) -> list[int]:
        return self.native.tokenize(text, parse_special=False)

    def piece(self, token_id: int) -> bytes:
        self.asked.append(token_id)
        return self.pieces[token_id]

    def check(self) -> None:
        for id_, piece in enumerate(self.pieces):
            if piece == b"\xff":
                continue  # llguidance's mark of special tokens; in no text that is UTF-8
            if piece:
                assert self.tokenizer.decode_bytes([id_]) == piece, id_
                assert not self.tokenizer.is_special_token(id_), id_
            else:
                assert self.tokenizer.is_special_token(id_), id_
        assert sorted(self.tokenizer.eos_tokens) == self.ends
        self.native.close()


def edited(path: Path, tokens: dict[int, str], types: dict[int, int]) -> Path:
    """target-llama with other tokens of other types."""
    from outrider.speculative.gguf_file import GgufFile
    from outrider.speculative.gguf_vocabulary import GgufVocabulary

    vocabulary = GgufVocabulary.read(GgufFile.open(ZOO / "target-llama.gguf"))
    assert vocabulary is not None
    texts = [text.decode() for text in vocabulary.texts()]
    kinds = vocabulary.types()
    for id_, text in tokens.items():
        texts[id_] = text
    for id_, kind in types.items():
        kinds[id_] = kind
    return GgufEdit(ZOO / "target-llama.gguf").set(TOKENS, texts).set(TYPES, kinds).write(path)


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_every_token_prints_what_llama_cpp_prints(path: Path) -> None:
    loaded = Loaded(path)
    loaded.check()
    assert len(loaded.asked) < 300  # the bulk is read from the file; 256 are byte tokens


def test_token_types(tmp_path: Path) -> None:
    loaded = Loaded(
        edited(
            tmp_path / "types.gguf",
            {300: "<think>", 301: "▁a▁b", 302: "<tool>", 303: "▁▁x", 304: "<|channel|>"},
            {300: USER_DEFINED, 301: USER_DEFINED, 302: CONTROL, 303: UNUSED, 304: CONTROL},
        )
    )
    assert loaded.pieces[300:305] == [b"<think>", "▁a▁b".encode(), b"", b"", b"<|channel|>"]
    loaded.check()


def test_tokens_that_llama_cpp_takes_for_others_by_their_text(tmp_path: Path) -> None:
    # normal in the file; llama.cpp makes them control tokens, two of them ends
    texts = {300: "<|fim_prefix|>", 301: "<PAD>", 302: "[EOS]", 303: "<b>"}
    loaded = Loaded(edited(tmp_path / "texts.gguf", texts, {}))
    assert {301, 302} < set(loaded.ends)
    assert loaded.pieces[300:304] == [b"", b"", b"", b"<b>"]
    loaded.check()


def test_byte_level_tokens(tmp_path: Path) -> None:
    texts = {270: "Ġword", 271: "Ċ", 272: "Ã©", 273: "raw space", 274: "ĠĠ", 275: "雨"}
    path = edited(tmp_path / "spm.gguf", texts, dict.fromkeys(range(6, 262), 1))
    path = (
        GgufEdit(path)
        .set("tokenizer.ggml.model", "gpt2")
        .set("tokenizer.ggml.pre", "gpt-2")
        .set("tokenizer.ggml.merges", ["Ġ w"])
        .write(tmp_path / "bpe.gguf")
    )
    loaded = Loaded(path)
    assert loaded.pieces[270:273] == [b" word", b"\n", "é".encode()]
    assert loaded.pieces[274] == b"  "
    assert {273, 275} <= set(loaded.asked)  # llama.cpp makes something up
    loaded.check()


def test_a_tokenizer_that_is_not_known_is_read_piece_by_piece(tmp_path: Path) -> None:
    tokens = ["<unk>", "</s>", "▁one", "two"]
    path = write(tmp_path / "t5.gguf", model(tokens, tokenizer__ggml__model="t5"))
    pieces = [b"", b"", b" one", b"two"]
    tokenizer = GrammarVocabulary(path).tokenizer(lambda _: [3], [1], pieces.__getitem__)
    assert tokenizer.decode_bytes([2, 3]) == b" onetwo"
    assert tokenizer.is_special_token(1)
    assert tokenizer.eos_tokens == [1]


def test_forced_tokens_are_those_of_the_model(tmp_path: Path) -> None:
    for path in (
        ZOO / "target-llama.gguf",
        GgufEdit(ZOO / "target-llama.gguf")
        .set("tokenizer.ggml.add_space_prefix", True)
        .write(tmp_path / "space.gguf"),
    ):
        loaded = Loaded(path)
        text = "there comes the assistant\n"
        grammar = LLMatcher.grammar_from_regex(text + "[xy]")
        forced = LLMatcher(loaded.tokenizer, grammar).compute_ff_tokens()
        plain = Loaded(ZOO / "target-llama.gguf")
        expected = plain.encode(text.encode())
        assert forced == expected[: len(forced)]
        assert len(forced) >= len(expected) - 2  # the last may grow with what follows
        plain.native.close()
        loaded.native.close()


def test_several_ends(tmp_path: Path) -> None:
    loaded = Loaded(ZOO / "target-llama.gguf")
    matcher = LLMatcher(loaded.tokenizer, LLMatcher.grammar_from_regex("a*"))
    mask = matcher.compute_bitmask()
    assert len(loaded.ends) == 2
    assert all(mask[id_ // 8] >> id_ % 8 & 1 for id_ in loaded.ends)
    loaded.native.close()


def test_faults_of_the_file_come_when_the_tokenizer_is_asked_for(tmp_path: Path) -> None:
    vocabulary = GrammarVocabulary(tmp_path / "none.gguf")
    with pytest.raises(InputError, match="no such file"):
        vocabulary.tokenizer(lambda _: [], [0], lambda _: b"")
