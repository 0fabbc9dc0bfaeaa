"""Grammars on a toy vocabulary."""

from __future__ import annotations

from collections.abc import Callable

from llguidance import LLTokenizer
from llguidance._tokenizer import TokenizerWrapper
from tools.toy_runner import ToyTokenizer

from outrider.speculative.constraint import Constraint
from outrider.speculative.settings import GrammarSettings


class _Vocabulary:
    """A toy tokenizer as llguidance wants it: end tokens print nothing."""

    bos_token_id = None

    def __init__(self, tokenizer: ToyTokenizer) -> None:
        self.eos_token_id = tokenizer.end_ids[0]
        self.tokens = [
            tokenizer.piece(i) or b"\xff" + tokenizer.text(i).encode()
            for i in range(tokenizer.size)
        ]
        self._tokenizer = tokenizer

    def __call__(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, parse_special=False)


def toy_constrain(tokenizer: ToyTokenizer) -> Callable[[GrammarSettings], Constraint]:
    """What :class:`outrider.speculative.engine.Engine` gives its sessions for grammars."""
    vocabulary = LLTokenizer(
        TokenizerWrapper(_Vocabulary(tokenizer)), eos_token=list(tokenizer.end_ids), slices=[]
    )
    return lambda grammar: Constraint(vocabulary, grammar)
