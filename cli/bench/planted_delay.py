"""DelayedRunner: a runner made slower by a known share, to see whether a benchmark notices."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from outrider.speculative.batch_outputs import BatchOutputs, Block
from outrider.speculative.runner import Rollback, Runner


class DelayedRunner:
    """Each decode of ``runner`` takes ``share`` of its time longer."""

    def __init__(
        self, runner: Runner, share: float, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._runner = runner
        self._share = share
        self._clock = clock

    def decode(self, blocks: Sequence[Block]) -> BatchOutputs:
        started = self._clock()
        outputs = self._runner.decode(blocks)
        ended = self._clock()
        until = ended + self._share * (ended - started)
        while self._clock() < until:  # sleep is too coarse
            pass
        return outputs

    @property
    def n_ctx(self) -> int:
        return self._runner.n_ctx

    @property
    def n_batch(self) -> int:
        return self._runner.n_batch

    @property
    def max_outputs(self) -> int:
        return self._runner.max_outputs

    @property
    def vocab_size(self) -> int:
        return self._runner.vocab_size

    @property
    def rollback(self) -> Rollback:
        return self._runner.rollback

    @property
    def num_decodes(self) -> int:
        return self._runner.num_decodes

    def cached_length(self, seq_id: int) -> int:
        return self._runner.cached_length(seq_id)

    def truncate(self, seq_id: int, length: int) -> bool:
        return self._runner.truncate(seq_id, length)

    @property
    def can_share(self) -> bool:
        return self._runner.can_share

    def share(self, source: int, target: int, length: int) -> bool:
        return self._runner.share(source, target, length)

    def close(self) -> None:
        self._runner.close()
