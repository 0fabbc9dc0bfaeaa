"""Self-consistency, tolerance 0: is every emitted token what its row of logits says?

Logits depend in their last bits on the shape of a batch, so speculative and plain decoding
may differ at a near tie and both be right. Here no drafter takes part: the recorded blocks
and removals go into a fresh runner, and each row whose input is the final text must give the
next token of that text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from tools.recording_runner import Call, Truncated

from outrider.speculative.batch_outputs import Block
from outrider.speculative.events import GenerationResult
from outrider.speculative.runner import Runner
from outrider.speculative.sampler import Sampler
from outrider.speculative.settings import GenerationSettings
from outrider.speculative.tokenizer import Tokenizer
from outrider.speculative.uniforms import Uniforms

F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Answer:
    """What was asked of one sequence and what came of it."""

    prompt_ids: Sequence[int]
    settings: GenerationSettings
    result: GenerationResult


class Replay:
    """Runs the calls of one or more answers again, in their order, on a fresh runner."""

    def __init__(self, runner: Runner, tokenizer: Tokenizer) -> None:
        self._runner = runner
        self._tokenizer = tokenizer

    def check(self, calls: Sequence[Call], answers: Mapping[int, Answer]) -> None:
        """Assert that ``calls``, all made for ``answers`` (by sequence), give their tokens."""
        checkers = {seq_id: _Checker(a, self._tokenizer) for seq_id, a in answers.items()}
        for call in calls:
            if isinstance(call, Truncated):
                assert self._runner.truncate(call.seq_id, call.length)
                continue
            outputs = self._runner.decode(call.blocks)
            for block in call.blocks:
                checkers[block.seq_id].check_block(block, outputs.logits(block))
        for checker in checkers.values():
            checker.check_complete()


class _Checker:
    """The rows of one answer. Drafts kept by the ratio test are no draws: greedy and match only."""

    def __init__(self, answer: Answer, tokenizer: Tokenizer) -> None:
        self._result = answer.result
        self._prompt_length = len(answer.prompt_ids)
        self._text = [*answer.prompt_ids, *answer.result.token_ids]
        self._tokenizer = tokenizer
        sampling = answer.settings.sampling
        if sampling.ignore_eos:
            banned = dict.fromkeys(tokenizer.end_ids, float("-inf"))
            sampling = replace(sampling, logit_bias={**sampling.logit_bias, **banned})
        self._sampler = Sampler(sampling)
        self._is_plain_greedy = (
            sampling.temp <= 0 and not sampling.logit_bias and not self._sampler.history_length
        )
        self._uniforms = Uniforms(answer.result.seed)
        self._is_cut = bool(answer.settings.stop)
        self._checked: set[int] = set()

    def check_block(self, block: Block, rows: F32) -> None:
        tokens = block.token_ids.tolist()
        first_row = len(tokens) - block.num_outputs
        for i, token in enumerate(tokens):
            position = block.start_pos + i
            if position >= len(self._text) or token != self._text[position]:
                return  # a rejected draft token: what follows is not the text
            if i >= first_row:
                self._check_row(position + 1, rows[i - first_row])

    def _check_row(self, position: int, row: F32) -> None:
        """The row that decides the token at ``position``."""
        index = position - self._prompt_length
        drawn = self._draw(row, position, index)
        if position < len(self._text):
            assert drawn == self._text[position], f"token {index} of the answer"
            self._checked.add(index)
        elif self._result.finish_reason == "stop" and not self._is_cut:
            assert self._tokenizer.is_end(drawn), "the token after the answer ends it"

    def _draw(self, row: F32, position: int, index: int) -> int:
        if self._is_plain_greedy:
            return int(row.argmax())
        history = np.array(self._text[:position], np.int32)
        law = self._sampler.distribution(row, history)
        return law.draw(self._uniforms.target(index))

    def check_complete(self) -> None:
        missing = set(range(len(self._result.token_ids))) - self._checked
        assert not missing, f"no recorded row gives the tokens {sorted(missing)}"
