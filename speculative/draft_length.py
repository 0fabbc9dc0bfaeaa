"""How many tokens to draft: a fixed number, or as many as pay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from outrider.speculative.acceptance import AcceptanceModel
from outrider.speculative.draft_gate import DraftGate
from outrider.speculative.drafter_policy import DrafterPolicy
from outrider.speculative.proposal import Proposal
from outrider.speculative.statistics import Decision, Pause
from outrider.speculative.step_costs import StepCosts

_FIRST_PLAIN, _PLAIN_INTERVAL = 8, 32  # steps with drafts before one without measures plain


@dataclass(slots=True)  # not frozen, which would cost: one is made in every step
class StepLoad:
    """What else a step carries: cached tokens, and rows of other sequences in the batch."""

    num_cells: int = 0
    other_rows: int = 0


_ALONE = StepLoad()


class DraftLength(Protocol):
    """Chooses the length of each draft of one sequence and learns from the outcome."""

    @property
    def length(self) -> int:
        """The length in force: of the coming step, or what the last draft was worth."""
        ...

    @property
    def paused(self) -> Pause | None:
        """Why nothing was drafted in the last step, if that was a decision."""
        ...

    @property
    def gates(self) -> Mapping[str, DraftGate] | None:
        """What each drafter may do in the coming step, none for others; None: as it likes."""
        ...

    @property
    def decisions(self) -> tuple[Decision, ...]: ...

    def bound(self, limit: int, load: StepLoad = _ALONE) -> int:
        """The most tokens that are asked for in the coming step, at most ``limit``."""
        ...

    def observe(self, proposal: Proposal, num_accepted: int, emitted: Sequence[int]) -> None:
        """Learn from a step: what was proposed, how much of it stood, what was emitted."""
        ...


class FixedLength:
    """Always the same length, as far as the limits allow."""

    paused: Pause | None = None
    gates: Mapping[str, DraftGate] | None = None
    decisions: tuple[Decision, ...] = ()

    def __init__(self, length: int) -> None:
        self.length = self._length = length

    def bound(self, limit: int, load: StepLoad = _ALONE) -> int:
        self.length = min(self._length, limit)
        return self.length

    def observe(self, proposal: Proposal, num_accepted: int, emitted: Sequence[int]) -> None:
        pass


class AdaptiveLength:
    """For each drafter of a chain the length, 0 included, with the most tokens a second.

    Expected tokens of a draft of k are 1 plus the chances that its first i tokens all stand;
    the time is that of verifying k + 1 rows and drafting k tokens, both measured. A drafter
    pays if it is faster than whatever comes after it in the chain: another drafter that always
    proposes, or no draft at all. One that costs nothing proposes all it knows, and each draft
    is judged by itself; one that costs is asked only if it pays on average.

    What does not pay is never sent to the target. It is compared with what the target goes on
    to say (a *look*), which costs the drafting alone: all the time for drafters that cost
    nothing, for others as often as a hundredth of the time allows.

    Now and then a step goes without a draft: what plain decoding costs must be known as it is
    now.
    """

    def __init__(
        self,
        costs: StepCosts,
        limits: Mapping[str, int],
        acceptance: Mapping[str, AcceptanceModel] | None = None,
    ) -> None:
        """``limits`` are the most tokens of each drafter, in the order of the chain;
        ``acceptance`` is what is known of each from texts before."""
        known = acceptance or {}
        self.gates: dict[str, DraftGate] | None = {}
        self._costs = costs
        self._members = {
            name: DrafterPolicy(name, costs, n_max, known.get(name, AcceptanceModel(n_max)))
            for name, n_max in limits.items()
        }
        self._longest = max(limits.values(), default=0)
        self._num_drafts = 0
        self._plain_after = _FIRST_PLAIN
        self._drafted = False
        self._num_idle = 0  # steps in which nothing is expected of asking
        self._is_asking = False

    @property
    def paused(self) -> Pause | None:
        """Of the drafter that comes nearest to paying."""
        if self._drafted:
            return None
        pauses = [m.pause for m in self._members.values() if m.pause is not None]
        return min(pauses, key=lambda p: (p.needed or 0) - (p.measured or 0), default=None)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        return tuple(Decision(name, m.length, m.pause) for name, m in self._members.items())

    @property
    def length(self) -> int:
        return max((member.length for member in self._members.values()), default=0)

    def bound(self, limit: int, load: StepLoad = _ALONE) -> int:
        limit = min(limit, self._longest)
        if limit <= 0 or not self._costs.is_measured:
            self.gates = None
            return max(limit, 0)
        if self._costs.is_stated:  # the same beside others as alone
            load = _ALONE
        if self._num_idle:
            self._num_idle -= 1
            self.gates = {}
            return 0
        others = load.other_rows
        verify_s = self._costs.verify_s(limit, num_cells=load.num_cells, other_rows=others)
        floor = float((1 + others) / verify_s[0])
        is_plain = self._num_drafts >= self._plain_after
        gates = {}
        for name, member in reversed(self._members.items()):
            gate = member.gate(verify_s[: member.n_max + 1], floor, others, is_plain)
            if gate is not None:
                gates[name] = gate
            floor = max(floor, member.speed)
        self.gates, self._is_asking = gates, not is_plain
        return max((gate.max_tokens for gate in gates.values()), default=0)

    def observe(self, proposal: Proposal, num_accepted: int, emitted: Sequence[int]) -> None:
        self._drafted = bool(proposal.token_ids)
        if self._drafted:
            self._num_drafts += 1
        elif self._num_drafts >= self._plain_after:
            self._plain_after = min(2 * self._plain_after, _PLAIN_INTERVAL)
            self._num_drafts = 0
        for member in self._members.values():
            member.conclude()
        for look in proposal.looks:
            self._members[look.drafter].begin_look(look)
        for name, member in self._members.items():
            if self._drafted and name == proposal.drafter:
                member.observe(proposal, num_accepted)
            else:
                member.follow(emitted)
        if self._is_asking and not (self._drafted or proposal.looks):
            for member in self._members.values():
                member.num_empty += 1
            self._num_idle = min(member.num_idle for member in self._members.values())
        self._is_asking = False
