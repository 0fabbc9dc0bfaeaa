"""Thread counts for target and drafter, and drafting ahead while the target verifies.

    python tests/benchmarks/ahead.py TARGET.gguf DRAFTER.gguf [--rounds 60] [--tokens 3]

DRAFTER is a model for ``draft-simple``, the target's own file for ``self``. A round drafts and
verifies once behind the same text; the ways take turns. One after the other: ``2,1`` drafts with
one thread and verifies with two. ``at once``: the target verifies in this thread while the
drafter drafts in another, with one thread each, and the round ends when both are done. Such a
draft is of use only if the whole draft before it was accepted and the token after it guessed,
so being faster here is not yet being faster.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median, quantiles

import numpy as np

from outrider.speculative.batch_outputs import Block
from outrider.speculative.llama_runner import LlamaRunner
from outrider.speculative.model_store import ModelStore, Role
from outrider.speculative.settings import ModelSettings

CONTEXT = 1024
AHEAD = "at once, 1 and 1"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("target", type=Path)
    parser.add_argument("drafter", type=Path)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--tokens", type=int, default=3, help="draft length")
    parser.add_argument("--depth", type=int, default=256, help="tokens in the caches")
    arguments = parser.parse_args()
    models = ModelStore(lambda _stage, _fraction: None)
    target = {n: runner(models, arguments.target, "target", n, arguments) for n in (1, 2)}
    drafter = {n: runner(models, arguments.drafter, "drafter", n, arguments) for n in (1, 2)}
    ways = {
        f"{one},{other}": sequential(target[one], drafter[other], arguments.tokens)
        for one, other in ((2, 2), (2, 1), (1, 1))
    }
    with ThreadPoolExecutor(1) as pool:
        ways[AHEAD] = at_once(target[1], drafter[1], arguments.tokens, pool)
        times = measure(ways, arguments.rounds)
    print(f"{'':<18} {'round ms':>9} {'10 %':>6} {'90 %':>6} {'draft ms':>9} {'verify ms':>10}")
    for way, rows in times.items():
        rounds, drafts, verifies = zip(*rows, strict=True)
        tenths = quantiles(rounds, n=10)
        print(
            f"{way:<18} {median(rounds):9.2f} {tenths[0]:6.2f} {tenths[-1]:6.2f}"
            f" {median(drafts):9.2f} {median(verifies):10.2f}"
        )
    best = min((way for way in ways if way != AHEAD), key=lambda way: total_ms(times[way]))
    gain = total_ms(times[best]) / total_ms(times[AHEAD])
    print(f"drafting ahead: {gain:.2f} times the rounds of {best}; load {os.getloadavg()[0]:.1f}")
    for one in (*target.values(), *drafter.values()):
        one.close()
    models.close()


Times = tuple[float, float, float]
"""Milliseconds of a round, of its draft, of its verification."""
Way = Callable[[], Times]


def runner(
    models: ModelStore, path: Path, role: Role, threads: int, arguments: argparse.Namespace
) -> LlamaRunner:
    """A context with some text in its cache."""
    settings = ModelSettings(path, threads=threads)
    model = models.get(settings, role)
    made = LlamaRunner(model, settings, n_ctx=CONTEXT, max_outputs=1 + arguments.tokens)
    text = np.random.default_rng(1).integers(10, made.vocab_size, arguments.depth)
    made.decode([Block(0, text.astype(np.int32), 0, 1)])
    return made


def draft(drafter: LlamaRunner, num_tokens: int) -> float:
    """Milliseconds to draft greedily, one token a decode."""
    started, depth, token = time.perf_counter(), drafter.cached_length(0), 1
    for position in range(depth, depth + num_tokens):
        block = Block(0, np.array([token], np.int32), position, 1)
        token = int(drafter.decode([block]).logits(block)[0].argmax())
    drafter.truncate(0, depth)
    return 1e3 * (time.perf_counter() - started)


def verify(target: LlamaRunner, num_tokens: int) -> float:
    """Milliseconds to decode a draft and the token before it, and to read all rows."""
    started, depth = time.perf_counter(), target.cached_length(0)
    block = Block(0, np.ones(1 + num_tokens, np.int32), depth, 1 + num_tokens)
    target.decode([block]).logits(block).argmax(axis=1)
    target.truncate(0, depth)
    return 1e3 * (time.perf_counter() - started)


def sequential(target: LlamaRunner, drafter: LlamaRunner, num_tokens: int) -> Way:
    def way() -> Times:
        draft_ms, verify_ms = draft(drafter, num_tokens), verify(target, num_tokens)
        return draft_ms + verify_ms, draft_ms, verify_ms

    return way


def at_once(
    target: LlamaRunner, drafter: LlamaRunner, num_tokens: int, pool: ThreadPoolExecutor
) -> Way:
    def way() -> Times:
        started = time.perf_counter()
        drafted = pool.submit(draft, drafter, num_tokens)
        verify_ms = verify(target, num_tokens)
        draft_ms = drafted.result()
        return 1e3 * (time.perf_counter() - started), draft_ms, verify_ms

    return way


def measure(ways: dict[str, Way], num_rounds: int) -> dict[str, list[Times]]:
    times: dict[str, list[Times]] = {name: [] for name in ways}
    names = list(ways)
    for number in range(-3, num_rounds):  # the first rounds allocate
        first = number % len(names)
        for name in (*names[first:], *names[:first]):
            once = ways[name]()
            if number >= 0:
                times[name].append(once)
    return times


def total_ms(times: list[Times]) -> float:
    """Median of the rounds."""
    return median(once[0] for once in times)


if __name__ == "__main__":
    main()
