"""How many tokens to draft: a fixed number, or as many as pay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from outrider.speculative.acceptance import AcceptanceModel
from outrider.speculative.draft_gate import DraftGate
from outrider.speculative.drafter_policy import DrafterPolicy
from outrider.speculative.proposal import Proposal
from outrider.speculative.statistics import Decision, Pause
from outrider.speculative.step_costs import ALONE, StepCosts, StepLoad

_FIRST_PLAIN, _PLAIN_INTERVAL = 8, 32  # steps with drafts before one without measures plain


_LATELY = 0.25  # weight of the last step in what is expected of the next


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

    @property
    def expected(self) -> tuple[float, float]:
        """Draft tokens of the coming step, and those of them that stand, as it was lately."""
        ...

    def waits(self) -> bool:
        """True if no draft is to be thought of in the coming step; asked once for each step."""
        ...

    def bound(self, limit: int, load: StepLoad = ALONE) -> int:
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
    expected = (0.0, 0.0)  # nobody asks: others have a fixed length too

    def __init__(self, length: int) -> None:
        self.length = self._length = length

    def waits(self) -> bool:
        return False

    def bound(self, limit: int, load: StepLoad = ALONE) -> int:
        self.length = min(self._length, limit)
        return self.length

    def observe(self, proposal: Proposal, num_accepted: int, emitted: Sequence[int]) -> None:
        pass


class AdaptiveLength:
    """For each drafter of a chain the length, 0 included, with the most tokens a second.

    Expected tokens of a draft of k are 1 plus the chances that its first i tokens all stand;
    the time is that of verifying k + 1 rows and drafting k tokens, both measured. A drafter
    pays if it is faster than whatever comes after it in the chain: another drafter that always
    proposes, or no draft at all. Beside other sequences, tokens and time are those of all
    together, with the drafts that are expected of the others.

    One that costs nothing proposes all it knows, and each draft is judged by itself; one that
    costs is asked only if it pays on average.

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
        self.length = 0
        self.paused: Pause | None = None
        """That of the drafter that comes nearest to paying."""
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
        self._lately = 0.0, 0.0  # drafted and accepted in a step

    @property
    def decisions(self) -> tuple[Decision, ...]:
        return tuple(Decision(name, m.length, m.pause) for name, m in self._members.items())

    @property
    def expected(self) -> tuple[float, float]:
        # that it does not pay is known to the others before it shows
        may_draft = any(member.length or member.is_free for member in self._members.values())
        return self._lately if may_draft else (0.0, 0.0)

    def waits(self) -> bool:
        if not self._num_idle:
            return False
        self._num_idle -= 1
        self.gates = {}
        return True

    def bound(self, limit: int, load: StepLoad = ALONE) -> int:
        limit = min(limit, self._longest)
        if limit <= 0 or not self._costs.is_measured:
            self.gates = None
            return max(limit, 0)
        if self._costs.is_stated:  # the same beside others as alone
            load = ALONE
        verify_s = self._costs.verify_s(limit, num_cells=load.num_cells, other_rows=load.rows)
        if load.drafted:
            verify_s = verify_s + self._drafting_s(load.drafted)
        floor = float((1 + load.tokens) / verify_s[0])
        if not (self._drafted or load.drafted):  # one step of other rows makes two changes
            verify_s = verify_s.copy()
            verify_s[1:] += self._costs.switch_s
        is_plain = self._num_drafts >= self._plain_after
        gates = {}
        _, lately = self._lately
        for name, member in reversed(self._members.items()):
            gate = member.gate(verify_s[: member.n_max + 1], floor, load, lately, is_plain)
            if gate is not None:
                gates[name] = gate
            floor = max(floor, member.speed)
        self.gates, self._is_asking = gates, not is_plain
        self._note_state()
        return max((gate.max_tokens for gate in gates.values()), default=0)

    def observe(self, proposal: Proposal, num_accepted: int, emitted: Sequence[int]) -> None:
        had_drafted, self._drafted = self._drafted, bool(proposal.token_ids)
        drafted, accepted = self._lately
        drafted += _LATELY * (len(proposal) - drafted)
        self._lately = drafted, accepted + _LATELY * (num_accepted - accepted)
        if self._drafted:
            self._num_drafts += 1
        elif self._num_drafts >= self._plain_after:
            self._plain_after = min(2 * self._plain_after, _PLAIN_INTERVAL)
            self._num_drafts = 0
        for look in proposal.looks:
            self._members[look.drafter].begin_look(look)
        for name, member in self._members.items():
            if self._drafted and name == proposal.drafter:
                member.observe(proposal, num_accepted)
            else:
                member.follow(emitted)
        if self.gates or had_drafted:
            for member in self._members.values():
                member.conclude()
            self._note_state()
        if self._is_asking and not self._drafted:
            for member in self._members.values():
                member.note_in_vain()
            self._num_idle = min(member.num_idle for member in self._members.values())
        self._is_asking = False

    def _note_state(self) -> None:
        """What to tell of all drafters together."""
        members = self._members.values()
        self.length = max([member.length for member in members], default=0)
        pauses = [member.pause for member in members if member.pause is not None]
        near = min(pauses, key=lambda p: (p.needed or 0) - (p.measured or 0), default=None)
        self.paused = None if self._drafted else near

    def _drafting_s(self, num_tokens: int) -> float:
        """Seconds that so many tokens for the others take, with the drafter in force here."""
        *_, last = self._members
        name = next((name for name, member in self._members.items() if member.length), last)
        return float(self._costs.draft_s(num_tokens, name)[-1])
