"""What a drafter is asked for, what it answers, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.distribution import Distribution

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]


class DraftLaw(Protocol):
    """The target's chain, for the rows of a drafter that drafts token by token.

    What depends on the text (a grammar) walks along: :meth:`push` each draft token.
    """

    def distribution(self, row: F32, history: I32) -> Distribution | None:
        """``q`` on a row [vocab] after the tokens of ``history``; None: nothing can follow."""
        ...

    def argmax(self, row: F32, history: I32) -> int | None:
        """The best token of a row; None: nothing can follow."""
        ...

    def push(self, token_id: int) -> None: ...

    def forced(self, most: int) -> list[int]:
        """Up to ``most`` tokens that must follow, whatever a model says; mostly none."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class DraftRequest:
    """One sequence that wants a draft.

    Attributes:
        seq_id: the sequence.
        token_ids: all committed tokens [n], the pending one included; a view, not to be kept.
        max_tokens: at most this many draft tokens, at least 1.
        law: begins a walk of the target's chain; ``q`` is this chain on the drafter's row.
        uniform: the proposal stream. None asks for a deterministic draft.
        min_tokens: a shorter draft is thrown away whole.
        min_prob: stop before a token the drafter is less sure of (``p_min``).
        limits: tighter bounds than ``max_tokens`` by drafter; None: none.
        revision: the same as in the request before if tokens were only added since; another
            one at the start of each answer. None: not known, compare the tokens.
    """

    seq_id: int
    token_ids: I32
    max_tokens: int
    law: Callable[[], DraftLaw]
    uniform: Callable[[], float] | None = None
    min_tokens: int = 0
    min_prob: float = 0.0
    limits: Mapping[str, int] | None = None
    revision: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """Draft tokens of one sequence for one step; empty if there is nothing to propose.

    ``distributions`` holds, for each token, exactly the law it was drawn from; None means the
    drafter is deterministic, a point mass on each token. ``discarded`` says how many tokens
    which drafter made that were thrown away before verification; ``catch_up_s`` is time spent
    on reading a longer piece of text that the drafter had not seen, no part of the price of a
    draft.
    """

    token_ids: tuple[int, ...] = ()
    distributions: tuple[Distribution, ...] | None = None
    drafter: str = ""
    discarded: tuple[tuple[str, int], ...] = ()
    catch_up_s: float = 0.0

    def __post_init__(self) -> None:
        assert self.distributions is None or len(self.distributions) == len(self.token_ids)

    def __len__(self) -> int:
        return len(self.token_ids)

    def num_within(self, request: DraftRequest) -> int:
        """How many of the tokens the limits of ``request`` leave.

        Cutting to a length known before drafting does not bias the law; dropping a short draft
        of sampled tokens would, and is refused where settings are checked.
        """
        count = min(len(self), request.max_tokens)
        return count if count >= request.min_tokens else 0

    def cut(
        self, count: int, drafter: str, discarded: tuple[tuple[str, int], ...] = ()
    ) -> Proposal:
        """The first ``count`` tokens, with who made them and what was thrown away."""
        laws = self.distributions and self.distributions[:count]
        return Proposal(self.token_ids[:count], laws, drafter, discarded, self.catch_up_s)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The first ``num_accepted`` draft tokens stand; ``next_token`` is the target's own.

    ``next_kind`` says where it came from; ``next_token`` is None when an accepted draft token
    ended the text.
    """

    num_accepted: int
    next_token: int | None
    next_kind: Literal["recovered", "bonus", "none"]
