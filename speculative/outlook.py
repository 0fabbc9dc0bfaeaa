"""Outlook: what drafts of one drafter cost and bring here, length by length."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.speculative.acceptance import AcceptanceModel
from outrider.speculative.step_costs import StepCosts


@dataclass(frozen=True, slots=True)
class Outlook:
    """Plain numbers for a screen; the entries 0, 1, ... are of drafts of 1, 2, ... tokens.

    ``step_cost`` is in plain steps, drafting included, and empty where nothing was measured;
    ``has`` is the acceptance rate that is expected of drafts of that length, and empty before
    a draft was tested.
    """

    drafter: str
    longest: int
    plain_s: float | None = None
    step_cost: tuple[float, ...] = ()
    has: tuple[float, ...] = ()


def outlook(
    drafter: str,
    longest: int,
    costs: StepCosts,
    acceptance: AcceptanceModel,
    num_cells: int,
) -> Outlook:
    """The outlook of ``drafter`` behind ``num_cells`` cached tokens."""
    if not costs.is_measured:
        return Outlook(drafter, longest)
    step_s = costs.step_s(longest, drafter, num_cells=num_cells)
    step_cost = tuple(float(seconds / step_s[0]) for seconds in step_s[1:])
    has: tuple[float, ...] = ()
    if acceptance.is_tested:
        expected = acceptance.chances()[:longest].cumprod().cumsum()
        has = tuple(float(sum_) / length for length, sum_ in enumerate(expected, 1))
    return Outlook(drafter, longest, float(step_s[0]) * costs.pace, step_cost, has)
