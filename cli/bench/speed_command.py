"""What ``bench speed`` was asked, and the side that answers it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from outrider.cli.bench.arm import Arm, ArmSpec, arm_of
from outrider.cli.bench.engine_side import EngineSide, spec_with
from outrider.cli.bench.prompt_set import read_prompts
from outrider.cli.bench.replay import read_replay
from outrider.cli.bench.reply import Conversation, TurnError
from outrider.cli.bench.result import BenchResult
from outrider.cli.bench.server import Server
from outrider.cli.bench.speed import SpeedPlan, rows, run_speed, speed_settings
from outrider.cli.errors import UsageError
from outrider.cli.options import all_flags, flag_names

Tell = Callable[[str], None]

_RESERVED = {
    "messages": "--prompts",
    "model": "--model",
    "max_tokens": "--osl",
    "max_completion_tokens": "--osl",
    "n_predict": "--osl",
    "stream": "nothing, answers come whole",
}
_FOR_SERVERS = ("target.model", "sampling.temp", "sampling.seed", "chat.system")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedRequest:
    """The options of the command."""

    prompts: Path | None = None
    category: str | None = None
    limit: int | None = None
    osl: int = 256
    concurrency: int = 1
    extra_inputs: str | None = None
    rounds: int = 1
    replay: Path | None = None
    url: str | None = None
    timeout: float = 600.0
    profile: str | None = None
    overrides: Mapping[str, Any]

    def asked(self) -> dict[str, Any]:
        """How answers are made, as a saved result says it: temperature 0 and a fixed seed."""
        return {
            "osl": self.osl,
            "temp": self.overrides.get("sampling.temp", 0.0),
            "seed": self.overrides.get("sampling.seed") or 0,
            "extra_inputs": self._extra(),
            "category": self.category or "all",
            "limit": self.limit,
        }

    def _extra(self) -> dict[str, Any]:
        text = self.extra_inputs or "{}"
        try:
            extra = json.loads(text)
        except ValueError:
            extra = None
        if not isinstance(extra, dict):
            raise UsageError(f"--extra-inputs {text!r}: allowed: a JSON object")
        for name in _RESERVED.keys() & extra.keys():
            raise UsageError(f"--extra-inputs: {name!r} is set by {_RESERVED[name]}")
        return extra


def measure(request: SpeedRequest, tell: Tell) -> tuple[BenchResult, list[Conversation]]:
    """Ask everything; raises UsageError if nothing could start."""
    prompts = read_prompts(request.prompts).select(request.category, request.limit)
    plan = SpeedPlan(prompts, request.rounds, request.concurrency)
    ask = _ask_engine if request.url is None else _ask_server
    return ask(request, plan, tell)


def _ask_engine(
    request: SpeedRequest, plan: SpeedPlan, tell: Tell
) -> tuple[BenchResult, list[Conversation]]:
    asked = request.asked()
    fixed = (asked["osl"], asked["temp"], asked["seed"], asked["extra_inputs"])
    spec = spec_with(arm_of(request.profile, request.overrides), *fixed)
    with ExitStack() as stack:
        arm = stack.enter_context(
            Arm(
                "A",
                _with_room(spec, request.concurrency),
                # one for the warm-up beside those of the threads
                parallel=request.concurrency + 1 if request.concurrency > 1 else 1,
                progress=lambda stage, done: tell(f"loading {stage} {done:.0%}"),
            )
        )
        pool = arm.engine.pool() if request.concurrency > 1 else None
        if pool is not None:
            stack.callback(pool.close)
        models = arm.models()
        about = {
            "text": " ".join([spec.text, *_words(request.overrides)]),
            "profile": spec.profile.name,
            "flags": dict(request.overrides),
            "models": models,
            "drafters": list(arm.engine.drafter_names),
            "server": None,
        }
        asked["temp"], asked["seed"] = spec.profile.sampling.temp, spec.profile.sampling.seed
        asked["system"] = spec.profile.chat.system
        plan = _with_replay(plan, request.replay, str(models["target"]["sha256"]))
        conversations = _run(EngineSide(arm, pool), plan, tell, spec.text)
    is_synthetic = spec.profile.speculation.is_synthetic
    return _result(plan, asked, about, conversations, is_synthetic), conversations


def _with_room(spec: ArmSpec, concurrency: int) -> ArmSpec:
    """The same with as much context for each conversation as one alone would have."""
    target = spec.profile.target
    if concurrency == 1 or not target.ctx_size:
        return spec
    roomy = replace(target, ctx_size=target.ctx_size * concurrency)
    return replace(spec, profile=replace(spec.profile, target=roomy))


def _ask_server(
    request: SpeedRequest, plan: SpeedPlan, tell: Tell
) -> tuple[BenchResult, list[Conversation]]:
    _check_flags(request)
    asked, overrides = request.asked(), request.overrides
    model = overrides.get("target.model")
    body = {"temperature": asked["temp"], "seed": asked["seed"], **asked["extra_inputs"]}
    body |= {"max_tokens": request.osl, "stream": False}
    body |= {} if model is None else {"model": str(model.source)}
    asked["temp"], asked["seed"] = body["temperature"], body["seed"]
    asked["system"] = overrides.get("chat.system")
    server = Server(str(request.url), body, system=asked["system"], timeout=request.timeout)
    models = server.models()
    about = {
        "text": server.url,
        "profile": None,
        "flags": {},
        "models": models,
        "drafters": None,
        "server": server.facts(),
    }
    plan = _with_replay(plan, request.replay, None)
    conversations = _run(server, plan, tell, f"--url {server.url}")
    return _result(plan, asked, about, conversations, False), conversations


def _check_flags(request: SpeedRequest) -> None:
    given = [path for path in request.overrides if path not in _FOR_SERVERS]
    names = ["-P/--profile"] if request.profile else []
    for name in [*names, *map(flag_names, given)]:
        raise UsageError(
            f"{name}: with --url the server draws and drafts; allowed here: --model NAME, --temp,"
            " --seed, -sys, and request fields in --extra-inputs"
        )


def _words(overrides: Mapping[str, Any]) -> Iterator[str]:
    """The flags as they would be typed."""
    for path, value in overrides.items():
        flags = all_flags(path)
        if isinstance(value, bool):
            yield next(flag for flag in flags if flag.startswith("--no-") is not value)
            continue
        value = getattr(value, "source", value)
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        yield f"{flags[0]} {shlex.quote(text)}"


def _with_replay(plan: SpeedPlan, path: Path | None, model_hash: str | None) -> SpeedPlan:
    if path is None:
        return plan
    return replace(plan, replay=read_replay(path, plan.prompts, model_hash))


def _run(side: EngineSide | Server, plan: SpeedPlan, tell: Tell, name: str) -> list[Conversation]:
    try:
        return run_speed(side, plan, tell)
    except TurnError as error:
        raise UsageError(f"{name}: the warm-up is not answered: {error}") from None


def _result(
    plan: SpeedPlan,
    asked: Mapping[str, object],
    about: Mapping[str, object],
    conversations: Sequence[Conversation],
    is_synthetic: bool,
) -> BenchResult:
    return BenchResult(
        "speed",
        {"A": about},
        speed_settings(plan, asked),
        [one.as_json() for one in conversations],
        rows(conversations),  # a list: llama.cpp's speed_bench_compare.py reads that
        synthetic=is_synthetic,
    )
