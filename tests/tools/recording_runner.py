"""A Runner that writes down what another one is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from outrider.speculative.batch_outputs import BatchOutputs, Block
from outrider.speculative.runner import Rollback, Runner


@dataclass(frozen=True, slots=True)
class Decoded:
    """One decode that succeeded, with copies of its blocks."""

    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Truncated:
    """A removal: ``seq_id`` kept its first ``length`` tokens."""

    seq_id: int
    length: int


@dataclass(frozen=True, slots=True)
class Shared:
    """``target`` was given the first ``length`` tokens of ``source``."""

    source: int
    target: int
    length: int


Call = Decoded | Truncated | Shared


class RecordingRunner:
    """Passes everything on to ``runner``; ``calls`` has the decodes and the removals."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.calls: list[Call] = []

    @property
    def n_ctx(self) -> int:
        return self.runner.n_ctx

    @property
    def n_batch(self) -> int:
        return self.runner.n_batch

    @property
    def max_outputs(self) -> int:
        return self.runner.max_outputs

    @property
    def vocab_size(self) -> int:
        return self.runner.vocab_size

    @property
    def rollback(self) -> Rollback:
        return self.runner.rollback

    @property
    def num_decodes(self) -> int:
        return self.runner.num_decodes

    def cached_length(self, seq_id: int) -> int:
        return self.runner.cached_length(seq_id)

    def decode(self, blocks: Sequence[Block]) -> BatchOutputs:
        copies = tuple(replace(block, token_ids=block.token_ids.copy()) for block in blocks)
        outputs = self.runner.decode(blocks)
        self.calls.append(Decoded(copies))
        return outputs

    def truncate(self, seq_id: int, length: int) -> bool:
        if length < self.runner.cached_length(seq_id):
            self.calls.append(Truncated(seq_id, length))
        return self.runner.truncate(seq_id, length)

    @property
    def can_share(self) -> bool:
        return self.runner.can_share

    def share(self, source: int, target: int, length: int) -> bool:
        is_shared = self.runner.share(source, target, length)
        if is_shared:
            self.calls.append(Shared(source, target, length))
        return is_shared

    def close(self) -> None:
        self.runner.close()

    def block_lengths(self, seq_id: int = 0) -> list[int]:
        """Tokens of the sequence in each decode."""
        return [
            len(block.token_ids)
            for call in self.calls
            if isinstance(call, Decoded)
            for block in call.blocks
            if block.seq_id == seq_id
        ]
