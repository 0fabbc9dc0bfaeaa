"""TokenLaw: all that decides which law an answer's next token is drawn from."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.constraint import Constraint, TokenMask
from outrider.speculative.distribution import Distribution
from outrider.speculative.dry import DryBreakers, is_dry_on
from outrider.speculative.errors import EngineError
from outrider.speculative.mirostat import Mirostat
from outrider.speculative.reasoning import ReasoningTracker
from outrider.speculative.sampler import Sampler
from outrider.speculative.settings import (
    GenerationSettings,
    GrammarSettings,
    SamplingSettings,
)
from outrider.speculative.tokenizer import Tokenizer, printed_pieces
from outrider.speculative.uniforms import Coins

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]


class TokenLaw:
    """The chain, and around it what depends on the answer so far.

    One law for every position and every rule of verification: a token that the reasoning budget
    forces has all the mass; else it is the chain's law given what the grammar allows, and if
    nothing of that is allowed, the law of the chain on the masked row. (llama.cpp draws twice:
    from the chain, and if that token is not allowed, from the chain on the masked row.)

    The chain is a function of the row, the tokens before it and uniforms addressed by position.
    Three states follow the emitted tokens: mirostat's ``mu``, the place in the grammar and the
    progress of the reasoning. Blocks and drafts walk on copies of them.
    """

    def __init__(
        self,
        sampler: Sampler,
        *,
        mirostat: Mirostat | None = None,
        constraint: Constraint | None = None,
        reasoning: ReasoningTracker | None = None,
        end_ids: Sequence[int] = (),
    ) -> None:
        self.end_ids = np.array(end_ids, np.int64)
        self.sampler = sampler
        self.mirostat = mirostat
        self.mu = mirostat.first_mu if mirostat else 0.0
        self.constraint = constraint
        self.progress = Progress(reasoning)
        self.is_plain = not (mirostat or constraint or reasoning)
        """True if there is nothing but the chain: no state follows the tokens."""

    @property
    def is_greedy(self) -> bool:
        """True if every law is a point mass."""
        return self.sampler.is_greedy

    @property
    def is_adaptive(self) -> bool:
        """True if a law depends on how likely the tokens before it were: only ``match`` works."""
        return self.mirostat is not None

    @property
    def is_forced(self) -> bool:
        """True while the reasoning budget dictates the next token."""
        return not self.is_plain and self.progress.forced is not None

    @property
    def is_complete(self) -> bool:
        """True if the grammar allows nothing but an end token."""
        return (
            self.constraint is not None
            and self.progress.is_answering
            and self.constraint.is_complete
        )

    def block(self, rows: F32, tokens: I32, draft: Sequence[int], coins: Coins) -> BlockLaw:
        """The laws along a block.

        Args:
            rows: raw logits [1 + k, vocab].
            tokens: all committed tokens.
            draft: the k draft tokens.
            coins: the uniforms of the tokens that the block emits.
        """
        if not self.is_plain:
            self._rewind()
        return BlockLaw(self, rows, tokens, draft, coins)

    def draft(self, coins: Coins) -> DraftLaw:
        """The same chain for a drafter's rows, walked along its draft."""
        self._rewind()
        return DraftLaw(self, coins)

    def num_valid(self, draft: Sequence[int]) -> int:
        """How many tokens of a deterministic draft the grammar lets stand."""
        self._rewind()
        if self.constraint is None or not self.progress.is_answering:
            return len(draft)
        return self.constraint.num_valid(draft)

    def advance(self, token_id: int, law: Distribution) -> None:
        """Follow an emitted token, which was drawn from ``law``; nothing to do if it is plain.

        Raises:
            EngineError: the grammar does not allow it.
        """
        if self.mirostat is not None:
            self.mu = self.mirostat.next_mu(self.mu, law, token_id)
        token_ids, text = self.progress.push(token_id)
        if self.constraint is not None:
            self.constraint.advance(token_ids, text)

    def chain(self, history: I32, mu: float, coin: float) -> Callable[[F32], Distribution]:
        """The law on a row, without what the answer so far allows."""
        mirostat, sampler = self.mirostat, self.sampler
        if mirostat is not None:
            return lambda row: mirostat.distribution(row, mu)
        return lambda row: sampler.distribution(row, history, coin)

    def _rewind(self) -> None:
        if self.constraint is not None:
            self.constraint.rewind()


class BlockLaw:
    """The law at each position of a block, given that the draft tokens before it stand.

    Asked in order. :attr:`laws` are those that were asked for, :attr:`rows` the raw logits.
    """

    def __init__(
        self, whole: TokenLaw, rows: F32, tokens: I32, draft: Sequence[int], coins: Coins
    ) -> None:
        self.rows = rows
        self.laws: list[Distribution] = []
        self._whole = whole
        self._tokens = tokens
        self._draft = draft
        self._coins = coins
        if whole.is_plain:
            return
        self._mu = whole.mu
        self._progress = whole.progress.copy()
        self._masks: list[TokenMask] = []  # from the first position of the answer on
        self._first_mask = 0

    def __call__(self, position: int) -> Distribution:
        assert position == len(self.laws), "positions are asked for in order"
        whole, row = self._whole, self.rows[position]
        sampler, history, coin = whole.sampler, self._tokens, 1.0
        if sampler.history_length:
            history = _history(history, self._draft[:position], sampler.history_length)
        if sampler.uses_coin:
            coin = self._coins.chain(position)
        if whole.is_plain:
            law = sampler.distribution(row, history, coin)
        else:
            if position:
                self._follow(self._draft[position - 1])
            law = self._law(position, row, whole.chain(history, self._mu, coin))
        self.laws.append(law)
        return law

    def _follow(self, token_id: int) -> None:
        whole = self._whole
        if whole.mirostat is not None:
            self._mu = whole.mirostat.next_mu(self._mu, self.laws[-1], token_id)
        token_ids, text = self._progress.push(token_id)
        if whole.constraint is not None and not self._masks:
            whole.constraint.push_all(token_ids, text)

    def _law(self, position: int, row: F32, chain: Callable[[F32], Distribution]) -> Distribution:
        forced = self._progress.forced
        if forced is not None:
            return Distribution.point(forced)
        return _given(self._mask(position), row, chain, self._whole.end_ids)

    def _mask(self, position: int) -> TokenMask | None:
        constraint = self._whole.constraint
        if constraint is None or not self._progress.is_answering:
            return self._progress.mask(constraint)
        if not self._masks:
            self._first_mask = position
            self._masks = constraint.masks(self._draft[position:])
        return self._masks[position - self._first_mask]


class DraftLaw:
    """The target's chain on the rows of a drafter, which walks on token by token."""

    def __init__(self, whole: TokenLaw, coins: Coins) -> None:
        self._whole = whole
        self._coins = coins
        self._offset = 0
        self._progress = whole.progress.copy()
        self._is_lost = False  # beyond a token that the grammar forbids

    def distribution(self, row: F32, history: I32) -> Distribution | None:
        """The law of the next draft token; None if nothing can follow."""
        whole = self._whole
        coin = self._coins.chain(self._offset) if whole.sampler.uses_coin else 1.0
        return self._law(row, whole.chain(history, whole.mu, coin))

    def argmax(self, row: F32, history: I32) -> int | None:
        """The best token; None if nothing can follow."""
        sampler = self._whole.sampler
        law = self._law(row, lambda r: Distribution.point(sampler.argmax(r, history)))
        return None if law is None else law.mode

    def forced(self, most: int) -> list[int]:
        """Up to ``most`` tokens that the grammar dictates next."""
        constraint = self._whole.constraint
        return constraint.forced(most) if constraint and self._progress.is_answering else []

    def push(self, token_id: int) -> None:
        """Go on after ``token_id``."""
        self._offset += 1
        token_ids, text = self._progress.push(token_id)
        constraint = self._whole.constraint
        if constraint is not None and not constraint.push_all(token_ids, text):
            self._is_lost = True

    def _law(self, row: F32, chain: Callable[[F32], Distribution]) -> Distribution | None:
        if self._is_lost:
            return None
        forced = self._progress.forced
        if forced is not None:
            return Distribution.point(forced)
        mask = self._progress.mask(self._whole.constraint)
        if mask is not None and not mask.dense(len(row)).any():
            return None
        return _given(mask, row, chain, self._whole.end_ids)


@dataclass(slots=True)
class Progress:
    """How far an answer is: thinking, answering, or nobody knows yet.

    ``undecided`` are the tokens so far that may become the start tag or belong to the answer.
    """

    reasoning: ReasoningTracker | None
    undecided: tuple[int, ...] = ()

    @property
    def is_answering(self) -> bool:
        return self.reasoning is None or self.reasoning.is_over

    @property
    def forced(self) -> int | None:
        """The token that the reasoning budget dictates."""
        return None if self.reasoning is None else self.reasoning.forced

    def copy(self) -> Progress:
        return Progress(self.reasoning and self.reasoning.copy(), self.undecided)

    def push(self, token_id: int) -> tuple[tuple[int, ...], bytes]:
        """Go on after ``token_id``; return the tokens and the text that the grammar reads now."""
        reasoning = self.reasoning
        if reasoning is None or reasoning.is_over:
            return (token_id,), b""
        was_thinking, before = reasoning.is_thinking, (*self.undecided, token_id)
        reasoning.push(token_id)
        self.undecided = () if reasoning.is_thinking or reasoning.is_over else before
        if not reasoning.is_over:
            return (), b""
        return ((), reasoning.rest) if was_thinking else (before, b"")

    def mask(self, constraint: Constraint | None) -> TokenMask | None:
        """What may follow; None for anything."""
        reasoning = self.reasoning
        if constraint is None:
            return None
        if reasoning is None or reasoning.is_over:
            return constraint.masks()[0]
        if reasoning.is_thinking:
            return constraint.mask_before(reasoning.end, reasoning.num_ending)
        mask = constraint.mask_after(self.undecided)
        opening = reasoning.opening
        return mask if opening is None else mask.including(opening)


def token_law(
    settings: GenerationSettings,
    tokenizer: Tokenizer,
    constrain: Callable[[GrammarSettings], Constraint] | None = None,
) -> TokenLaw:
    """The law of one answer.

    Raises:
        InputError: the grammar is broken.
    """
    sampling = _with_bans(settings.sampling, tokenizer)
    constraint = reasoning = breakers = None
    if is_dry_on(sampling):
        breakers = _breakers(tokenizer, sampling.dry_sequence_breakers)
    if settings.grammar is not None:
        assert constrain is not None, "whoever sets a grammar has a vocabulary for it"
        constraint = constrain(settings.grammar)
    if settings.reasoning is not None and (constraint or settings.reasoning.budget >= 0):
        reasoning = ReasoningTracker(
            settings.reasoning,
            printed_pieces(tokenizer, settings.reasoning),
            lambda text: tokenizer.encode(text, parse_special=True),
        )
    return TokenLaw(
        Sampler(sampling, breakers),
        mirostat=Mirostat(sampling) if sampling.mirostat else None,
        constraint=constraint,
        reasoning=reasoning,
        end_ids=tokenizer.end_ids if constraint else (),
    )


@functools.lru_cache(maxsize=4)
def _breakers(tokenizer: Tokenizer, texts: tuple[str, ...]) -> DryBreakers:
    """Remembered: it looks at every token of the vocabulary."""
    return DryBreakers.find(
        texts,
        tokenizer.size,
        tokenizer.written,
        lambda text: tokenizer.encode_bytes(text.encode("utf-8", "surrogateescape")),
    )


def _with_bans(sampling: SamplingSettings, tokenizer: Tokenizer) -> SamplingSettings:
    """Tokens that are never drawn: those the model's file names, with ``ignore_eos`` end tokens.

    (llama.cpp: the logit bias, common/sampling.cpp.)
    """
    banned = (*tokenizer.suppressed_ids, *(tokenizer.end_ids if sampling.ignore_eos else ()))
    if not banned:
        return sampling
    bias = dict(sampling.logit_bias) | dict.fromkeys(banned, -math.inf)
    return replace(sampling, logit_bias=bias)


def _given(
    mask: TokenMask | None, row: F32, chain: Callable[[F32], Distribution], end_ids: I64
) -> Distribution:
    """The chain's law given the allowed tokens, or its law on the masked row."""
    law = chain(row)
    if mask is None:
        return law
    kept = law.given(mask.allows(law.token_ids))
    if kept is not None:
        return kept
    allowed = mask.dense(len(row))
    allowed[end_ids] = False
    if not allowed.any() and mask.allows(end_ids).any():
        return Distribution.point(int(end_ids[0]))  # the text is complete, even if ends are banned
    allowed[end_ids] = mask.allows(end_ids)
    if not allowed.any():
        raise EngineError("the grammar allows no token here")
    return chain(np.where(allowed, row, np.float32(-np.inf)))


def _history(tokens: I32, draft: Sequence[int], length: int) -> I32:
    """The last ``length`` committed tokens and the draft tokens after them."""
    return np.concatenate((tokens[-length:], np.asarray(draft, np.int32)))
