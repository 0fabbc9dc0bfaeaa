"""Is the first difference from plain decoding a tie? (docs: identity and ties)

From 512 cached cells on, the logits of one row and of several rows are not bit-identical.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tools.processor import is_recording_processor
from tools.replay import Answer
from tools.witness import fresh_runner

from outrider.speculative.batch_outputs import Block
from outrider.speculative.distribution import Distribution
from outrider.speculative.engine import Engine
from outrider.speculative.events import GenerationResult
from outrider.speculative.law import TokenLaw, token_law
from outrider.speculative.runner import Runner
from outrider.speculative.settings import GenerationSettings
from outrider.speculative.uniforms import Coins, Uniforms

F32 = NDArray[np.float32]

MAX_GAP = 0.5
# of the uniform from an edge; further where sums are less exact
MAX_DISTANCE = 0.01 if is_recording_processor() else 0.03
_CHUNK = 512


@dataclass(frozen=True, slots=True)
class Tie:
    """Where two answers part, and how near the other token was for plain decoding.

    ``gap`` is in logits, or for a sampled answer the distance of the uniform from the nearest
    edge of the cumulative law.
    """

    index: int
    gap: float


def check_against_plain(
    plain: Answer, other: GenerationResult, runner: Runner, law: TokenLaw
) -> Tie | None:
    """Assert that ``other`` is plain's answer, or parts from it at a tie.

    Plain's row at the difference is computed again on ``runner``, a fresh one, one token at a
    time; ``law`` is that of plain's answer from its beginning.
    """
    ours, theirs = plain.result.token_ids, other.token_ids
    if ours == theirs:
        return None
    pairs = enumerate(zip(ours, theirs, strict=False))
    index = next((i for i, (a, b) in pairs if a != b), None)
    assert index is not None, f"one answer has {len(ours)} tokens, the other {len(theirs)}"
    laws = _Laws(plain, index, runner, law)
    if plain.settings.sampling.temp > 0:
        edges = np.concatenate(([0.0], laws.of(laws.row).probs.cumsum()))
        uniform = Uniforms(plain.result.seed).target(index)
        tie = Tie(index, float(np.abs(edges - uniform).min()))
        assert tie.gap <= MAX_DISTANCE, tie
        return tie
    gap = laws.gap(ours[index], theirs[index])
    assert gap is not None, f"token {index}: {ours[index]} and {theirs[index]} are no tie"
    return Tie(index, gap)


def check_same(
    plain: GenerationResult,
    other: GenerationResult,
    prompt_ids: Sequence[int],
    settings: GenerationSettings,
    engine: Engine,
) -> Tie | None:
    """The same with a context of ``engine``, which must be of the same target."""
    runner = fresh_runner(engine, 1)
    law = token_law(settings, engine._target.vocabulary, engine._constrain)
    try:
        return check_against_plain(Answer(prompt_ids, settings, plain), other, runner, law)
    finally:
        runner.close()


class _Laws:
    """The law of the token at ``index`` of plain's answer, and the row it comes from."""

    def __init__(self, plain: Answer, index: int, runner: Runner, law: TokenLaw) -> None:
        self._tokens = np.array([*plain.prompt_ids, *plain.result.token_ids[:index]], np.int32)
        self._coins = Coins(Uniforms(plain.result.seed), index)
        self._law = law
        self.row = self._plain_row(plain, runner)

    def gap(self, ours: int, theirs: int) -> float | None:
        """How far raw logits must move for the other token to be the best; None: too far."""
        low, high = 0.0, MAX_GAP
        if self._best_after(high, ours, theirs) != theirs:
            return None
        while high - low > 1e-7:
            middle = (low + high) / 2
            is_enough = self._best_after(middle, ours, theirs) == theirs
            low, high = (low, middle) if is_enough else (middle, high)
        return high

    def _best_after(self, gap: float, ours: int, theirs: int) -> int:
        row = self.row.copy()
        row[ours] -= gap / 2
        row[theirs] += gap / 2
        return self.of(row).mode

    def of(self, row: F32) -> Distribution:
        return self._law.block(row[None], self._tokens, (), self._coins)(0)

    def _plain_row(self, plain: Answer, runner: Runner) -> F32:
        num_prompt, uniforms = len(plain.prompt_ids), Uniforms(plain.result.seed)
        for start in range(0, num_prompt, _CHUNK):
            block = Block(0, self._tokens[start : min(start + _CHUNK, num_prompt)], start, 1)
            row: F32 = runner.decode([block]).logits(block)[0].copy()
        for position in range(num_prompt, len(self._tokens)):
            token, coins = int(self._tokens[position]), Coins(uniforms, position - num_prompt)
            law = self._law.block(row[None], self._tokens[:position], (), coins)(0)
            self._law.advance(token, law)
            block = Block(0, self._tokens[position : position + 1], position, 1)
            row = runner.decode([block]).logits(block)[0].copy()
        return row


def margins(result: GenerationResult, is_end: Callable[[int], bool]) -> list[float]:
    """By how much each token's logarithm of probability is above the next that may come.

    End tokens may not; the result has logprobs of more tokens than there are of those.
    """
    assert result.logprobs is not None
    rows = [[chance for id, chance in one.top if not is_end(id)] for one in result.logprobs]
    return [best - second for best, second, *_ in rows]
