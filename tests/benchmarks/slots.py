"""Many streams at once: aggregate tokens/s with drafts always, up to a limit, never, adaptive.

    python tests/benchmarks/slots.py MODEL.gguf [--drafter draft-eagle3 | --split] [--rounds 5]

Without ``--drafter`` (a) is measured: drafts of stated acceptance. ``filler`` with synthetic
acceptance has fixed lengths, which leaves nothing to adapt; so all arms draft with an oracle in
its place, which knows each answer and is wrong at a stated share of its positions (``--wrong``).
With a drafter (b) is measured: the real one. With ``--split`` it is one cache for all slots
against a part for each (``--no-kv-unified``).

In each round every arm answers as many prompts as there are streams, end tokens ignored, prompts
read anew. The arms go on in turns of a third of a second: a machine that is slow for a while is
slow for all of them. Tokens and time are counted from the first round in which no stream reads.
With ngram-mod they would share what it has seen: name another drafter.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

import numpy as np

from outrider.speculative.drafters.drafter import DrafterDefaults
from outrider.speculative.drafters.made_up import OracleDrafter
from outrider.speculative.engine import Engine
from outrider.speculative.events import FinishEvent, StepEvent
from outrider.speculative.generation import Generation
from outrider.speculative.proposal import DraftRequest, Proposal
from outrider.speculative.rounds import Rounds
from outrider.speculative.session import Session
from outrider.speculative.settings import (
    DrafterSettings,
    EngineSettings,
    GenerationSettings,
    ModelSettings,
    SamplingSettings,
    SpeculationSettings,
)

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.adaptive import EAGLE3, Clock, drafter_of, forget_pools, read_prompts
from benchmarks.turns import take_turns

STREAMS = (1, 2, 4, 8)
LIMIT = 2
ALWAYS, LIMITED, NEVER, ADAPTIVE = "always", f"limit {LIMIT}", "never", "adaptive"
ARMS = (ALWAYS, LIMITED, NEVER, ADAPTIVE)
SPLIT = ", a part each"
SPLIT_ARMS = (ALWAYS, ALWAYS + SPLIT, NEVER, NEVER + SPLIT)
CONTEXT = 8192


@dataclass(slots=True)
class Stream:
    """When it was asked for an answer, and what came when, by the clock of all."""

    asked: float
    came: list[tuple[float, int]] = field(default_factory=list)  # when, tokens
    token_ids: list[int] | None = None

    @property
    def num_emitted(self) -> int:
        return sum(count for _, count in self.came)


def generating_speed(streams: Sequence[Stream]) -> float:
    """Tokens a second of all together, from when the last of them had its first token."""
    start = max(stream.came[0][0] for stream in streams)
    later = [(when, count) for one in streams for when, count in one.came if when > start]
    return sum(count for _, count in later) / (max(later)[0] - start)


def whole_speed(streams: Sequence[Stream]) -> float:
    """The same over all the time, prompts included."""
    seconds = max(one.came[-1][0] for one in streams) - min(one.asked for one in streams)
    return sum(one.num_emitted for one in streams) / seconds


def begin_all(
    engine: Engine, sessions: Sequence[Session], prompts: Sequence[Sequence[int]], num_tokens: int
) -> tuple[Rounds, list[Generation]]:
    """Every prompt on a session of its own, to be read anew."""
    asked = GenerationSettings(SamplingSettings(temp=0, ignore_eos=True), predict=num_tokens)
    for session in sessions:
        session.reset()
    rounds = engine.rounds()
    generations = [
        session.begin(prompt, asked) for session, prompt in zip(sessions, prompts, strict=False)
    ]
    for generation in generations:
        rounds.join(generation)
    return rounds, generations


def answer_all(
    engine: Engine, sessions: Sequence[Session], prompts: Sequence[Sequence[int]], num_tokens: int
) -> list[Stream]:
    """All of them together."""
    forget_pools()
    asked = time.perf_counter()
    rounds, generations = begin_all(engine, sessions, prompts, num_tokens)
    streams = {generation: Stream(asked) for generation in generations}
    with closing(rounds):
        while rounds.num_running:
            for generation, events in rounds.advance():
                now = time.perf_counter()
                for event in events:
                    if isinstance(event, StepEvent) and event.token_ids:
                        streams[generation].came.append((now, len(event.token_ids)))
                    elif isinstance(event, FinishEvent):
                        streams[generation].token_ids = event.result.token_ids
    return list(streams.values())


class Run:
    """The prompts of some streams in one engine, which is let go on for a moment at a time.

    What counts are the rounds in which all streams generate or have ended.
    """

    def __init__(
        self,
        engine: Engine,
        sessions: Sequence[Session],
        prompts: Sequence[Sequence[int]],
        num_tokens: int,
    ) -> None:
        self._rounds, self._generations = begin_all(engine, sessions, prompts, num_tokens)
        self._seconds, self._num_tokens = 0.0, 0

    @property
    def is_over(self) -> bool:
        return not self._rounds.num_running

    @property
    def speed(self) -> float:
        """Tokens a second of all streams together."""
        return self._num_tokens / self._seconds

    def go_on(self, seconds: float) -> None:
        end = time.perf_counter() + seconds
        while not self.is_over and (started := time.perf_counter()) < end:
            is_reading = any(one.is_reading for one in self._generations)
            told = self._rounds.advance()
            if is_reading:
                continue
            self._seconds += time.perf_counter() - started
            events = [event for _, events in told for event in events]
            self._num_tokens += sum(len(e.token_ids) for e in events if isinstance(e, StepEvent))

    def close(self) -> None:
        self._rounds.close()


class SlotOracle(DrafterDefaults):
    """An oracle for each slot."""

    name = "oracle"

    def __init__(self, n_max: int) -> None:
        self.n_max = n_max
        self.oracles: Mapping[int, OracleDrafter] = {}

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        return [self.oracles[request.seq_id].propose([request])[0] for request in requests]


class Arm:
    """An engine of one way to draft."""

    def __init__(
        self, name: str, target: ModelSettings, drafter: DrafterSettings, n_max: int
    ) -> None:
        speculation = SpeculationSettings(
            n_max=n_max,
            adaptive=name == ADAPTIVE,
            max_slots=LIMIT if name == LIMITED else 0,
        )
        if name.endswith(SPLIT):
            target = replace(target, kv_unified=False)
        drafters = () if name.startswith(NEVER) else (drafter,)
        self.name = name
        self.engine = Engine.load(
            EngineSettings(target, drafters, speculation, parallel=max(STREAMS))
        )
        self.sessions = [self.engine.session() for _ in range(max(STREAMS))]
        self.oracle = None
        if drafter.kind == "oracle" and drafters:
            self.oracle = SlotOracle(n_max)
            self.engine._running.drafter.members[:] = [self.oracle]

    def tell(self, oracles: Mapping[int, OracleDrafter]) -> None:
        if self.oracle is not None:
            self.oracle.oracles = oracles


def main() -> None:
    arguments = parse()
    target = ModelSettings(arguments.model, ctx_size=CONTEXT, threads=arguments.threads)
    drafter = DrafterSettings("oracle", options={"answer": (), "prompt_length": 0})
    if arguments.drafter:
        drafter = drafter_of(arguments.drafter, target, arguments.eagle3, Path())
    names = SPLIT_ARMS if arguments.split else ARMS
    with ExitStack() as stack:
        arms = [Arm(name, target, drafter, arguments.n_max) for name in names]
        for arm in arms:
            stack.enter_context(arm.engine)
        prompts = given_prompts(arms[0].engine, arguments.chars)
        never = next(arm for arm in arms if arm.name == NEVER)
        # known to the oracles; the first decodes of a context take longer, too
        plain = answer_all(never.engine, never.sessions, prompts, arguments.tokens)
        wrong = arguments.wrong
        oracles = {
            seq_id: oracle(stream, prompt, wrong, seq_id, arguments.n_max)
            for seq_id, (stream, prompt) in enumerate(zip(plain, prompts, strict=True))
        }
        for arm in arms:
            arm.tell(oracles)
            answer_all(arm.engine, arm.sessions, prompts, 8)
        speeds = measure(arms, prompts, arguments.rounds, arguments.tokens)
    name = arguments.drafter or f"oracle, wrong at {wrong:.0%}"
    print_table(f"{name}, n_max {arguments.n_max}", speeds)
    if arguments.output:
        rows = [[arm, count, values] for (arm, count), values in speeds.items()]
        arguments.output.write_text(json.dumps(rows))


def measure(
    arms: Sequence[Arm], prompts: Sequence[Sequence[int]], num_rounds: int, num_tokens: int
) -> dict[tuple[str, int], list[float]]:
    """Tokens a second by arm and number of streams, one a round."""
    speeds: dict[tuple[str, int], list[float]] = {}
    clock = Clock(num_rounds * len(STREAMS))
    for number in range(num_rounds):
        for count in STREAMS:
            taken = speeds_of(arms, prompts[:count], num_tokens, number)
            for name, speed in taken.items():
                speeds.setdefault((name, count), []).append(speed)
            words = ", ".join(f"{name} {speed:.1f}" for name, speed in taken.items())
            clock.tick(f"{count} streams: {words} tok/s")
    return speeds


def speeds_of(
    arms: Sequence[Arm], prompts: Sequence[Sequence[int]], num_tokens: int, seed: int
) -> dict[str, float]:
    """Tokens a second of each arm; all go on in turns, so that they share the machine's moods."""
    forget_pools()
    with ExitStack() as stack:
        runs = {
            arm.name: stack.enter_context(
                closing(Run(arm.engine, arm.sessions, prompts, num_tokens))
            )
            for arm in arms
        }
        take_turns(list(runs.values()), seed)
        return {name: run.speed for name, run in runs.items()}


def print_table(title: str, speeds: Mapping[tuple[str, int], Sequence[float]]) -> None:
    """Medians in Markdown; adaptive beside the best of the others, in the same column."""
    print(f"| {title} | {' | '.join(f'{count} streams' for count in STREAMS)} |")
    print("|---|" + "---|" * len(STREAMS))
    arms = tuple(dict.fromkeys(arm for arm, _ in speeds))
    for arm in arms:
        print(f"| {arm} | {' | '.join(f'{median(speeds[arm, n]):.1f}' for n in STREAMS)} |")
    if ADAPTIVE not in arms:
        return
    ratios = []
    for count in STREAMS:
        best = max(set(arms) - {ADAPTIVE}, key=lambda arm: median(speeds[arm, count]))
        rounds = zip(speeds[ADAPTIVE, count], speeds[best, count], strict=True)
        ratios.append(f"{median(a / b for a, b in rounds):.3f}")
    print(f"| adaptive / best | {' | '.join(ratios)} |")


def oracle(
    stream: Stream, prompt: Sequence[int], wrong: float, seq_id: int, n_max: int
) -> OracleDrafter:
    """Knows the answer of a stream, and errs at a share of its positions."""
    assert stream.token_ids is not None
    draws = np.random.default_rng(seq_id).random(len(stream.token_ids))
    places = np.flatnonzero(draws < wrong).tolist()
    return OracleDrafter(stream.token_ids, len(prompt), places, n_max)


def given_prompts(engine: Engine, num_chars: int) -> list[list[int]]:
    """One for each stream: the beginnings of those in workloads.jsonl."""
    texts = [one.messages[-1]["content"][:num_chars] for one in read_prompts(None)]
    return [engine.render([{"role": "user", "content": text}]) for text in texts[: max(STREAMS)]]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--drafter", help="draft-eagle3, self, ...; the oracle by default")
    parser.add_argument("--wrong", type=float, default=0.4)
    parser.add_argument("--split", action="store_true", help="--no-kv-unified instead of lengths")
    parser.add_argument("--n-max", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--chars", type=int, default=400, help="of each prompt")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--eagle3", type=Path, default=EAGLE3, help="draft model of that kind")
    parser.add_argument("-o", "--output", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
