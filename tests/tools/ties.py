"""Is the first difference from plain decoding a tie? (docs: identity and ties)

From 512 cached cells on, the logits of one row and of several rows are not bit-identical.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tools.replay import Answer
from tools.witness import fresh_runner

from outrider.speculative.batch_outputs import Block
from outrider.speculative.engine import Engine
from outrider.speculative.events import GenerationResult
from outrider.speculative.runner import Runner
from outrider.speculative.sampler import Sampler
from outrider.speculative.settings import GenerationSettings
from outrider.speculative.uniforms import Uniforms

MAX_GAP = 0.5
MAX_DISTANCE = 0.01
_CHUNK = 512


@dataclass(frozen=True, slots=True)
class Tie:
    """Where two answers part, and how near the other token was for plain decoding.

    ``gap`` is in logits, or for a sampled answer the distance of the uniform from the nearest
    edge of the cumulative law.
    """

    index: int
    gap: float


def check_against_plain(plain: Answer, other: GenerationResult, runner: Runner) -> Tie | None:
    """Assert that ``other`` is plain's answer, or parts from it at a tie.

    ``runner`` is a fresh one: plain's row at the difference is computed again, one at a time.
    """
    ours, theirs = plain.result.token_ids, other.token_ids
    if ours == theirs:
        return None
    pairs = enumerate(zip(ours, theirs, strict=False))
    index = next((i for i, (a, b) in pairs if a != b), None)
    assert index is not None, f"one answer has {len(ours)} tokens, the other {len(theirs)}"
    row = _plain_row(plain, index, runner)
    if plain.settings.sampling.temp <= 0:
        tie = Tie(index, float(row[ours[index]] - row[theirs[index]]))
        assert tie.gap <= MAX_GAP, tie
        return tie
    law = Sampler(plain.settings.sampling).distribution(row, np.empty(0, np.int32))
    edges = np.concatenate(([0.0], law.probs.cumsum()))
    uniform = Uniforms(plain.result.seed).target(index)
    tie = Tie(index, float(np.abs(edges - uniform).min()))
    assert tie.gap <= MAX_DISTANCE, tie
    return tie


def check_same(
    plain: GenerationResult,
    other: GenerationResult,
    prompt_ids: Sequence[int],
    settings: GenerationSettings,
    engine: Engine,
) -> Tie | None:
    """The same with a context of ``engine``, which must be of the same target."""
    runner = fresh_runner(engine, 1)
    try:
        return check_against_plain(Answer(prompt_ids, settings, plain), other, runner)
    finally:
        runner.close()


def _plain_row(plain: Answer, index: int, runner: Runner) -> NDArray[np.float32]:
    """The row that gave plain decoding the token at ``index``."""
    prompt = np.array(plain.prompt_ids, np.int32)
    parts = [prompt[start : start + _CHUNK] for start in range(0, len(prompt), _CHUNK)]
    parts += [np.array([token], np.int32) for token in plain.result.token_ids[:index]]
    start = 0
    for part in parts:
        block = Block(0, part, start, num_outputs=1)
        outputs = runner.decode([block])
        start += len(part)
    row: NDArray[np.float32] = outputs.logits(block)[0].copy()
    return row
