"""Identity: whether two sides write the same text at temperature 0, and if not, why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.batch_outputs import F32, Block
from outrider.speculative.law import TokenLaw, token_law
from outrider.speculative.llama_runner import LlamaRunner
from outrider.speculative.model import Model
from outrider.speculative.settings import GenerationSettings, ModelSettings
from outrider.speculative.uniforms import Coins, Uniforms

MAX_GAP = 0.5
"""Logits of one text differ by up to this with the size of the batches (docs: ties)."""

_PRECISION = 1e-4
_CHUNK = 512

Tokens = Sequence[int]


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two texts part: ``prompt`` and ``token`` count from 1.

    ``gap`` is how far a logit must rise at most for both tokens to be plain decoding's choice,
    None for a fault: further than :data:`MAX_GAP`, or one of the texts ends.
    """

    prompt: int
    token: int
    gap: float | None

    @property
    def kind(self) -> Literal["tie", "FAULT"]:
        return "FAULT" if self.gap is None else "tie"


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt as it was asked, and every text that each side answered."""

    prompt_ids: Tokens
    settings: GenerationSettings
    texts: Mapping[str, Sequence[Tokens]]


@dataclass(frozen=True, slots=True)
class Identity:
    """The texts of ``sides`` over all prompts: how many are the same, and what is not."""

    sides: tuple[str, str]
    num_equal: int
    num_prompts: int
    differences: tuple[Difference, ...]


class Plain:
    """The target without drafters in a context of its own, one token at a time."""

    def __init__(self, settings: ModelSettings) -> None:
        self._model = Model(settings, "target")
        n_ctx = settings.ctx_size or self._model.n_ctx_train
        self._runner = LlamaRunner(self._model, settings, n_ctx=n_ctx)

    def __enter__(self) -> Plain:
        return self

    def __exit__(self, *exception: object) -> None:
        self._runner.close()
        self._model.close()

    def answer(self, prompt_ids: Tokens, settings: GenerationSettings) -> list[int]:
        """The text of plain decoding, as many tokens as the settings say."""
        walk = self._walk(prompt_ids, settings)
        room = self._runner.n_ctx - len(prompt_ids)
        while len(walk.emitted) < min(settings.predict, room):
            token = walk.choice()
            if token in self._model.vocabulary.end_ids:
                break
            walk.push(token)
        return walk.emitted

    def gap(
        self, prompt_ids: Tokens, settings: GenerationSettings, before: Tokens, tokens: Tokens
    ) -> float | None:
        """How far from plain's choice after ``before`` the furthest of ``tokens`` is.

        None if that is more than :data:`MAX_GAP`.
        """
        walk = self._walk(prompt_ids, settings)
        for token in before:
            walk.push(token)
        gaps = [walk.gap(token) for token in tokens]
        return None if None in gaps else max(gap for gap in gaps if gap is not None)

    def _walk(self, prompt_ids: Tokens, settings: GenerationSettings) -> _Walk:
        self._runner.truncate(0, 0)
        return _Walk(self._runner, prompt_ids, token_law(settings, self._model.vocabulary))


class _Walk:
    """Plain decoding along a text: the row after it and the law of the next token."""

    def __init__(self, runner: LlamaRunner, prompt_ids: Tokens, law: TokenLaw) -> None:
        self._runner = runner
        self._law = law
        self._tokens: NDArray[np.int32] = np.array(prompt_ids, np.int32)
        self._num_prompt = len(prompt_ids)
        self._uniforms = Uniforms(0)  # at temperature 0 no coin counts
        chunk = min(_CHUNK, runner.n_batch)
        for start in range(0, len(prompt_ids), chunk):
            self._row = self._decode(self._tokens[start : start + chunk], start)

    @property
    def emitted(self) -> list[int]:
        return [int(token) for token in self._tokens[self._num_prompt :]]

    def choice(self) -> int:
        return self._choice(self._row)

    def gap(self, token: int) -> float | None:
        """How far the logit of ``token`` must rise for it to be the choice."""
        if self._rises(token, 0.0):
            return 0.0
        low, high = 0.0, MAX_GAP
        if not self._rises(token, high):
            return None
        while high - low > _PRECISION:
            middle = (low + high) / 2
            low, high = (low, middle) if self._rises(token, middle) else (middle, high)
        return high

    def push(self, token: int) -> None:
        law = self._law.block(self._row[None], self._tokens, (), self._coins())(0)
        self._law.advance(token, law)
        self._tokens = np.append(self._tokens, np.int32(token))
        self._row = self._decode(self._tokens[-1:], len(self._tokens) - 1)

    def _rises(self, token: int, gap: float) -> bool:
        row = self._row.copy()
        row[token] += gap
        return self._choice(row) == token

    def _choice(self, row: F32) -> int:
        return self._law.block(row[None], self._tokens, (), self._coins())(0).mode

    def _coins(self) -> Coins:
        return Coins(self._uniforms, len(self._tokens) - self._num_prompt)

    def _decode(self, tokens: NDArray[np.int32], start: int) -> F32:
        block = Block(0, tokens, start, 1)
        row: F32 = self._runner.decode([block]).logits(block)[0].copy()
        return row


def check_identity(
    asked: Sequence[Asked], target: ModelSettings, *, with_plain: bool
) -> list[Identity]:
    """A against B; ``with_plain``, for a side A that speculates, plain decoding against both."""
    if not with_plain and all(first_difference(each, "A", "B") is None for each in asked):
        return [Identity(("A", "B"), len(asked), len(asked), ())]
    sides = [("A", "B")]
    with Plain(target) as plain:
        if with_plain:
            asked = [_with_plain(each, plain) for each in asked]
            sides += [("plain", "A"), ("plain", "B")]
        return [_compare(asked, pair, plain) for pair in sides]


def _with_plain(asked: Asked, plain: Plain) -> Asked:
    text = plain.answer(asked.prompt_ids, asked.settings)
    return replace(asked, texts={**asked.texts, "plain": [text]})


def first_difference(asked: Asked, ours: str, theirs: str) -> tuple[int, Tokens, Tokens] | None:
    """The earliest place where a text of one side leaves the other's: index and both texts."""
    found = [
        (index, one, other)
        for one in asked.texts[ours]
        for other in asked.texts[theirs]
        if (index := _parting(one, other)) is not None
    ]
    return min(found, key=lambda each: each[0], default=None)


def _parting(one: Tokens, other: Tokens) -> int | None:
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return None if len(one) == len(other) else min(len(one), len(other))


def _compare(asked: Sequence[Asked], sides: tuple[str, str], plain: Plain) -> Identity:
    differences = []
    for number, each in enumerate(asked, 1):
        found = first_difference(each, *sides)
        if found is not None:
            index, *texts = found
            gap = None
            if all(len(text) > index for text in texts):
                nexts = [text[index] for text in texts]
                gap = plain.gap(each.prompt_ids, each.settings, texts[0][:index], nexts)
            differences.append(Difference(number, index + 1, gap))
    return Identity(sides, len(asked) - len(differences), len(asked), tuple(differences))
