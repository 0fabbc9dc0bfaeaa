"""StepTimes: how long the steps of an answer take, several ways to draft in turns."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

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

_NUM_STEPS = 8  # of a turn
_NUM_UNTIMED = 2  # the first draft reads the prompt
_TURN_S = 1.0  # a busy machine may take seconds for a step
TEXT = "The keeper of the lighthouse wrote down every ship that passed in the night. "


@dataclass(frozen=True, slots=True)
class Turn:
    """A step of a few that followed one another, in seconds: medians.

    ``host_s`` is what it takes beyond its decode.
    """

    decode_s: float
    host_s: float

    @property
    def step_s(self) -> float:
        return self.decode_s + self.host_s


@dataclass(slots=True, eq=False)
class StepTimes:
    """The steps of one way to draft.

    Those count whose drafts are of ``length``; 0 is plain decoding.
    """

    speculation: SpeculationSettings
    drafters: tuple[DrafterSettings, ...] = ()
    name: str = ""
    turns: list[Turn] = field(default_factory=list)

    @property
    def length(self) -> int:
        return self.speculation.n_max or 0 if self.drafters else 0

    def beside(self, other: StepTimes) -> Iterator[tuple[Turn, Turn]]:
        """Each turn with the one that the other had in the same round."""
        return zip(self.turns, other.turns, strict=True)

    def take_turn(self, engine: Engine, session: Session, check: Callable[[], None]) -> None:
        """Answer for a few steps; ``check`` may raise after each."""
        engine.configure(self.speculation, self.drafters)
        self.name = "".join(engine.drafter_names)
        session.reset()
        settings = GenerationSettings(SamplingSettings(temp=0.0, ignore_eos=True), seed=1)
        drafted, decode_s = 0, 0.0
        times: list[tuple[float, float]] = []
        deadline = time.perf_counter() + _TURN_S
        with contextlib.closing(session.generate(engine.encode(TEXT), settings)) as events:
            started = time.perf_counter()
            for event in events:
                ended = time.perf_counter()
                check()
                stats = session.stats
                is_whole = isinstance(event, StepEvent) and stats.drafted - drafted == self.length
                if is_whole and stats.steps > _NUM_UNTIMED:
                    verify_s = stats.verify_s - decode_s
                    times.append((verify_s, ended - started - verify_s))
                drafted, decode_s = stats.drafted, stats.verify_s
                started = time.perf_counter()
                if stats.steps >= _NUM_UNTIMED + _NUM_STEPS or started > deadline:
                    break
        if times:
            decodes, hosts = zip(*times, strict=True)
            self.turns.append(Turn(median(decodes), median(hosts)))


def time_in_turns(
    engine: Engine,
    session: Session,
    ways: Sequence[StepTimes],
    budget_s: float,
    check: Callable[[], None],
) -> list[StepTimes]:
    """Time the steps of several ways, for about so many seconds but each of them once.

    Returns:
        those that had steps that count in every turn.
    """
    started, num_turns = time.perf_counter(), 0
    left = list(ways)
    while left:
        for way in left:
            way.take_turn(engine, session, check)
        num_turns += 1
        left = [way for way in left if len(way.turns) == num_turns]
        if time.perf_counter() - started > budget_s:
            break
    return left
