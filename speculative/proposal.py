"""What a drafter is asked for, what it answers, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.distribution import Distribution
from outrider.speculative.draft_gate import DraftGate

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
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


@dataclass(slots=True, eq=False)  # not frozen, which would cost: one is made in every step
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
        gates: what each drafter of a chain may do, none for others; None: as it likes.
        gate: what the drafter that is asked may do; None: as it likes.
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
    gates: Mapping[str, DraftGate] | None = None
    gate: DraftGate | None = None
    revision: int | None = None

    def within(
        self, max_tokens: int, uniform: Callable[[], float] | None, gate: DraftGate | None
    ) -> DraftRequest:
        """The same for a drafter with limits of its own."""
        return DraftRequest(  # dataclasses.replace takes several times as long
            self.seq_id,
            self.token_ids,
            max_tokens,
            self.law,
            uniform,
            min(self.min_tokens, max_tokens),
            self.min_prob,
            self.gates,
            gate,
            self.revision,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """A draft that is not sent to the target but compared with what it says by itself.

    ``confidences`` [n] are its drafter's, where it has them.
    """

    drafter: str
    token_ids: tuple[int, ...]
    confidences: F64 | None = None


@dataclass(slots=True, eq=False)  # not frozen, which would cost: one is made in every step
class Proposal:
    """Draft tokens of one sequence for one step; empty if there is nothing to propose.

    ``distributions`` holds, for each token, exactly the law it was drawn from; None means the
    drafter is deterministic, a point mass on each token. ``discarded`` says how many tokens
    which drafter made that were thrown away before verification; ``catch_up_s`` is time spent
    on reading a longer piece of text that the drafter had not seen, no part of the price of a
    draft. ``confidences`` [k] say how sure the drafter is of each token, given those before it;
    ``looks`` are what is only to be compared.
    """

    token_ids: tuple[int, ...] = ()
    distributions: tuple[Distribution, ...] | None = None
    drafter: str = ""
    discarded: tuple[tuple[str, int], ...] = ()
    catch_up_s: float = 0.0
    confidences: F64 | None = None
    looks: tuple[Look, ...] = ()

    def __len__(self) -> int:
        return len(self.token_ids)

    def num_within(self, request: DraftRequest) -> int:
        """How many of the tokens the limits of ``request`` leave.

        Cutting to a length known before drafting does not bias the law; dropping a short draft
        of sampled tokens would, and is refused where settings are checked.
        """
        count = min(len(self.token_ids), request.max_tokens)
        return count if count >= request.min_tokens else 0

    def cut(self, count: int) -> Proposal:
        """The first ``count`` tokens."""
        if count >= len(self):
            return self
        return replace(
            self,
            token_ids=self.token_ids[:count],
            distributions=self.distributions and self.distributions[:count],
            confidences=None if self.confidences is None else self.confidences[:count],
        )

    def as_look(self, drafter: str) -> tuple[Look, ...]:
        """The same as something to compare."""
        return (Look(drafter, self.token_ids, self.confidences),)


NO_DRAFT = Proposal()
"""Nothing is proposed; shared, so not to be changed."""


def judged(request: DraftRequest, proposal: Proposal, drafter: str) -> Proposal:
    """Of a finished draft as much as is worth verifying; of one that is not, a look."""
    gate = request.gate
    if gate is None or not proposal.token_ids:
        return proposal
    count = gate.num_worth(len(proposal), proposal.confidences)
    if count >= max(request.min_tokens, 1):
        return proposal.cut(count)
    return Proposal(catch_up_s=proposal.catch_up_s, looks=proposal.as_look(drafter))


@dataclass(slots=True)  # not frozen, which would cost: one is made in every step
class Verdict:
    """The first ``num_accepted`` draft tokens stand; ``next_token`` is the target's own.

    ``next_kind`` says where it came from; ``next_token`` is None when an accepted draft token
    ended the text.
    """

    num_accepted: int
    next_token: int | None
    next_kind: Literal["recovered", "bonus", "none"]
