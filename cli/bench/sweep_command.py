"""``bench sweep``: from what was asked to what is saved and shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from outrider.cli.bench.arm import ArmSpec
from outrider.cli.bench.break_even import BreakEven, break_even, verify_times
from outrider.cli.bench.candidates import Axes, Candidate, grid
from outrider.cli.bench.picture import picture
from outrider.cli.bench.prompt_set import read_prompts
from outrider.cli.bench.result import BenchResult
from outrider.cli.bench.show import Tell, finish, live_row
from outrider.cli.bench.sweep import Standing, halve
from outrider.cli.bench.sweep_outcome import (
    SweepOutcome,
    answer_json,
    drafts_by_length,
    family,
    same_text,
    sweep_rows,
)
from outrider.cli.bench.sweep_run import PREDICT, SweepRun, check_prompts, mixed
from outrider.cli.bench.sweep_view import sweep_lines, winner_words
from outrider.cli.bench.winner import reserved, snippet, write
from outrider.cli.errors import UsageError, printable, say
from outrider.profiles.load import load_profile

WARM_UP = "a short answer before each turn of a candidate, not counted"


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """What is asked; ``prompts`` None is the built-in set."""

    spec: ArmSpec
    axes: Axes
    prompts: Path | None = None
    num_rounds: int = 2
    write: str | None = None
    chart: Path | None = None


def run_sweep(request: SweepRequest, as_json: bool, output: str | None) -> int:
    """Measure, save and show; what cannot be written is told before anything is measured."""
    name = request.spec.profile.name
    draw = None if request.chart is None else picture(request.chart)
    with reserved(request.write, name) as path:
        with live_row() as tell:
            outcome, result = measure(request, tell)
        if path is not None:
            write(path, outcome.snippet, winner_words(outcome))
    if draw is not None:
        draw(outcome, f"{name}, outrider bench sweep")
    finish(
        result,
        lambda glyphs: sweep_lines(outcome, glyphs, name=name, hint=path is None),
        as_json,
        output,
    )
    if path is not None:
        say(printable(f"saved {path}: outrider chat -P {path.stem}"))
    return 0


def measure(request: SweepRequest, tell: Tell) -> tuple[SweepOutcome, BenchResult]:
    """Try every candidate and take stock."""
    profile = request.spec.profile
    if profile.speculation.is_synthetic:
        raise UsageError("bench sweep: the profile asks for synthetic acceptance; leave it out")
    candidates = grid(profile, request.axes)
    prompts = read_prompts(request.prompts)
    check_prompts(prompts.samples, len(candidates))
    with SweepRun(
        candidates, mixed(prompts.samples), request.num_rounds, request.spec.text, tell
    ) as run:
        standings = halve(len(candidates), request.num_rounds, run.ask)
        if not standings[0].ratio.num_pairs:
            raise UsageError("the answers are too short to be timed; give other --prompts")
        tell("measuring the cost of batches")
        costs = _break_even(run, standings)
        models = [run.models(index) for index in range(len(candidates))]
    outcome = _outcome(request, run, standings, costs)
    result = BenchResult(
        kind="sweep",
        arms={
            candidate.label: {
                "profile": request.spec.text,
                "flags": request.spec.overrides,
                "models": models[index],
                "settings": _settings(candidate),
            }
            for index, candidate in enumerate(candidates)
        },
        settings={
            "rounds": request.num_rounds,
            "prompts": prompts.name,
            "prompts_sha256": prompts.sha256,
            "predict": profile.sampling.predict if profile.sampling.predict > 0 else PREDICT,
            "temp": profile.sampling.temp,
            "warm_up": WARM_UP,
            "order": "candidates in turn, the next block of prompts in the opposite order",
        },
        rounds=[answer_json(answer, candidates) for answer in run.answers],
        summary=outcome.summary(),
    )
    return outcome, result


def _settings(candidate: Candidate) -> Mapping[str, object]:
    profile, speculation = candidate.profile, candidate.profile.speculation
    return {
        **candidate.values,
        "drafter_kinds": [drafter.kind for drafter in profile.drafters],
        "n_max": speculation.n_max,
        "adaptive": speculation.adaptive,
        "p_min": speculation.p_min,
        "verify": speculation.verify,
        "threads": profile.target.threads,
    }


def _outcome(
    request: SweepRequest,
    run: SweepRun,
    standings: Sequence[Standing],
    costs: tuple[BreakEven, ...],
) -> SweepOutcome:
    rows = sweep_rows(run.candidates, standings, run.answers)
    best = rows[standings[0].candidate]
    equal = tuple(row for row in rows if row is not best and not row.standing.is_slower)
    return SweepOutcome(
        rows=rows,
        best=best,
        equal=equal,
        same_text=same_text(run.answers) if request.spec.profile.sampling.temp == 0 else None,
        break_even=costs,
        snippet=snippet(best.candidate.profile, load_profile(request.spec.profile.name)),
    )


def _break_even(run: SweepRun, standings: Sequence[Standing]) -> tuple[BreakEven, ...]:
    """For the fastest way to draft: each drafter of its chain."""
    members = family(run.candidates, standings)
    if not members:
        return ()
    longest = max(members, key=lambda index: run.candidates[index].length or 0)
    engine = run.arm(longest).engine
    names = engine.drafter_names
    drafts = {name: drafts_by_length(name, run.candidates, members, run.answers) for name in names}
    lengths = [length for length in next(iter(drafts.values()))[1] if length < engine.max_batch]
    verify_s = verify_times(engine.time_batch, [1, *(length + 1 for length in sorted(lengths))])
    return tuple(
        break_even(name, verify_s, token_s, {length: made[length] for length in lengths})
        for name, (token_s, made) in drafts.items()
    )
