"""From a profile to a loaded engine: fetch the files, translate the settings, load."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from outrider.cli.errors import UsageError, printable, say
from outrider.cli.fetch_progress import fetch_file
from outrider.cli.interrupts import Interrupts
from outrider.cli.options import all_flags
from outrider.profiles.schema import Chat, Drafter, Profile, Sampling
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


# what only some kinds have
_OPTIONS = ("match", "size", "min_hits", "n_match", "n_min", "static", "dynamic")


def load_engine(
    profile: Profile, *, progress: Callable[[str, float], None] | None = None
) -> Engine:
    """Fetch the models that are not here yet and load everything the profile names.

    Raises:
        KeyboardInterrupt: Ctrl-C; the load stops at the next sign of progress.
    """
    settings = engine_settings(profile)

    from outrider.speculative.engine import Engine
    from outrider.speculative.errors import EngineError

    with Interrupts() as interrupts:

        def report(stage: str, fraction: float) -> bool:
            if progress is not None:
                progress(stage, fraction)
            return interrupts.exit_code is None

        try:
            engine = Engine.load(settings, progress=report)
        except EngineError:
            if interrupts.exit_code is not None:
                raise KeyboardInterrupt from None
            raise
    if interrupts.exit_code is not None:
        engine.close()
        raise KeyboardInterrupt
    return engine


def engine_settings(profile: Profile) -> EngineSettings:
    """What the engine needs to know of the profile; fetches its files."""
    if profile.target.model is None:
        raise UsageError(
            f"profile {profile.name} names no model: give one with -m/--model, or -P smollm2"
        )
    target = profile.target
    settings = ModelSettings(
        path=fetch_file(profile.target.model),
        ctx_size=target.ctx_size,
        batch_size=target.batch_size,
        ubatch_size=target.ubatch_size,
        threads=target.threads,
        threads_batch=target.threads_batch or target.threads,
        gpu_layers=target.gpu_layers,
        flash_attn=target.flash_attn,
        cache_type_k=target.cache_type_k,
        cache_type_v=target.cache_type_v,
    )
    return EngineSettings(
        target=settings,
        drafters=drafter_settings(profile.drafters, settings),
        speculation=speculation_settings(profile),
    )


def drafter_settings(
    drafters: tuple[Drafter, ...], target: ModelSettings
) -> tuple[DrafterSettings, ...]:
    """The chain, with the files of its draft models fetched."""
    return tuple(
        DrafterSettings(
            kind=drafter.kind or "",  # read from the file
            model=_draft_model(drafter, target),
            n_max=drafter.n_max,
            options={
                key: value for key in _OPTIONS if (value := getattr(drafter, key)) is not None
            },
        )
        for drafter in drafters
    )


def _draft_model(drafter: Drafter, target: ModelSettings) -> ModelSettings | None:
    if drafter.model is None:
        return None
    threads = target.threads if drafter.threads is None else drafter.threads
    return ModelSettings(
        path=fetch_file(drafter.model),
        ctx_size=target.ctx_size,
        batch_size=target.batch_size,
        ubatch_size=target.ubatch_size,
        threads=threads,
        threads_batch=threads if drafter.threads_batch is None else drafter.threads_batch,
        gpu_layers=drafter.gpu_layers,
        flash_attn=target.flash_attn,
        cache_type_k=drafter.cache_type_k,
        cache_type_v=drafter.cache_type_v,
    )


def speculation_settings(profile: Profile) -> SpeculationSettings:
    """How drafts are made and verified."""
    given = profile.speculation
    return SpeculationSettings(
        n_max=given.n_max,
        n_min=given.n_min,
        p_min=given.p_min,
        sampling=given.sampling,
        verify=given.verify,
        adaptive=given.adaptive,
        max_slots=given.max_slots,
    )


def sampling_settings(sampling: Sampling) -> SamplingSettings:
    """How tokens are drawn."""
    return SamplingSettings(
        temp=sampling.temp,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        repeat_penalty=sampling.repeat_penalty,
        repeat_last_n=sampling.repeat_last_n,
        frequency_penalty=sampling.frequency_penalty,
        presence_penalty=sampling.presence_penalty,
        logit_bias=sampling.logit_bias,
        ignore_eos=sampling.ignore_eos,
    )


def generation_settings(profile: Profile) -> GenerationSettings:
    """One answer as the profile wants it."""
    sampling = profile.sampling
    return GenerationSettings(
        sampling=sampling_settings(sampling),
        predict=sampling.predict,
        stop=sampling.stop,
        seed=sampling.seed,
    )


def template_kwargs(chat: Chat) -> dict[str, object]:
    """Variables for the chat template; ``reasoning`` is llama.cpp's ``enable_thinking``."""
    thinking = {} if chat.reasoning == "auto" else {"enable_thinking": chat.reasoning == "on"}
    return {**thinking, **chat.template_kwargs}


def tell_notices(engine: Engine, overrides: Mapping[str, object], *, verbose: bool) -> None:
    """Say on stderr what the engine noticed about flags that were given; all if ``verbose``."""
    flags = [flag for path in overrides for flag in all_flags(path)]
    for notice in engine.notices:
        if verbose or any(notice.startswith(f"{flag} ") for flag in flags):
            say(f"outrider: note: {printable(notice)}")
