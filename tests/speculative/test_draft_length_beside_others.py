"""Several sequences in one batch: what each decides alone is good for all of them together.

A simulation without a clock: a target with a stated cost curve, a drafter whose tokens stand
with a stated chance. Speeds are compared with those of all fixed lengths.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from outrider.speculative.acceptance import AcceptanceModel
from outrider.speculative.draft_length import AdaptiveLength
from outrider.speculative.proposal import Look, Proposal
from outrider.speculative.step_costs import CPU_CURVE, GPU_CURVE, StepCosts, StepLoad

N_MAX = 3
STEPS = 300
KNEE = {1: 1.0, 2: 1.02, 4: 1.06, 5: 2.0, 8: 2.2, 9: 3.1, 12: 3.3, 13: 4.2, 64: 20.0}
FREE, DEAR = 0.001, 0.1  # a draft token, in plain steps


class Machine:
    """What steps take, and which draft tokens stand."""

    def __init__(self, curve: Mapping[int, float], token_s: float, rate: float) -> None:
        self._rows, self._seconds = list(curve), list(curve.values())
        self.token_s, self._rate = token_s, rate
        self._coins = random.Random(1)
        self.seconds, self.num_emitted = 0.0, 0

    @property
    def speed(self) -> float:
        return self.num_emitted / self.seconds

    def num_standing(self, num_tokens: int) -> int:
        count = 0
        while count < num_tokens and self._coins.random() < self._rate:
            count += 1
        return count

    def step(self, num_rows: int, num_drafted: int) -> None:
        self.seconds += float(np.interp(num_rows, self._rows, self._seconds))
        self.seconds += self.token_s * num_drafted


def fixed_speed(machine: Machine, num_slots: int, length: int) -> float:
    for _ in range(2 * STEPS):
        machine.step(num_slots * (1 + length), num_slots * length)
        stood = sum(machine.num_standing(length) for _ in range(num_slots))
        machine.num_emitted += num_slots + stood
    return machine.speed


def adaptive_speed(machine: Machine, curve: Mapping[int, float], num_slots: int) -> float:
    costs = StepCosts(curve)
    costs.calibrate(curve)
    for _ in range(2):
        costs.observe_draft(1, machine.token_s, "model")
    acceptance = {"model": AcceptanceModel(N_MAX)}
    slots = [AdaptiveLength(costs, {"model": N_MAX}, acceptance) for _ in range(num_slots)]
    for _ in range(STEPS):
        drafts = [draft(slot, slots) for slot in slots]
        num_rows = sum(1 + verified for verified, _ in drafts)
        machine.step(num_rows, sum(max(counts) for counts in drafts))
        for slot, (verified, looked) in zip(slots, drafts, strict=True):
            stood = machine.num_standing(verified or looked)
            if verified:
                proposal = Proposal((7,) * verified, drafter="model")
                slot.observe(proposal, stood, [7] * stood + [1])
                machine.num_emitted += 1 + stood
            else:
                looks = (Look("model", (7,) * looked),) if looked else ()
                slot.observe(Proposal(looks=looks), 0, [7 if stood else 1])
                machine.num_emitted += 1
    return machine.speed


def draft(slot: AdaptiveLength, slots: Sequence[AdaptiveLength]) -> tuple[int, int]:
    """Tokens that the target verifies, and tokens that are only compared."""
    slot.bound(N_MAX, StepLoad.beside(0, 0, [one.expected for one in slots if one is not slot]))
    gate = (slot.gates or {}).get("model")
    if gate is None:
        return 0, 0
    worth = gate.num_worth(gate.max_tokens) if gate.is_free else gate.max_tokens
    return (0, gate.max_tokens) if gate.is_look or not worth else (worth, 0)


@pytest.mark.parametrize("num_slots", [2, 4, 8])
@pytest.mark.parametrize("rate", [0.3, 0.6, 0.85])
@pytest.mark.parametrize("token_s", [FREE, DEAR], ids=["free", "dear"])
@pytest.mark.parametrize("curve", [CPU_CURVE, GPU_CURVE, KNEE], ids=["cpu", "gpu", "knee"])
def test_together_as_fast_as_the_best_fixed_length(
    curve: Mapping[int, float], token_s: float, rate: float, num_slots: int
) -> None:
    best = max(
        fixed_speed(Machine(curve, token_s, rate), num_slots, length) for length in range(N_MAX + 1)
    )
    assert adaptive_speed(Machine(curve, token_s, rate), curve, num_slots) >= 0.93 * best
