"""Host time of a step outside llama.cpp's decode and synchronisation.

    python tests/benchmarks/host_time.py MODEL.gguf [--steps 500] [--accept | --plain] [--temp 0.8]

A ``script`` drafter proposes three tokens a step, greedy verification; with ``--accept`` an
``oracle`` drafter proposes the target's own tokens instead, so that all four rows are read; with
``--plain`` there is no drafter. Above temperature 0 it is the default sampler chain, with a seed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from statistics import median, quantiles
from typing import ParamSpec, TypeVar

from outrider.speculative.engine import Engine
from outrider.speculative.events import FinishEvent, StepEvent
from outrider.speculative.llama import NativeContext
from outrider.speculative.settings import (
    DrafterSettings,
    EngineSettings,
    GenerationSettings,
    ModelSettings,
    SamplingSettings,
    SpeculationSettings,
)

P = ParamSpec("P")
R = TypeVar("R")
LENGTH = 3
PROMPT = "Once upon a time"
native_s = 0.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--temp", type=float, default=0.0)
    drafts = parser.add_mutually_exclusive_group()
    drafts.add_argument("--accept", action="store_true")
    drafts.add_argument("--plain", action="store_true")
    arguments = parser.parse_args()
    for name in ("decode", "logits"):
        setattr(NativeContext, name, timed(getattr(NativeContext, name)))
    target = ModelSettings(arguments.model, ctx_size=4096)
    num_tokens = arguments.steps * (LENGTH + 1) + 2 if arguments.accept else arguments.steps + 2
    sampling = SamplingSettings(temp=arguments.temp)
    settings = GenerationSettings(sampling, predict=min(num_tokens, 4000), seed=1)
    drafters = [DrafterSettings("script", options={"drafts": [[1, 2, 3]] * num_tokens})]
    if arguments.accept:
        drafters = [oracle(target, settings)]
    if arguments.plain:
        drafters = []
    speculation = SpeculationSettings(adaptive=False, n_max=LENGTH)
    with Engine.load(EngineSettings(target, tuple(drafters), speculation)) as engine:
        host_ms = measure(engine, engine.encode(PROMPT), settings)
    tenths = quantiles(host_ms, n=10)
    print(
        f"{arguments.model.name}: {len(host_ms)} steps, host time median"
        f" {median(host_ms):.3f} ms, 90 % below {tenths[-1]:.3f} ms"
    )


def oracle(target: ModelSettings, settings: GenerationSettings) -> DrafterSettings:
    """A drafter that knows what plain decoding answers."""
    with Engine.load(EngineSettings(target)) as engine:
        prompt = engine.encode(PROMPT)
        *_, last = engine.session().generate(prompt, settings)
    assert isinstance(last, FinishEvent)
    answer = last.result.token_ids
    return DrafterSettings("oracle", options={"answer": answer, "prompt_length": len(prompt)})


def measure(engine: Engine, prompt: list[int], settings: GenerationSettings) -> list[float]:
    global native_s
    times = []
    started, native_s = time.perf_counter(), 0.0
    for event in engine.session().generate(prompt, settings):
        ended = time.perf_counter()
        if isinstance(event, StepEvent):
            times.append(1e3 * (ended - started - native_s))
        started, native_s = time.perf_counter(), 0.0
    return times[1:]


def timed(function: Callable[P, R]) -> Callable[P, R]:
    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        global native_s
        started = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            native_s += time.perf_counter() - started

    return wrapper


if __name__ == "__main__":
    main()
