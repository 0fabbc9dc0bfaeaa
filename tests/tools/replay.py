"""Self-consistency, tolerance 0: is every emitted token what its row of logits says?

Logits depend in their last bits on the shape of a batch, so speculative and plain decoding
may differ at a near tie and both be right. Here no drafter takes part: the recorded blocks
and removals go into a fresh runner, and each row whose input is the final text must give the
next token of that text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tools.recording_runner import Call, Shared, Truncated

from outrider.speculative.batch_outputs import Block
from outrider.speculative.constraint import Constraint
from outrider.speculative.distribution import Distribution
from outrider.speculative.events import GenerationResult
from outrider.speculative.law import TokenLaw, token_law
from outrider.speculative.runner import Runner
from outrider.speculative.settings import GenerationSettings, GrammarSettings, SamplingSettings
from outrider.speculative.tokenizer import Tokenizer
from outrider.speculative.uniforms import Coins, Uniforms

F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Answer:
    """What was asked of one sequence and what came of it."""

    prompt_ids: Sequence[int]
    settings: GenerationSettings
    result: GenerationResult


class Replay:
    """Runs the calls of one or more answers again, in their order, on a fresh runner."""

    def __init__(
        self,
        runner: Runner,
        tokenizer: Tokenizer,
        constrain: Callable[[GrammarSettings], Constraint] | None = None,
    ) -> None:
        self._runner = runner
        self._tokenizer = tokenizer
        self._constrain = constrain

    def check(self, calls: Sequence[Call], answers: Mapping[int, Answer]) -> None:
        """Assert that ``calls``, all made for ``answers`` (by sequence), give their tokens."""
        checkers = {
            seq_id: _Checker(
                one, self._tokenizer, token_law(one.settings, self._tokenizer, self._constrain)
            )
            for seq_id, one in answers.items()
        }
        for call in calls:
            if isinstance(call, Truncated):
                assert self._runner.truncate(call.seq_id, call.length)
                continue
            if isinstance(call, Shared):
                assert self._runner.share(call.source, call.target, call.length)
                continue
            outputs = self._runner.decode(call.blocks)
            for block in call.blocks:
                checkers[block.seq_id].check_block(block, outputs.logits(block))
        for checker in checkers.values():
            checker.check_complete()


class _Checker:
    """The rows of one answer. Drafts kept by the ratio test are no draws: greedy and match only."""

    def __init__(self, answer: Answer, tokenizer: Tokenizer, law: TokenLaw) -> None:
        self._result = answer.result
        self._prompt_length = len(answer.prompt_ids)
        self._text = [*answer.prompt_ids, *answer.result.token_ids]
        self._tokenizer = tokenizer
        self._law = law
        self._is_plain_greedy = answer.settings == GenerationSettings(
            SamplingSettings(temp=0),
            predict=answer.settings.predict,
            stop=answer.settings.stop,
            seed=answer.settings.seed,
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
        if index in self._checked:
            return  # read once more after a rollback
        law = self._law_of(row, position, index)
        drawn = law.draw(self._uniforms.target(index))
        if position < len(self._text):
            assert drawn == self._text[position], f"token {index} of the answer"
            self._checked.add(index)
            self._law.advance(drawn, law)
        elif self._result.finish_reason == "stop" and not self._is_cut:
            assert self._tokenizer.is_end(drawn), "the token after the answer ends it"

    def _law_of(self, row: F32, position: int, index: int) -> Distribution:
        if self._is_plain_greedy:
            return Distribution.point(int(row.argmax()))
        tokens = np.array(self._text[:position], np.int32)
        return self._law.block(row[None], tokens, (), Coins(self._uniforms, index))(0)

    def check_complete(self) -> None:
        missing = set(range(len(self._result.token_ids))) - self._checked
        assert not missing, f"no recorded row gives the tokens {sorted(missing)}"
