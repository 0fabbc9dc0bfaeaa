"""Drafter: the protocol every kind of drafter follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.batch_outputs import BatchOutputs, Block
from outrider.speculative.proposal import DraftRequest, Proposal, Verdict

I32 = NDArray[np.int32]


class Drafter(Protocol):
    """Proposes tokens for several sequences at once.

    A drafter with a cache aligns it to the committed tokens by longest common prefix at each
    request; that one rule covers rejection, full acceptance, cancelling, undo and a new chat.
    While it is not asked it does no model work.
    """

    @property
    def name(self) -> str: ...

    @property
    def n_max(self) -> int:
        """The most tokens it proposes at once."""
        ...

    @property
    def gives_law(self) -> bool:
        """True if it can say which law its tokens were drawn from."""
        ...

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        """One proposal for each request, in order; an empty one where there is nothing.

        Raises:
            EngineError: the drafter cannot go on; the caller drops it.
        """
        ...

    def observe_batch(self, blocks: Sequence[Block], outputs: BatchOutputs) -> None:
        """See a target decode while its outputs are valid."""
        ...

    def observe_verdict(self, seq_id: int, verdict: Verdict) -> None:
        """Learn what became of the last proposal for ``seq_id``."""
        ...

    def settle(self, seq_id: int, token_ids: I32) -> None:
        """An answer has ended and this is the text now: drop from the cache what is no part."""
        ...

    def forget(self, seq_id: int) -> None:
        """The sequence starts anew."""
        ...

    def time_token(self) -> float | None:
        """Seconds to draft one token, tried out on empty caches; None if that needs a text."""
        ...

    def close(self) -> None: ...


class DrafterDefaults:
    """The parts of the protocol that many drafters have no use for."""

    gives_law = False

    def observe_batch(self, blocks: Sequence[Block], outputs: BatchOutputs) -> None:
        pass

    def observe_verdict(self, seq_id: int, verdict: Verdict) -> None:
        pass

    def settle(self, seq_id: int, token_ids: I32) -> None:
        pass

    def forget(self, seq_id: int) -> None:
        pass

    def time_token(self) -> float | None:
        return None

    def close(self) -> None:
        pass
