"""From a profile to a loaded engine: fetch the files, translate the settings, load."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.cli.errors import UsageError, printable, say
from outrider.cli.fetch_progress import fetch_file
from outrider.cli.interrupts import Interrupts
from outrider.cli.options import all_flags, flag_names
from outrider.cli.prompt_source import read_text
from outrider.profiles.record import cache_folder
from outrider.profiles.samplers import sampler_names
from outrider.profiles.sampling import GRAMMAR_KEYS, Sampling
from outrider.profiles.schema import Chat, Drafter, Profile
from outrider.profiles.synthetic_rates import synthetic_rates
from outrider.speculative.settings import (
    DrafterSettings,
    EngineSettings,
    GenerationSettings,
    GrammarKind,
    GrammarSettings,
    ModelSettings,
    ReasoningSettings,
    SamplingSettings,
    SpeculationSettings,
)

if TYPE_CHECKING:
    from outrider.speculative.engine import Engine
    from outrider.speculative.reasoning_tags import ReasoningTags


# what only some kinds have
_OPTIONS = ("match", "size", "min_hits", "n_match", "n_min", "static", "dynamic")


def load_engine(
    profile: Profile,
    *,
    parallel: int = 1,
    progress: Callable[[str, float], None] | None = None,
) -> Engine:
    """Fetch the models that are not here yet and load everything the profile names.

    ``parallel`` is how many sessions share the context.

    Raises:
        KeyboardInterrupt: Ctrl-C; the load stops at the next sign of progress.
    """
    settings = replace(engine_settings(profile), parallel=parallel)

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


def use_template_file(engine: Engine, chat: Chat) -> None:
    """The chat template of the profile instead of the model's, if it names one."""
    path = chat.template_file
    if path is not None:
        engine.replace_template(read_text(Path(path), flag_names("chat.template_file")), path)


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
        kv_unified=target.kv_unified,
    )
    return EngineSettings(
        target=settings,
        drafters=drafter_settings(profile.drafters, settings),
        speculation=speculation_settings(profile),
        is_constrained=any(getattr(profile.sampling, key) is not None for key in GRAMMAR_KEYS),
        costs_folder=cache_folder() / "costs",
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
        synth_rates=None if given.synth_rates is None else synthetic_rates(given.synth_rates),
        synth_len=given.synth_len,
    )


def sampling_settings(sampling: Sampling) -> SamplingSettings:
    """How tokens are drawn."""
    same = {
        item.name: getattr(sampling, item.name)
        for item in fields(SamplingSettings)
        if item.name not in ("samplers", "dry_sequence_breakers")
    }
    return SamplingSettings(
        samplers=sampler_names(sampling.samplers),
        dry_sequence_breakers=tuple(map(_unescaped, sampling.dry_sequence_breakers)),
        **same,
    )


def _unescaped(text: str) -> str:
    """Backslash escapes as llama.cpp reads them."""
    escapes = {"\\n": "\n", "\\t": "\t", "\\r": "\r", '\\"': '"', "\\'": "'", "\\\\": "\\"}
    return re.sub(r"\\[ntr\"'\\]", lambda match: escapes[match.group()], text)


def grammar_settings(sampling: Sampling) -> GrammarSettings | None:
    """What the answer must match, checked before anything is loaded.

    Raises:
        UsageError: a file that cannot be read.
        InputError: the grammar is broken.
    """
    given = [key for key in GRAMMAR_KEYS if getattr(sampling, key) is not None]
    if not given:
        return None
    (key,) = given
    name = flag_names(f"sampling.{key}").split("/")[-1]
    text = str(getattr(sampling, key))
    if key.endswith("_file"):
        name, text = f"{name} {text}", read_text(Path(text), name)
    kinds: dict[str, GrammarKind] = {"json_schema": "json-schema", "regex": "regex"}
    settings = GrammarSettings(kinds.get(key.removesuffix("_file"), "grammar"), text, name)

    from outrider.speculative.grammar import compile_grammar

    compile_grammar(settings)
    return settings


def generation_settings(
    profile: Profile,
    *,
    grammar: GrammarSettings | None = None,
    tags: ReasoningTags | None = None,
) -> GenerationSettings:
    """One answer as the profile wants it; ``tags`` mark the reasoning of this model."""
    sampling, chat = profile.sampling, profile.chat
    reasoning = None
    if tags is not None:
        reasoning = ReasoningSettings(
            tags.start, tags.end, tags.is_open, chat.reasoning_budget, chat.reasoning_budget_message
        )
    return GenerationSettings(
        sampling=sampling_settings(sampling),
        predict=sampling.predict,
        stop=sampling.stop,
        seed=sampling.seed,
        grammar=grammar,
        reasoning=reasoning,
        logprobs=sampling.logprobs,
        post_sampling_probs=sampling.post_sampling_probs,
    )


def template_kwargs(chat: Chat) -> dict[str, object]:
    """Variables for the chat template."""
    # the names that templates know the switch by; llama.cpp too means "on" by "auto"
    thinking = dict.fromkeys(("enable_thinking", "thinking"), chat.reasoning != "off")
    preserve = {"preserve_reasoning": True} if chat.reasoning_preserve else {}
    return {**thinking, **preserve, **chat.template_kwargs}


def tell_notices(engine: Engine, overrides: Mapping[str, object], *, verbose: bool) -> None:
    """Say on stderr what the engine noticed about flags that were given; all if ``verbose``."""
    flags = [flag for path in overrides for flag in all_flags(path)]
    for notice in engine.notices:
        if verbose or any(notice.startswith(f"{flag} ") for flag in flags):
            say(f"outrider: note: {printable(notice)}")
