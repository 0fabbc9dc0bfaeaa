"""GrammarVocabulary: what llguidance must know of a model's tokens, made while it loads."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.speculative.gguf_file import GgufFile
from outrider.speculative.gguf_vocabulary import (
    BYTE,
    END_OF_TURN_TEXTS,
    NORMAL,
    USER_DEFINED,
    GgufVocabulary,
)

if TYPE_CHECKING:
    from llguidance import LLTokenizer

_MARK = b"\xff"  # llguidance: the token prints nothing, its name follows
_SPACE = "▁".encode()
# What llama.cpp most often takes for an end of generation besides; a wrong guess costs time only.
_END_TEXTS = frozenset(
    {
        *END_OF_TURN_TEXTS,
        *(b"</s>", b"<eos>", b"<|eom_id|>", b"<|return|>", b"<|call|>", b"<|tool_response>"),
        *(b"<|fim_pad|>", b"<fim_pad>", b"<|repo_name|>", b"<|file_sep|>", b"<reponame>"),
    }
)
# BPE vocabularies that spell their spaces as SPM does (llama-vocab.cpp)
_SPACED_BPE = frozenset({"gemma4", "granite-embed-multi-311m", "sarvam-moe"})


class GrammarVocabulary:
    """Reads the tokens of a GGUF file in a thread; the model then corrects what it must."""

    def __init__(self, path: Path) -> None:
        executor = ThreadPoolExecutor(1, thread_name_prefix="grammar-vocabulary")
        self._table = executor.submit(_Table.read, path)
        executor.shutdown(wait=False)

    def tokenizer(
        self,
        encode: Callable[[bytes], list[int]],
        end_ids: Sequence[int],
        fallback: Callable[[int], bytes],
    ) -> LLTokenizer:
        """Wait for the thread and return the tokenizer.

        ``encode`` is the model's own, for text without special tokens; ``fallback`` gives the
        bytes a token prints, and is asked where the file alone does not tell.

        Raises:
            InputError: the file cannot be read.
        """
        table = self._table.result()
        wrong = {id_: piece for id_ in table.unsure if (piece := fallback(id_)) != table[id_]}
        if wrong or table.tokenizer is None or table.end_ids != sorted(end_ids):
            table.correct(wrong, sorted(end_ids))
        assert table.tokenizer is not None
        table.encoder.bind(encode, table.pieces)
        return table.tokenizer


class _Encoder:
    """The callable that llguidance encodes with; it is made before the model can do it."""

    bos_token_id = None
    eos_token_id = 0  # the list given beside it counts

    def __init__(self, tokens: list[bytes]) -> None:
        self.tokens = tokens
        self._encode: Callable[[bytes], list[int]] = lambda _text: []
        self._before = b""
        self._num_before = 0

    def bind(self, encode: Callable[[bytes], list[int]], pieces: Sequence[bytes]) -> None:
        self._encode = encode
        if b"".join(pieces[id_] for id_ in encode(b"a")) != b"a":
            # the tokenizer puts a space before a text: give it another beginning
            self._before = b"\n"
            self._num_before = len(encode(self._before))

    def __call__(self, text: bytes) -> list[int]:
        return self._encode(self._before + text)[self._num_before :]


@dataclass(slots=True)
class _Table:
    """What every token prints as far as the file tells, and the tokenizer made from it."""

    texts: list[bytes]
    pieces: list[bytes]
    unsure: Sequence[int]
    end_ids: list[int]
    encoder: _Encoder
    tokenizer: LLTokenizer | None = None

    def __getitem__(self, token_id: int) -> bytes:
        return self.pieces[token_id]

    @classmethod
    def read(cls, path: Path) -> _Table:
        vocabulary = GgufVocabulary.read(GgufFile.open(path))
        texts = vocabulary.texts() if vocabulary else []
        read = _bulk_reader(vocabulary) if vocabulary else None
        if vocabulary is None or read is None:
            return cls(texts, [b""] * len(texts), range(len(texts)), [], _Encoder([]))
        types = vocabulary.types()
        pieces = list(map(read, texts, types))
        unsure = [
            id_
            for id_, (text, kind, piece) in enumerate(zip(texts, types, pieces, strict=True))
            if kind != NORMAL or not piece or text.startswith((b"<", b"[", b"_<", _SPACE + b"<"))
        ]
        by_text = {id_: b"" for id_ in unsure if texts[id_] in _END_TEXTS}
        named = {id_ for name in ("eos", "eot") if (id_ := vocabulary.special[name]) is not None}
        table = cls(texts, pieces, unsure, [], _Encoder([]))
        table.correct(by_text, sorted(named.union(by_text)))
        return table

    def correct(self, pieces: dict[int, bytes], end_ids: list[int]) -> None:
        from llguidance import LLTokenizer
        from llguidance._tokenizer import TokenizerWrapper

        for id_, piece in pieces.items():
            self.pieces[id_] = piece
        self.end_ids = end_ids
        self.encoder = _Encoder(
            [piece or (_MARK + text) for piece, text in zip(self.pieces, self.texts, strict=True)]
        )
        self.tokenizer = LLTokenizer(TokenizerWrapper(self.encoder), eos_token=end_ids)


def _bulk_reader(vocabulary: GgufVocabulary) -> Callable[[bytes, int], bytes] | None:
    """A function of (text, type) that gives the bytes; None if this tokenizer has none."""
    if vocabulary.tokenizer == "llama":
        return _spaced
    if vocabulary.tokenizer == "gpt2":
        return _spaced if vocabulary.pre_tokenizer in _SPACED_BPE else _byte_level
    return None


def _spaced(text: bytes, kind: int) -> bytes:
    if kind == NORMAL:
        return text.replace(_SPACE, b" ")
    if kind == BYTE:
        return bytes.fromhex(text[3:5].decode("ascii"))
    return text if kind == USER_DEFINED else b""


def _byte_level(text: bytes, kind: int) -> bytes:
    if kind != NORMAL:
        return text if kind == USER_DEFINED else b""
    try:
        return codecs.charmap_encode(text.decode(), "strict", _BYTE_MAP)[0]
    except UnicodeError:
        return b""  # llama.cpp makes something up


def _byte_characters() -> str:
    """The character that byte-level BPE writes for each byte, by byte."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return "".join(chr(byte if byte in printable else next(others)) for byte in range(0x100))


_BYTE_MAP = codecs.charmap_build(_byte_characters())
