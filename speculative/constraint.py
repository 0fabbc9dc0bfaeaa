"""Constraint: which tokens a grammar allows next, by llguidance."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.errors import EngineError
from outrider.speculative.grammar import compile_grammar, matcher_fault
from outrider.speculative.settings import GrammarSettings

if TYPE_CHECKING:
    from llguidance import LLExecutor, LLTokenizer

I64 = NDArray[np.int64]
U32 = NDArray[np.uint32]
Bools = NDArray[np.bool_]

_BITS = 32
_TOKEN_BYTES = 8  # more than most tokens have


class TokenMask:
    """A set of token ids, one bit each."""

    __slots__ = ("_words",)

    def __init__(self, words: U32) -> None:
        self._words = words

    def allows(self, token_ids: I64) -> Bools:
        """Which of ``token_ids`` [n] are in the set."""
        bits = self._words[token_ids // _BITS] >> (token_ids % _BITS).astype(np.uint32)
        return (bits & 1).astype(np.bool_)

    def dense(self, size: int) -> Bools:
        """The set as [size] booleans."""
        bits = np.unpackbits(self._words.view(np.uint8), count=size, bitorder="little")
        return bits.view(np.bool_)

    @classmethod
    def without(cls, token_ids: Sequence[int], num_words: int) -> TokenMask:
        """All tokens but a few."""
        words = np.full(num_words, 0xFFFFFFFF, np.uint32)
        for token_id in token_ids:
            words[token_id // _BITS] &= ~np.uint32(1 << token_id % _BITS)
        return cls(words)

    def including(self, token_id: int) -> TokenMask:
        """The set and one more token."""
        words = self._words.copy()
        words[token_id // _BITS] |= np.uint32(1 << token_id % _BITS)
        return TokenMask(words)


class Constraint:
    """Follows an answer through a grammar.

    :meth:`advance` commits a token; :meth:`push` walks on tentatively, along a draft, and
    :meth:`rewind` goes back to what was committed.
    """

    def __init__(self, tokenizer: LLTokenizer, grammar: GrammarSettings) -> None:
        """
        Raises:
            InputError: the grammar is broken, or this vocabulary lacks what it names.
        """
        from llguidance import LLMatcher

        self._matcher = LLMatcher(tokenizer, compile_grammar(grammar), log_level=0)
        if self._matcher.is_error():
            raise matcher_fault(grammar, self._matcher.get_error())
        self._tokenizer = tokenizer
        self._encode = tokenizer.tokenize_bytes
        self._end_ids = frozenset(tokenizer.eos_tokens)
        self._num_words = -(-tokenizer.vocab_size // _BITS)
        self._num_pushed = 0

    @property
    def is_complete(self) -> bool:
        """True if nothing but an end token may follow."""
        return self._matcher.is_stopped()

    def masks(self, draft: Sequence[int] = ()) -> list[TokenMask]:
        """What is allowed now and after each token of ``draft`` [1 + k], in one call.

        After a token that is not allowed the sets are empty.

        Raises:
            EngineError: the text became too complex for llguidance's limits.
        """
        words = np.zeros((1 + len(draft), self._num_words), np.uint32)
        if draft:
            _executor().unsafe_compute_mask_ptr_with_draft_token(
                [(self._matcher, 0, list(draft))], words.ctypes.data, words.strides[0], len(words)
            )
        else:
            self._matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        self._check()
        return [TokenMask(row) for row in words]

    def mask_after(self, token_ids: Sequence[int]) -> TokenMask:
        """What is allowed after ``token_ids``; nothing if they are not."""
        start = self._num_pushed
        fits = all(self.push(token_id) for token_id in token_ids)
        mask = self.masks()[0] if fits else TokenMask(np.zeros(self._num_words, np.uint32))
        self.rewind(start)
        return mask

    def mask_before(self, tag: bytes, num_come: int) -> TokenMask | None:
        """What may come in free text that ends with ``tag``, of which ``num_come`` bytes came.

        None for anything: only a token that ends the tag and goes on with text which the grammar
        forbids may not come.
        """
        forbidden = [
            token_id
            for token_id, rest in _tokens_beyond(self._tokenizer, tag, num_come)
            if not self._begins_with(rest)
        ]
        return TokenMask.without(forbidden, self._num_words) if forbidden else None

    def _begins_with(self, text: bytes) -> bool:
        start = self._num_pushed
        fits = self.push_all((), text)
        self.rewind(start)
        return fits

    def num_valid(self, draft: Sequence[int]) -> int:
        """How many tokens of ``draft`` may follow one another from here."""
        return self._matcher.validate_tokens(list(draft))

    def advance(self, token_ids: Sequence[int], text: bytes = b"") -> None:
        """Commit tokens, and text whose tokens are no part of the answer.

        Raises:
            EngineError: they do not match.
        """
        self.rewind()
        if not self.push_all(token_ids, text):
            raise EngineError("the answer does not match the grammar")
        self._num_pushed = 0

    def push(self, token_id: int) -> bool:
        """Walk on; False if the token is not allowed. Nothing comes after an end token."""
        if token_id in self._end_ids:  # the matcher would not take all of them back
            return False
        is_allowed = self._matcher.try_consume_tokens([token_id]) == 1
        self._num_pushed += is_allowed
        return is_allowed

    def push_all(self, token_ids: Sequence[int], text: bytes = b"") -> bool:
        """Walk over tokens and text; False if they do not match."""
        return all(map(self.push, (*token_ids, *self._encode(text))))

    def rewind(self, num_kept: int = 0) -> None:
        """Take back what was pushed, all but the first ``num_kept`` tokens."""
        if self._num_pushed > num_kept:
            self._matcher.rollback(self._num_pushed - num_kept)
            self._num_pushed = num_kept

    def forced(self, most: int) -> list[int]:
        """Up to ``most`` tokens of the text that must follow, as the model's tokenizer cuts it.

        JSON leaves the blanks between values open, so little of it must follow: what mostly
        does is added. That is a guess, as is the last token, which may be cut in another way.
        """
        start, text = self._num_pushed, b""
        while len(text) < most * _TOKEN_BYTES:
            part = self._matcher.compute_ff_bytes() or self._usual_after(text)
            part = part[: most * _TOKEN_BYTES]  # some grammars dictate without end
            text += part
            if not part or not self.push_all((), part):
                break
        self.rewind(start)
        return self._encode(text)[:most]

    def _usual_after(self, text: bytes) -> bytes:
        """What mostly follows a forced key or value; nothing inside a string."""
        if text.endswith(b'"') and self.num_valid(self._encode(b"\n")):  # no string holds it
            for usual in (b": ", b","):
                tokens = self._encode(usual)
                if self.num_valid(tokens) == len(tokens):
                    return usual
        return b""

    def _check(self) -> None:
        if self._matcher.is_error():
            reason = self._matcher.get_error().splitlines()[0]
            raise EngineError(f"the grammar cannot be followed further: {reason}")


@functools.lru_cache(maxsize=64)
def _tokens_beyond(
    tokenizer: LLTokenizer, tag: bytes, num_come: int
) -> tuple[tuple[int, bytes], ...]:
    """Tokens that end ``tag``, of which ``num_come`` bytes came, and the text they go on with."""
    found = []
    for token_id in range(tokenizer.vocab_size):
        text = tag[:num_come] + tokenizer.decode_bytes([token_id])
        rest = text.partition(tag)[2].lstrip(b"\r\n")  # line ends belong to nothing
        if rest:
            found.append((token_id, rest))
    return tuple(found)


@functools.cache
def _executor() -> LLExecutor:
    from llguidance import LLExecutor

    return LLExecutor(num_threads=1)
