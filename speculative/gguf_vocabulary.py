"""The vocabulary in a GGUF file, with llama.cpp's own defaults for what the file leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from outrider.speculative.errors import InputError
from outrider.speculative.gguf_file import GgufFile
from outrider.speculative.gguf_header import GgufArray

_TOKENS = "tokenizer.ggml.tokens"
_TYPES = "tokenizer.ggml.token_type"
NORMAL, USER_DEFINED, BYTE = 1, 4, 6  # of the token types in the file (llama.h)
_SPECIAL_KEYS = {"bos": "bos", "eos": "eos", "eot": "eot", "pad": "padding"}


@dataclass(frozen=True, slots=True)
class _Defaults:
    kind: str
    add_bos: bool = False
    add_eos: bool = False
    special: Mapping[str, int] = field(default_factory=dict)


_BY_TOKENIZER = {
    "llama": _Defaults("SPM", add_bos=True, special={"bos": 1, "eos": 2}),
    "gpt2": _Defaults("BPE", special={"bos": 11, "eos": 11}),
    "hybriddna": _Defaults("BPE", special={"bos": 11, "eos": 11}),
    "whitespace": _Defaults("BPE", special={"bos": 11, "eos": 11}),
    "gemma4": _Defaults("BPE", add_bos=True),
    "bert": _Defaults("WPM", add_bos=True, special={"bos": 101, "pad": 0}),
    "t5": _Defaults("UGM", add_eos=True, special={"eos": 1, "pad": 0}),
    "rwkv": _Defaults("RWKV"),
    "plamo2": _Defaults("PLaMo-2", special={"bos": 1, "eos": 2, "pad": 3}),
    "test": _Defaults("test"),
    "none": _Defaults("none"),
    "no_vocab": _Defaults("none"),
}
_BPE_WITH_BOS = """
llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano tekken chameleon
"""
_BPE_WITHOUT_BOS = frozenset({"chatglm-bpe", "glm4", "glm5"})
# Looked for, in this order, where the file names no end-of-turn token.
END_OF_TURN_TEXTS = tuple(
    text.encode()
    for text in (
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "<｜end▁of▁sentence｜>",
        "<end_of_utterance>",
    )
)


@dataclass(frozen=True, slots=True)
class GgufVocabulary:
    """What llama.cpp will make of the tokenizer metadata."""

    kind: str
    tokenizer: str
    pre_tokenizer: str | None
    num_tokens: int
    add_bos: bool
    add_eos: bool
    special: Mapping[str, int | None]
    _tokens: GgufArray | None = field(repr=False, default=None)
    _types: GgufArray | None = field(repr=False, default=None)

    @property
    def bos(self) -> int | None:
        return self.special["bos"]

    @property
    def eos(self) -> int | None:
        return self.special["eos"]

    def texts(self) -> list[bytes]:
        """The text of every token, by id."""
        return self._tokens.strings() if self._tokens else []

    @property
    def types_fit(self) -> bool:
        """False if there are token types, but not one for each token: llama.cpp would not see."""
        types = self._types
        return types is None or (not types.is_text and len(types) == self.num_tokens)

    def types(self) -> list[int]:
        """The type of every token, by id."""
        assert self.types_fit, "a file with other types is refused"
        if self._types is None:
            return [NORMAL] * self.num_tokens
        return [int(number) for number in self._types.numbers()]

    def same_texts(self, other: GgufVocabulary) -> bool:
        """Whether both have exactly the same tokens, without decoding any."""
        if self._tokens is None or other._tokens is None:
            return self._tokens is other._tokens
        return self._tokens.raw() == other._tokens.raw()

    @classmethod
    def read(cls, file: GgufFile) -> GgufVocabulary | None:
        """The vocabulary of ``file``, None if it has no tokenizer."""
        tokenizer = file.text("tokenizer.ggml.model")
        if tokenizer is None:
            return None
        defaults = _BY_TOKENIZER.get(tokenizer)
        if defaults is None:
            raise InputError(
                f"{file.path}: the tokenizer {tokenizer!r} is unknown to the llama.cpp in use;"
                f" known are {', '.join(sorted(_BY_TOKENIZER))}"
            )
        tokens = file.text_array(_TOKENS)
        if tokens is None and defaults.kind != "none":
            raise InputError(f"{file.path}: it has no token list; convert it again")
        return _assemble(file, tokenizer, defaults, tokens)


def _assemble(
    file: GgufFile, tokenizer: str, defaults: _Defaults, tokens: GgufArray | None
) -> GgufVocabulary:
    pre = file.text("tokenizer.ggml.pre")
    add_bos = defaults.add_bos or (defaults.kind == "BPE" and pre in _BPE_WITH_BOS.split())
    if tokenizer != "gemma4":
        add_bos = _or_else(file.flag("tokenizer.ggml.add_bos_token"), add_bos)
    size = len(tokens) if tokens else 0
    return GgufVocabulary(
        kind=defaults.kind,
        tokenizer=tokenizer,
        pre_tokenizer=pre,
        num_tokens=size,
        add_bos=add_bos,
        add_eos=_or_else(file.flag("tokenizer.ggml.add_eos_token"), defaults.add_eos),
        special=_special_tokens(file, defaults, pre, size),
        _tokens=tokens,
        _types=file.array(_TYPES),
    )


def _or_else(value: bool | None, default: bool) -> bool:
    return default if value is None else value


def _special_tokens(
    file: GgufFile, defaults: _Defaults, pre: str | None, size: int
) -> dict[str, int | None]:
    """An id outside the vocabulary does not count, in the file or as a default."""
    special: dict[str, int | None] = {}
    for name, key in _SPECIAL_KEYS.items():
        token_id = file.integer(f"tokenizer.ggml.{key}_token_id")
        if token_id is None or not 0 <= token_id < size:
            token_id = defaults.special.get(name)
            if name == "bos" and pre in _BPE_WITHOUT_BOS:
                token_id = None
        special[name] = token_id if token_id is not None and token_id < size else None
    return special
