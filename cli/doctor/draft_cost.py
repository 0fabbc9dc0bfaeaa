"""DraftCost: the seconds that a drafter takes for a draft, by its length."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from outrider.cli.bench.break_even import Drafts
from outrider.speculative.events import StepEvent
from outrider.speculative.settings import (
    DrafterSettings,
    GenerationSettings,
    SamplingSettings,
    SpeculationSettings,
)

if TYPE_CHECKING:
    from outrider.speculative.engine import Engine
    from outrider.speculative.session import Session

LENGTHS = (1, 3, 7, 15)
_NUM_STEPS = 8
_BUDGET_S = 1.5  # for one length: a busy machine may take seconds for a step
_NUM_UNTIMED = 2  # the first draft reads the prompt
_ACCEPTANCE = 0.6  # a drafter also reads what was accepted; about here it breaks even
TEXT = "The keeper of the lighthouse wrote down every ship that passed in the night. "


@dataclass(frozen=True, slots=True)
class DraftCost:
    """``draft_s`` are the seconds of a whole draft by its length, with what is read before it."""

    drafter: str
    draft_s: Mapping[int, float]

    def drafts(self, lengths: Sequence[int]) -> dict[int, Drafts]:
        """What a token of a draft costs at each length, on lines between the measured ones.

        Lengths beyond them are left out.
        """
        known = sorted(self.draft_s)
        inside = [length for length in lengths if known and known[0] <= length <= known[-1]]
        seconds = np.interp(inside, known, [self.draft_s[length] for length in known])
        pairs = zip(inside, seconds, strict=True)
        return {length: Drafts(token_s=float(draft_s) / length) for length, draft_s in pairs}

    @property
    def token_s(self) -> float:
        """Seconds of a token in the longest drafts."""
        longest = max(self.draft_s)
        return self.draft_s[longest] / longest


def measure_draft_cost(
    engine: Engine,
    session: Session,
    drafter: DrafterSettings,
    check: Callable[[], None] = lambda: None,
) -> DraftCost | None:
    """Have ``drafter`` draft alone, with coins instead of verification; ``check`` may raise.

    None where there is no room for a few drafts in the context, or it makes none.
    """
    measured: dict[int, float] = {}
    for length in reversed(LENGTHS):  # the longest first: its context has room for the others
        speculation = SpeculationSettings(
            n_max=length, adaptive=False, synth_len=1 + _ACCEPTANCE * length
        )
        engine.configure(speculation, (replace(drafter, n_max=None),))
        seconds = _seconds_of_drafts(engine, session, length, check)[_NUM_UNTIMED:]
        if seconds:
            measured[length] = median(seconds)
    return DraftCost(engine.drafter_names[0], measured) if measured else None


def _seconds_of_drafts(
    engine: Engine, session: Session, length: int, check: Callable[[], None]
) -> list[float]:
    """The time of each draft that is as long as it should be."""
    session.reset()
    settings = GenerationSettings(SamplingSettings(temp=0.0, ignore_eos=True), seed=1)
    seconds: list[float] = []
    drafted, draft_s = 0, 0.0
    deadline = time.perf_counter() + _BUDGET_S
    with contextlib.closing(session.generate(engine.encode(TEXT), settings)) as events:
        for event in events:
            check()
            stats = session.stats
            if isinstance(event, StepEvent) and stats.drafted - drafted == length:
                seconds.append(stats.draft_s - draft_s)
            drafted, draft_s = stats.drafted, stats.draft_s
            if stats.steps >= _NUM_STEPS or time.perf_counter() > deadline:
                break
    return seconds
