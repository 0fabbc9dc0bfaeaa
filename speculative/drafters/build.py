"""From settings to a chain of drafters."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outrider.speculative.drafters import KINDS, DrafterKind
from outrider.speculative.drafters.chain import ChainDrafter
from outrider.speculative.drafters.drafter import Drafter
from outrider.speculative.drafters.grammar_drafter import GrammarDrafter
from outrider.speculative.drafters.made_up import FillerDrafter, OracleDrafter, ScriptDrafter
from outrider.speculative.drafters.model_drafter import ModelDrafter
from outrider.speculative.drafters.ngram_family import ngram_drafter
from outrider.speculative.drafters.state_kinds import (
    StateSite,
    build_state_drafter,
    check_confidence,
    taps_of,
)
from outrider.speculative.errors import InputError
from outrider.speculative.gguf_file import GgufFile
from outrider.speculative.llama_runner import LlamaRunner
from outrider.speculative.model_facts import drafter_kind
from outrider.speculative.model_store import ModelStore
from outrider.speculative.pairing import check_pair
from outrider.speculative.settings import DrafterSettings, SpeculationSettings


@dataclass(frozen=True, slots=True)
class Site:
    """Where drafters are built: the target they draft for, and the loaded models."""

    target: LlamaRunner
    models: ModelStore
    n_seq: int


def kind_of(settings: DrafterSettings) -> DrafterKind:
    """The kind that ``settings`` name or, if they name none, that the file is.

    Raises:
        InputError: an unknown name, a kind that cannot be run, no model for a model drafter.
    """
    name = settings.kind
    if not name:
        if settings.model is None:
            raise InputError("a drafter needs a kind or a model; give --spec-type or --model-draft")
        name = drafter_kind(GgufFile.open(settings.model.path)) or "draft-simple"
    kind = KINDS.get(name)
    if kind is None:
        near = difflib.get_close_matches(name, KINDS, n=1)
        nearest = f"; did you mean {near[0]}?" if near else ""
        raise InputError(f"drafter {name!r}: allowed {', '.join(KINDS)}{nearest}")
    if kind.needs_model and settings.model is None:
        raise InputError(f"drafter {name} needs a model; give --model-draft FILE")
    return kind


def draft_limit(settings: DrafterSettings, speculation: SpeculationSettings) -> int:
    """The most tokens this drafter proposes at once."""
    if speculation.adaptive:
        return _length(settings, speculation, kind_of(settings).n_max_adaptive)
    return fixed_length(settings, speculation)


def fixed_length(settings: DrafterSettings, speculation: SpeculationSettings) -> int:
    """How many tokens this drafter proposes when nothing adapts the length."""
    return _length(settings, speculation, kind_of(settings).n_max)


def _length(settings: DrafterSettings, speculation: SpeculationSettings, default: int) -> int:
    """The drafter's own length, or the common one; the common one bounds it."""
    options: Mapping[str, Any] = settings.options
    own: int = settings.n_max or speculation.n_max or options.get("size") or default
    return min(own, speculation.n_max or own)


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """One drafter of the chain, checked as far as the files' headers tell."""

    settings: DrafterSettings
    kind: DrafterKind
    n_max: int
    taps: tuple[int, ...] = ()


def plan(settings: DrafterSettings, speculation: SpeculationSettings, target: Path) -> DraftPlan:
    """What a drafter will need of the target, before anything of it is loaded.

    Raises:
        InputError: a drafter that cannot be run or does not fit the target.
    """
    kind = kind_of(settings)
    n_max = draft_limit(settings, speculation)
    draft = settings.model.path if settings.model else None
    if draft is not None and draft.resolve() == target.resolve() and not kind.reads_states:
        return DraftPlan(settings, kind, n_max)
    if kind.reads_states:
        draft_file = GgufFile.open(draft) if draft else None
        taps = taps_of(kind.name, GgufFile.open(target), draft_file)
        if draft_file is not None:
            check_confidence(draft_file, speculation.p_min)
        return DraftPlan(settings, kind, n_max, taps)
    if kind.needs_model and draft is not None:
        check_pair(GgufFile.open(target), GgufFile.open(draft), kind=kind.name)
    return DraftPlan(settings, kind, n_max)


def build_chain(plans: Sequence[DraftPlan], site: Site) -> ChainDrafter:
    """Load what the drafters need and put them in a chain, in their order.

    Raises:
        InputError: a file lacks what its kind needs.
        EngineError: llama.cpp failed.
    """
    chain = ChainDrafter([])
    try:
        for one in plans:
            chain.members.append(_build(one, site))
    except BaseException:
        chain.close()
        raise
    return chain


def _build(one: DraftPlan, site: Site) -> Drafter:
    name, settings = one.kind.name, one.settings
    options: dict[str, Any] = dict(settings.options)
    if one.kind.reads_states:
        return _state_drafter(one, site)
    if name == "draft-simple":
        return _model_drafter(one, site)
    if name.startswith("ngram-"):
        return ngram_drafter(name, settings, one.n_max, site.target.vocab_size)
    if name == "grammar":
        return GrammarDrafter(one.n_max)
    if name == "script":
        return ScriptDrafter(options["drafts"], one.n_max)
    if name == "oracle":
        return OracleDrafter(**options, n_max=one.n_max)
    return FillerDrafter(options.get("token_id", 0), one.n_max, options.get("cost_s", 0.0))


def _model_drafter(one: DraftPlan, site: Site) -> ModelDrafter:
    settings = one.settings.model
    assert settings is not None
    model = site.models.get(settings, "drafter")
    runner = LlamaRunner(
        model,
        settings,
        n_ctx=site.target.n_ctx,
        n_seq=site.n_seq,
        max_outputs=site.n_seq,
    )
    max_length = model.drafting_length(site.target.model, site.target.n_ctx)
    return ModelDrafter(runner, site.target.vocab_size, one.n_max, max_length)


def _state_drafter(one: DraftPlan, site: Site) -> Drafter:
    settings = one.settings.model
    is_mtp = one.kind.name == "draft-mtp"
    model = site.models.get(settings, "drafter", load_heads=is_mtp) if settings else None
    if is_mtp and not (model or site.target.model).native.num_heads_nextn:
        raise InputError(
            f"{(model or site.target.model).path}: loaded without NextN heads;"
            " start with --spec-type draft-mtp"
        )
    state_site = StateSite(
        one.kind.name, site.target, model or site.target.model, site.n_seq, one.n_max
    )
    return build_state_drafter(state_site, one.settings, one.taps)
