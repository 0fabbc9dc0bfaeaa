"""The examination: from a profile to a diagnosis."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from outrider.cli.bench.arm import ArmSpec
from outrider.cli.doctor.advice import Advice, advise, advise_smaller
from outrider.cli.doctor.cost_curve import CostCurve, measure_curve
from outrider.cli.doctor.diagnosis import Diagnosis, break_evens
from outrider.cli.doctor.draft_cost import DraftCost, measure_draft_costs
from outrider.cli.doctor.memory import (
    Allocations,
    MemoryNeed,
    files_bytes,
    free_memory,
    noted_allocations,
)
from outrider.cli.doctor.processor import Processor, examine_processor
from outrider.cli.doctor.step_times import TEXT
from outrider.cli.engine_setup import engine_settings, load_engine
from outrider.cli.errors import UsageError
from outrider.cli.interrupts import Interrupts
from outrider.cli.local_drafters import local_drafters
from outrider.profiles.sampling import Sampling
from outrider.profiles.schema import Profile
from outrider.speculative.cache_size import CacheShape, cache_bytes
from outrider.speculative.drafters.build import kind_of
from outrider.speculative.gguf_file import GgufFile
from outrider.speculative.llama import supports_gpu, system_info
from outrider.speculative.load_guard import check_target
from outrider.speculative.model_facts import ModelFacts
from outrider.speculative.settings import (
    DrafterSettings,
    EngineSettings,
    GenerationSettings,
    ModelSettings,
    SamplingSettings,
    SpeculationSettings,
)

if TYPE_CHECKING:
    from outrider.speculative.engine import Engine
    from outrider.speculative.session import Session

_LONGEST = 63  # one row less than the longest batch that is timed
_NEAR_S, _FAR_S = 4.0, 1.5
_FAR_SIZES = (1, 2, 4, 8, 16)
_FAR_DEPTH, _LEAST_DEPTH = 2048, 256
_READING_S = 2.0
_SHORTEST_CONTEXT = 512

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Measured:
    curve: CostCurve
    far: CostCurve | None
    costs: tuple[DraftCost, ...]
    host_s: float


def examine(spec: ArmSpec, machine: dict[str, Any], tell: Tell) -> Diagnosis:
    """Look at the machine and the files, then load and measure if it fits into the memory.

    Raises:
        UsageError, InputError: a profile, a file or a pair that cannot work.
    """
    profile = _measurable(spec.profile)
    settings = engine_settings(profile)
    target = GgufFile.open(settings.target.path)
    check_target(target)
    tell("looking for drafters")
    paths = [one.model.path for one in settings.drafters if one.model is not None]
    facts = ModelFacts.of(target)
    n_ctx = settings.target.ctx_size or facts.context_length or 0
    processor = examine_processor(machine, system_info(), settings.target.threads)
    memory = _expected(settings, target, n_ctx, machine["memory_bytes"])
    found = local_drafters(target, paths)
    measured = None
    if memory.fits is not False:
        tell("loading")
        with noted_allocations() as allocations:
            engine = load_engine(profile)
        with engine:
            memory = _allocated(memory, allocations)
            measured = _measure_unless_interrupted(engine, settings, tell)
    costs = break_evens(measured.curve, measured.costs, measured.host_s) if measured else ()
    return Diagnosis(
        profile=spec.text,
        facts=facts,
        n_ctx=n_ctx,
        processor=processor,
        memory=memory,
        curve=measured.curve if measured else None,
        far=measured.far if measured else None,
        break_even=costs,
        drafters=found,
        advice=_advice(spec, settings, memory, processor, measured, costs, n_ctx),
    )


def _measurable(profile: Profile) -> Profile:
    """The profile with drafts of fixed length and nothing that changes speed but the models."""
    if profile.speculation.is_synthetic:
        raise UsageError("doctor: the profile asks for synthetic acceptance; leave it out")
    speculation = replace(profile.speculation, adaptive=False)
    return replace(profile, speculation=speculation, sampling=Sampling())


def _advice(
    spec: ArmSpec,
    settings: EngineSettings,
    memory: MemoryNeed,
    processor: Processor,
    measured: _Measured | None,
    costs: Any,
    n_ctx: int,
) -> Advice | None:
    if memory.fits is False:
        return advise_smaller(spec, _fitting_context(settings, memory, n_ctx))
    if measured is None or not measured.curve.is_quiet:
        return None
    return advise(spec, processor, costs)


# memory


def _expected(
    settings: EngineSettings, target: GgufFile, n_ctx: int, total: int | None
) -> MemoryNeed:
    """What the headers tell, before anything is loaded."""
    models = [one.model for one in settings.drafters if one.model is not None]
    files = [GgufFile.open(model.path) for model in models]
    cache = cache_bytes(target, _shape(settings.target, n_ctx, _longest(settings)))
    for file, model in zip(files, models, strict=True):
        cache += cache_bytes(file, _shape(model, n_ctx, 0))
    layers = settings.target.gpu_layers
    return MemoryNeed(
        files=files_bytes(target, *files),
        cache=cache,
        buffers=0,
        free=free_memory(),
        total=total,
        is_allocated=False,
        on_gpu=layers != 0 and supports_gpu(),
    )


def _allocated(expected: MemoryNeed, allocations: Allocations) -> MemoryNeed:
    """With what llama.cpp allocated; as expected where its log does not tell."""
    cache = allocations.total("KV", "RS")
    if not cache:
        return expected
    buffers = allocations.total("compute", "output")
    return replace(expected, cache=cache, buffers=buffers, is_allocated=True)


def _fitting_context(settings: EngineSettings, memory: MemoryNeed, n_ctx: int) -> int | None:
    """The longest context, halved as often as necessary, that fits."""
    target = GgufFile.open(settings.target.path)
    while n_ctx > _SHORTEST_CONTEXT:
        n_ctx //= 2
        fewer = _expected(settings, target, n_ctx, memory.total)
        if fewer.needed + memory.buffers <= (memory.free or 0):
            return n_ctx
    return None


def _shape(model: ModelSettings, n_ctx: int, longest: int) -> CacheShape:
    return CacheShape(
        n_ctx, min(model.ubatch_size, n_ctx), model.cache_type_k, model.cache_type_v, longest
    )


def _longest(settings: EngineSettings) -> int:
    lengths = (one.n_max or kind_of(one).n_max for one in settings.drafters)
    return max(lengths, default=0)


# measuring


def _measure_unless_interrupted(engine: Engine, settings: EngineSettings, tell: Tell) -> _Measured:
    """Ctrl-C between two decodes: inside llama.cpp's calls back to Python it would be lost."""
    with Interrupts() as interrupts:

        def check() -> None:
            if interrupts.exit_code is not None:
                raise KeyboardInterrupt

        measured = _measure(engine, settings, tell, check)
        check()
    return measured


def _measure(
    engine: Engine, settings: EngineSettings, tell: Tell, check: Callable[[], None]
) -> _Measured:
    session = engine.session()

    def time_batch(num_rows: int) -> float:
        check()
        return engine.time_batch(num_rows)

    tell("measuring decodes of several rows")
    longest = min(_LONGEST, engine.n_ctx - 1)
    filler = DrafterSettings("filler", n_max=longest)
    engine.configure(SpeculationSettings(n_max=longest, adaptive=False), (filler,))
    session.reset()
    curve = measure_curve(time_batch, engine.max_batch, _NEAR_S)
    tell("measuring behind a longer text")
    far = _measure_far(engine, session, curve, time_batch) if curve.is_quiet else None
    tell("measuring drafts")
    host_s, costs = measure_draft_costs(engine, session, settings.drafters, curve.plain_s, check)
    return _Measured(curve, far, costs, host_s)


def _measure_far(
    engine: Engine, session: Session, curve: CostCurve, time_batch: Callable[[int], float]
) -> CostCurve | None:
    """The same behind a text as long as can be read in two seconds; None if that is too short."""
    rows, seconds = list(curve.verify_s.items())[-1]
    depth = min(_FAR_DEPTH, engine.n_ctx - _LONGEST - 1, int(_READING_S / seconds * rows))
    depth -= depth % _LEAST_DEPTH
    if depth < _LEAST_DEPTH:
        return None
    unit = engine.encode(TEXT)
    prompt = (unit * (depth // len(unit) + 1))[:depth]
    settings = GenerationSettings(SamplingSettings(temp=0.0, ignore_eos=True), predict=1, seed=1)
    with contextlib.closing(session.generate(prompt, settings)) as events:
        for _ in events:
            pass
    before = engine.max_batch
    far = measure_curve(time_batch, engine.max_batch, _FAR_S, depth, _FAR_SIZES)
    # a memory that cannot be cut back has lost the text meanwhile
    is_kept = engine.max_batch == before and session.context_used >= depth
    return far if is_kept and far.is_quiet else None
