"""DraftCost: the seconds that a step with a draft takes beyond its decode, by draft length."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from outrider.cli.bench.break_even import Drafts
from outrider.cli.doctor.step_times import StepTimes, time_in_turns
from outrider.speculative.drafters.build import kind_of
from outrider.speculative.settings import DrafterSettings, SpeculationSettings

if TYPE_CHECKING:
    from outrider.speculative.engine import Engine
    from outrider.speculative.session import Session

LENGTHS = (1, 3, 7, 15)
N_GRAM = "n-gram"
"""Any drafter that drafts from the text so far: its drafts cost nothing."""

_BUDGET_S = 1.0  # for one length and one way to draft
_ACCEPTANCE = 0.6  # a drafter also reads what was accepted; about here it breaks even


@dataclass(frozen=True, slots=True)
class DraftCost:
    """``draft_s`` are the seconds that a whole draft adds to a step, by its length.

    What is read before it, and what the program has more to do, are parts of it.
    """

    drafter: str
    draft_s: Mapping[int, float]

    def drafts(self, lengths: Sequence[int]) -> dict[int, Drafts]:
        """What a token of a draft costs at each length, on lines between the measured ones.

        Lengths beyond them are left out, but for n-gram drafts, which cost the same however long.
        """
        known = sorted(self.draft_s)
        longest = math.inf if self.drafter == N_GRAM else known[-1]
        inside = [length for length in lengths if known[0] <= length <= longest]
        seconds = np.interp(inside, known, [self.draft_s[length] for length in known])
        pairs = zip(inside, seconds, strict=True)
        return {length: Drafts(token_s=float(draft_s) / length) for length, draft_s in pairs}

    @property
    def token_s(self) -> float:
        """Seconds of a token in the longest drafts."""
        longest = max(self.draft_s)
        return self.draft_s[longest] / longest


def measure_draft_costs(
    engine: Engine,
    session: Session,
    drafters: Sequence[DrafterSettings],
    plain_s: float,
    check: Callable[[], None] = lambda: None,
) -> tuple[float, tuple[DraftCost, ...]]:
    """Have each of the drafters that are models draft alone, with coins instead of verification.

    In turns with plain steps and with steps of the same length whose tokens cost nothing: by
    how many plain steps those with a drafter take longer is what it costs, the hidden states
    that the target keeps for it included. ``plain_s`` are the seconds of a decode of one row by
    the cost curve, which may come from another moment. ``check`` may raise.

    Returns:
        the seconds of a plain step beyond its decode; and the costs, n-gram drafts first. Left
        out is who makes no drafts, or finds no room for a few in the context.
    """
    models = [replace(one, n_max=None) for one in drafters if kind_of(one).is_model]
    hosts: list[float] = []
    measured: dict[str, dict[int, float]] = {}
    for length in reversed(LENGTHS):  # the longest first: its context has room for the others
        given = SpeculationSettings(
            n_max=length, adaptive=False, synth_len=1 + _ACCEPTANCE * length
        )
        plain = StepTimes(SpeculationSettings(adaptive=False))
        free, *drafting = (StepTimes(given, (one,)) for one in (DrafterSettings("filler"), *models))
        ways = (plain, free, *drafting)
        timed = time_in_turns(engine, session, ways, _BUDGET_S * len(ways), check)
        if plain not in timed or free not in timed:
            continue
        host_s = median(plain.host_s)
        hosts.append(host_s)
        free_s = median(free.host_s) - host_s
        measured.setdefault(N_GRAM, {})[length] = max(free_s, 0.0)
        for way in drafting:
            if way in timed:
                added_s = (way.cost(plain) - free.cost(plain)) * (plain_s + host_s)
                measured.setdefault(way.name, {})[length] = max(free_s + added_s, 0.0)
    costs = tuple(DraftCost(name, draft_s) for name, draft_s in measured.items())
    return median(hosts) if hosts else 0.0, costs
