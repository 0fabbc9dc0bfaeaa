"""DrafterPolicy: whether and how far one drafter drafts, and what becomes of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.acceptance import AcceptanceModel, after_streak
from outrider.speculative.draft_gate import Choice, DraftGate
from outrider.speculative.proposal import Look, Proposal
from outrider.speculative.statistics import Pause
from outrider.speculative.step_costs import StepCosts, StepLoad

F64 = NDArray[np.float64]

# of the time of plain decoding may go into drafts that are only compared, and less the further
# from paying they are: this power of their speed over that of plain
_LOOK_SHARE, _HOPE = 0.01, 3
_LOOK_LENGTH = 2
_ANSWER = 200  # tokens within which it pays that a drafter reads the text
_MAX_LOOKS = 4  # that are compared at the same time
_MAX_IDLE = 7
# steps with nothing worth it after which another is left out
_OFTEN_IN_VAIN = (8, 32, 32, 48, 48, 48, 48)
_PROMISING = 2  # tokens that were right in a row: it may be worth it soon
# a token drafted in less of a plain token's time than this costs nothing: what is drafted from the
# text takes so long where a step takes 4 ms, and is left out of most steps where it is in vain
_FREE_SHARE = 0.05


@dataclass(slots=True, eq=False)
class _OpenLook:
    """A look of which the first ``at`` tokens were right."""

    token_ids: tuple[int, ...]
    confidences: F64
    at: int = 0

    @property
    def next(self) -> int:
        return self.token_ids[self.at]

    def follow(self, token: int, acceptance: AcceptanceModel) -> bool:
        """Compare a token; False if that was all."""
        stood = self.next == token
        acceptance.test(self.at, stood, float(self.confidences[self.at]))
        self.at += 1
        return stood and self.at < len(self.token_ids)


class DrafterPolicy:
    """One drafter: what is known of it, and what is decided.

    Attributes:
        length: the length in force.
        pause: why that is 0.
        speed: expected tokens a second, if it is asked because that pays; else 0.
        is_free: a token costs nothing to speak of: how much of a draft is worth it is decided
            when it is there.
    """

    def __init__(
        self, name: str, costs: StepCosts, n_max: int, acceptance: AcceptanceModel
    ) -> None:
        self.n_max = n_max
        self.length = 0
        self.pause: Pause | None = None
        self.speed = 0.0
        self.is_free = False
        self._name = name
        self._costs = costs
        self._acceptance = acceptance
        self._gives_confidence = False
        self._gate: DraftGate | None = None
        self._looks: list[_OpenLook] = []
        self._streak = 0  # tokens that were right in a row
        self._look_interval = 0.0  # tokens between two looks that the time allows
        self._wait = 0.0  # the same with what is to be read before
        self._allowed_s = 0.0  # for looks, a token of the answer
        self._hope = 1.0  # that it pays sometime
        self._read_s = 0.0  # of a token of the text
        self._is_begun = False  # it has read the text up to here, or a little before
        # the times of steps with 1.. tokens, and what they were found from
        self._step_s: F64 = np.empty(0)
        self._priced = (-1, 0.0, 0.0)
        # the best length on average, and what it was found from
        self._weighed = (-1, -1, 0.0, 0.0)
        self._best = 0
        self._best_speed = 0.0
        self._saved_s = 0.0  # a token, against what is done otherwise
        self._reason: Pause | None = None
        self._token_s = 0.0

    @property
    def num_idle(self) -> int:
        """Steps for which it need not be asked, after one in which it was in vain."""
        if self.is_free:
            if self._streak >= _PROMISING:
                return 0
            return sum(self._acceptance.num_in_vain >= count for count in _OFTEN_IN_VAIN)
        if self._looks:
            return 0
        return int(min(max(self._wait - self._acceptance.num_since, 0), _MAX_IDLE))

    def gate(
        self, verify_s: F64, floor: float, load: StepLoad, lately: float, is_plain: bool
    ) -> DraftGate | None:
        """What the drafter may do in the coming step; None: nothing.

        ``verify_s`` are the times of steps with 0.. draft tokens, ``floor`` the tokens a second
        without this drafter; ``lately`` so many draft tokens of a step were accepted.
        """
        self._is_begun |= self._gate is not None and self._gate.was_asked
        most, others = len(verify_s) - 1, load.tokens
        self._weigh(verify_s, floor, load)
        self.speed, is_asked = 0.0, False
        if not self.is_free:
            self.length, self.pause = self._best, self._reason
            if self._best and not self._pays_reading(load, lately):
                self.length, self.pause = 0, Pause("does not pay for reading the text first")
            is_asked = bool(self.length) and not is_plain
            self.speed = self._best_speed if is_asked else 0.0
            self._wait = self._look_interval + self._reading_s(load) / self._allowed_s
            self._wait /= self._hope
            if not is_asked and self._acceptance.num_since < self._wait:
                return None
        gate = DraftGate(
            most, self._acceptance, verify_s, self._token_s, floor, others, self._streak
        )
        self._gate = gate
        if self.is_free:
            gate.is_free, gate.is_look = True, is_plain
        elif is_asked:
            gate.rate = self._best_speed
            gate.max_tokens = most if self._gives_confidence else self._best
        else:
            gate.is_look, gate.max_tokens = True, min(_LOOK_LENGTH, most)
            self._acceptance.num_since = 0  # known to other sequences of the same step
        return gate

    def _pays_reading(self, load: StepLoad, lately: float) -> bool:
        """True if it saves the time to read the text soon; others draft for it meanwhile."""
        return _ANSWER / (1 + lately) * self._saved_s >= self._reading_s(load)

    def _reading_s(self, load: StepLoad) -> float:
        """Seconds to read the text, if that is still to be done."""
        return 0.0 if self._is_begun else self._read_s * load.num_own

    def _weigh(self, verify_s: F64, floor: float, load: StepLoad) -> None:
        """Find the best length on average, as long as nothing has changed the last answer."""
        most = len(verify_s) - 1
        priced = (most, floor, float(verify_s[-1]))
        if self._priced != priced:
            self._price(verify_s, floor, load)
            self._priced = priced
        weighed = (self._acceptance.version, *priced)
        if self.is_free or weighed == self._weighed:
            return
        self._weighed = weighed
        best = Choice.of(self._acceptance.chances()[:most], self._step_s, floor, load.tokens)
        self._best, self._best_speed, self._reason = best.length, best.speed, None
        self._hope = min(best.speed / floor, 1.0) ** _HOPE
        self._saved_s = (1 + load.tokens) * (1 / floor - 1 / best.speed)
        if self._saved_s <= 0:
            if self._acceptance.is_tested:
                self._reason = Pause("does not pay", best.needed, best.measured)
            self._best, self._best_speed = 0, 0.0

    def _price(self, verify_s: F64, floor: float, load: StepLoad) -> None:
        """What its drafts and looks cost, and whether that is anything."""
        costs, most = self._costs, len(verify_s) - 1
        token_s = costs.token_s(self._name)
        draft_s = costs.draft_s(most, self._name, beside=load.drafted)
        self._step_s = verify_s[1:] + draft_s[1:]
        self._token_s = token_s or 0.0
        plain_token_s = float(verify_s[0]) / (1 + load.tokens)
        self.is_free = bool(draft_s[1] < _FREE_SHARE * plain_token_s)  # until it is known, too
        look_s = costs.look_s(_LOOK_LENGTH, self._name)
        self._read_s, self._allowed_s = costs.read_s(self._name), _LOOK_SHARE * plain_token_s
        self._look_interval = look_s / self._allowed_s
        if ((1 + load.tokens + np.arange(1, most + 1)) / self._step_s).max() <= floor:
            self._look_interval = math.inf  # not even if every token stood

    def note_in_vain(self) -> None:
        """It had nothing that was worth verifying, or was not asked."""
        self._acceptance.num_in_vain += 1

    def observe(self, proposal: Proposal, num_accepted: int) -> None:
        """Learn from a verified draft."""
        self._looks.clear()
        self._acceptance.num_in_vain = 0
        self._acceptance.num_since = 0
        self._gives_confidence |= proposal.confidences is not None
        sure = self._confidences(proposal.confidences, len(proposal))
        self._acceptance.observe(len(proposal), num_accepted, sure)
        self._streak = num_accepted + (self._streak if num_accepted == len(proposal) else 0)

    def begin_look(self, look: Look) -> None:
        """Compare a draft with what comes from now on."""
        self._acceptance.num_since = 0
        if len(self._looks) < _MAX_LOOKS:
            sure = self._confidences(look.confidences, len(look.token_ids))
            self._looks.append(_OpenLook(look.token_ids, sure))
            self._acceptance.begin_draft()

    def follow(self, emitted: Sequence[int]) -> None:
        """Learn what became of the tokens of all looks."""
        self._acceptance.num_since += len(emitted)
        if not self._looks:
            return
        for token in emitted:
            # all looks are of the same text: one of them tells the streak
            self._streak = self._streak + 1 if self._looks[-1].next == token else 0
            self._looks = [look for look in self._looks if look.follow(token, self._acceptance)]
            if not self._looks:
                return

    def conclude(self) -> None:
        """Note what a draft that cost nothing was found worth."""
        gate = self._gate
        if gate is not None and gate.is_free and gate.length is not None:
            self.length, self.pause = gate.length, None
            if not gate.length:
                self.pause = Pause("does not pay", gate.needed, gate.measured)

    def _confidences(self, given: F64 | None, num_tokens: int) -> F64:
        return after_streak(self._streak, num_tokens) if given is None else given
