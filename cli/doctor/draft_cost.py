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

    In turns with plain steps and with steps of the same length whose tokens cost nothing.
    ``plain_s`` are the seconds of a decode of one row by the cost curve, which may come from
    another moment. ``check`` may raise.

    Returns:
        the seconds of a plain step beyond its decode; and the costs, n-gram drafts first. Left
        out is who makes no drafts, or finds no room for a few in the context.
    """
    models = [replace(one, n_max=None) for one in drafters if kind_of(one).is_model]
    # what a free draft costs is a hundredth of a step: once is enough
    budget_s = _BUDGET_S * (len(models) + 2) if models else 0.0
    rounds: list[tuple[StepTimes, ...]] = []
    for length in reversed(LENGTHS):  # the longest first: its context has room for the others
        given = SpeculationSettings(
            n_max=length, adaptive=False, synth_len=1 + _ACCEPTANCE * length
        )
        plain = StepTimes(SpeculationSettings(adaptive=False))
        free = StepTimes(given, (DrafterSettings("filler"),))
        ways = (plain, free, *(StepTimes(given, (model,)) for model in models))
        timed = time_in_turns(engine, session, ways, budget_s, check)
        if plain in timed and free in timed:
            rounds.append(tuple(timed))
    if not rounds:
        return 0.0, ()
    host_s = median(turn.host_s for plain, *_ in rounds for turn in plain.turns)
    return host_s, draft_costs(rounds, plain_s + host_s)


def draft_costs(rounds: Sequence[Sequence[StepTimes]], plain_s: float) -> tuple[DraftCost, ...]:
    """From plain steps, free drafts and those of models, a round for each length.

    Two parts: what a step takes beyond its decode, which is drafting, and by how much the decode
    is slower than one of free drafts, because the target keeps hidden states for the drafter.
    Both are compared within a turn. The second is a difference of two large figures: one part
    of the decode, from all lengths. ``plain_s`` are the seconds of a plain step.
    """
    beyond: dict[str, dict[int, float]] = {}  # in plain steps, by length
    slower: dict[str, list[float]] = {}  # in decodes of free drafts
    decodes: dict[int, float] = {}  # of free drafts, in plain steps
    for plain, free, *drafting in rounds:
        pairs = free.beside(plain)
        decodes[free.length] = median(own.decode_s / one.step_s for own, one in pairs)
        for way in (free, *drafting):
            name = N_GRAM if way is free else way.name
            hosts = ((own.host_s - one.host_s) / one.step_s for own, one in way.beside(plain))
            beyond.setdefault(name, {})[free.length] = median(hosts)
            added = (own.decode_s / one.decode_s - 1 for own, one in way.beside(free))
            slower.setdefault(name, []).extend(added)
    costs = []
    for name, by_length in beyond.items():
        kept = median(slower[name])
        steps = {n: max(0.0, host + kept * decodes[n]) for n, host in by_length.items()}
        costs.append(DraftCost(name, {n: plain_s * step for n, step in steps.items()}))
    return tuple(costs)
