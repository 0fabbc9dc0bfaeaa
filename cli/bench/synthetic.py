"""``bench synthetic``: the machinery at a chosen acceptance, without a good drafter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from operator import mul
from statistics import median

from outrider.cli.bench.arm import Arm, ArmSpec
from outrider.cli.bench.result import BenchResult
from outrider.cli.errors import UsageError
from outrider.cli.glyphs import Glyphs
from outrider.cli.stats_view import SYNTHETIC, plural
from outrider.profiles.load import override
from outrider.speculative.statistics import SpeculationStats

_CHUNK = 64  # steps between two looks at the price of a plain batch
_PROMPT = "Write a long story about a lighthouse, a storm and a ship that comes home late."


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive steps, and a plain batch of as many rows as a full step right after them.

    ``steps_s`` is the time of all the steps, ``decode_s`` the part of it that the target's
    decodes took, ``batch_s`` that of one batch and nothing else.
    """

    steps: int
    steps_s: float
    decode_s: float
    batch_s: float


@dataclass(frozen=True, slots=True)
class SyntheticRun:
    """What came out: counts and times, and the rates that were asked for."""

    n_max: int
    rates: tuple[float, ...]
    stats: SpeculationStats
    chunks: tuple[Chunk, ...]
    models: Mapping[str, object]

    @property
    def wanted_length(self) -> float:
        return 1 + sum(self.rates)

    @property
    def step_s(self) -> float:
        """Seconds of a step, the median over the chunks."""
        return median(chunk.steps_s / chunk.steps for chunk in self._timed)

    @property
    def batch_s(self) -> float:
        return median(chunk.batch_s for chunk in self._timed)

    @property
    def tokens_per_s(self) -> float:
        """Tokens of a step over its time."""
        return (self.stats.emitted / self.stats.steps) / self.step_s

    @property
    def _timed(self) -> tuple[Chunk, ...]:
        return self.chunks[1:] or self.chunks

    def summary(self) -> dict[str, object]:
        return {
            "n_max": self.n_max,
            "wanted_mean_accepted_length": self.wanted_length,
            "mean_accepted_length": self.stats.mean_accepted_length,
            "wanted_rates": list(self.rates),
            "rates": self.stats.accepted_per_position,
            "steps": self.stats.steps,
            "drafts": self.stats.drafts,
            "drafted": self.stats.drafted,
            "accepted": self.stats.accepted,
            "acceptance_rate": self.stats.acceptance_rate,
            "step_s": self.step_s,
            "plain_batch_s": self.batch_s,
            "step_to_plain_batch": self.step_s / self.batch_s,
            "tokens_per_s": self.tokens_per_s,
        }


def run_synthetic(spec: ArmSpec, num_steps: int, tell: Callable[[str], None]) -> SyntheticRun:
    """Take ``num_steps`` steps, in a text that begins anew when the context is full.

    End tokens are ignored; the drafter is ``filler`` unless one was named. The times of the
    first chunk are a warm-up and left out.

    Raises:
        InputError: rates or a length that are not possible.
        UsageError: the context is too short.
    """
    with Arm("synthetic", _with_filler(spec)) as arm:
        engine, total, chunks = arm.engine, SpeculationStats(), list[Chunk]()
        start = text = arm.encode([{"role": "user", "content": _PROMPT}])
        room = (_CHUNK + 1) * (engine.max_draft + 1)
        if len(start) + room > engine.n_ctx:
            raise UsageError(
                f"-c {engine.n_ctx}: too short to measure in, needs {len(start) + room}"
            )
        while total.steps < num_steps:
            if len(text) + room > engine.n_ctx:
                text = start
            settings = arm.settings(text, predict=-1, ignore_eos=True, seed=len(chunks))
            token_ids, stats, timings = arm.steps(
                text, settings, min(_CHUNK, num_steps - total.steps)
            )
            text = [*text, *token_ids]
            batch_s = median(engine.time_batch(engine.max_draft + 1) for _ in range(5))
            total.merge(stats)
            chunks.append(Chunk(stats.steps, timings.generation_s, stats.verify_s, batch_s))
            tell(f"step {total.steps:,} of {num_steps:,}")
        rates = tuple(accumulate(engine.acceptance_chances or (), mul))
        return SyntheticRun(engine.max_draft, rates, total, tuple(chunks), arm.models())


def _with_filler(spec: ArmSpec) -> ArmSpec:
    """The same with the drafter that always drafts, where none was asked for."""
    if any(path.startswith("drafter.") for path in spec.overrides):
        return spec
    return replace(spec, profile=override(spec.profile, {"drafter.kinds": ("filler",)}))


def result_of(run: SyntheticRun, spec: ArmSpec) -> BenchResult:
    """The run as it is saved."""
    arm = {"text": spec.text, "flags": dict(spec.overrides), "models": run.models}
    return BenchResult(
        "synthetic",
        {"A": arm},
        {"n_max": run.n_max, "rates": list(run.rates)},
        [asdict(chunk) for chunk in run.chunks],
        run.summary(),
        synthetic=True,
    )


def table(run: SyntheticRun, glyphs: Glyphs) -> list[str]:
    """What was asked for beside what came, and the price of a step."""
    stats, dash = run.stats, glyphs.dash
    rows = [
        SYNTHETIC,
        f"{plural(stats.steps, 'step')}, drafts of {run.n_max}, the first chunk of times left out",
        "                     asked for   measured",
        f"mean accepted length {run.wanted_length:>9.2f}  {stats.mean_accepted_length or 1:>9.3f}",
    ]
    for position, wanted in enumerate(run.rates):
        rates = stats.accepted_per_position
        got = f"{rates[position]:.3f}" if position < len(rates) else dash
        rows.append(f"first {position + 1:>2} accepted     {wanted:>9.3f}  {got:>9}")
    ratio = run.step_s / run.batch_s
    rows += [
        f"a step takes {1000 * run.step_s:.3f} ms, {ratio:.2f} times a plain batch of"
        f" {plural(run.n_max + 1, 'row')} ({1000 * run.batch_s:.3f} ms)",
        f"{run.tokens_per_s:.1f} tok/s at this acceptance",
    ]
    return rows
