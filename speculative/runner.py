"""Runner: one model with its cache, as the engine and the drafters see it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Protocol

from outrider.speculative.batch_outputs import BatchOutputs, Block


class Rollback(Enum):
    """How far a cache can be cut back after rejected draft tokens; asked once at load."""

    TRUNCATE = "truncate"
    """Any tail can be dropped (attention, with or without a window)."""
    BOUNDED = "bounded"
    """The last few tokens can be dropped from snapshots (recurrent layers of some models)."""
    CHECKPOINT = "checkpoint"
    """The state before a block is saved; what stands of the block is decoded again."""


HIDDEN = -1
"""The tap of the hidden state that NextN heads read; other taps are layers (their input)."""


class Runner(Protocol):
    """Decodes blocks of several sequences and keeps their caches."""

    @property
    def n_ctx(self) -> int:
        """Tokens one sequence can hold."""
        ...

    @property
    def n_batch(self) -> int:
        """Tokens one decode takes."""
        ...

    @property
    def max_outputs(self) -> int:
        """Output rows one decode can give."""
        ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def rollback(self) -> Rollback: ...

    @property
    def can_share(self) -> bool:
        """True if sequences can have cached tokens in common."""
        ...

    @property
    def num_decodes(self) -> int:
        """Decodes so far; outputs of an earlier one are stale."""
        ...

    def cached_length(self, seq_id: int) -> int:
        """Tokens of the sequence in the cache."""
        ...

    def decode(self, blocks: Sequence[Block]) -> BatchOutputs:
        """Append the blocks to their sequences, at most one block a sequence.

        Raises:
            ValueError: a block that llama.cpp would assert on (see the message).
            EngineError: llama.cpp failed; the caches are as before.
        """
        ...

    def truncate(self, seq_id: int, length: int) -> bool:
        """Keep the first ``length`` cached tokens.

        A cut into the last decoded block may decode a part of it again, so the outputs of that
        decode are used up. False if the model cannot keep a part: the sequence is empty then.
        """
        ...

    def share(self, source: int, target: int, length: int) -> bool:
        """Give ``target`` the first ``length`` cached tokens of ``source`` instead of its own.

        False if the cache cannot: nothing was changed.
        """
        ...

    def close(self) -> None: ...
