"""From settings to a chain of drafters."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from outrider.speculative.drafters import KINDS, DrafterKind
from outrider.speculative.drafters.chain import ChainDrafter
from outrider.speculative.drafters.drafter import Drafter
from outrider.speculative.drafters.made_up import FillerDrafter, OracleDrafter, ScriptDrafter
from outrider.speculative.drafters.model_drafter import ModelDrafter
from outrider.speculative.drafters.ngram_simple import NgramSimpleDrafter
from outrider.speculative.errors import InputError
from outrider.speculative.gguf_file import GgufFile
from outrider.speculative.llama_runner import LlamaRunner
from outrider.speculative.model import Model
from outrider.speculative.model_facts import drafter_kind
from outrider.speculative.model_store import ModelStore
from outrider.speculative.pairing import check_draft_simple
from outrider.speculative.settings import DrafterSettings, SpeculationSettings

_NGRAM_MATCH, _NGRAM_SIZE = 12, 48  # llama.cpp's


@dataclass(frozen=True, slots=True)
class Site:
    """Where drafters are built: the target they draft for and the size of its context."""

    target: Model
    models: ModelStore
    n_ctx: int
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
    if kind.is_model and settings.model is None:
        raise InputError(f"drafter {name} needs a model; give --model-draft FILE")
    return kind


def draft_limit(settings: DrafterSettings, speculation: SpeculationSettings) -> int:
    """The most tokens this drafter proposes at once."""
    kind = kind_of(settings)
    default = kind.n_max_adaptive if speculation.adaptive else kind.n_max
    return settings.n_max or speculation.n_max or default


def build_chain(
    drafters: Sequence[DrafterSettings], speculation: SpeculationSettings, site: Site
) -> ChainDrafter:
    """Load what the drafters need and put them in a chain, in their order.

    Raises:
        InputError: a drafter that cannot be run or does not fit the target.
        EngineError: llama.cpp failed.
    """
    chain = ChainDrafter([])
    try:
        for settings in drafters:
            chain.members.append(_build(settings, speculation, site))
    except BaseException:
        chain.close()
        raise
    return chain


def _build(settings: DrafterSettings, speculation: SpeculationSettings, site: Site) -> Drafter:
    kind = kind_of(settings)
    n_max = draft_limit(settings, speculation)
    options: dict[str, Any] = dict(settings.options)
    if kind.name == "draft-simple":
        return _model_drafter(settings, n_max, site)
    if kind.name == "ngram-simple":
        return NgramSimpleDrafter(
            options.get("match") or _NGRAM_MATCH, options.get("size") or _NGRAM_SIZE
        )
    if kind.name == "script":
        return ScriptDrafter(options["drafts"], n_max)
    if kind.name == "oracle":
        return OracleDrafter(**options, n_max=n_max)
    return FillerDrafter(options.get("token_id", 0), n_max, options.get("cost_s", 0.0))


def _model_drafter(settings: DrafterSettings, n_max: int, site: Site) -> ModelDrafter:
    assert settings.model is not None
    if settings.model.path.resolve() != site.target.path.resolve():
        check_draft_simple(site.target.file, GgufFile.open(settings.model.path))
    model = site.models.get(settings.model, "drafter")
    runner = LlamaRunner(
        model, settings.model, n_ctx=site.n_ctx, n_seq=site.n_seq, max_outputs=site.n_seq
    )
    return ModelDrafter(runner, site.target.vocabulary.size, n_max)
