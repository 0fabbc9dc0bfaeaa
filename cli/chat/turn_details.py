"""What the saved file says about an answer: the models, the settings, the counts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime

from outrider.profiles.model_source import ModelSource
from outrider.profiles.sampling import Sampling
from outrider.profiles.schema import Profile
from outrider.profiles.sources import locate
from outrider.speculative.events import GenerationResult


def turn_details(profile: Profile, model_name: str, result: GenerationResult) -> dict[str, object]:
    """The fields of a turn beside its message and answer, ready for JSON."""
    stats = result.stats
    return {
        "when": datetime.now().astimezone().isoformat(timespec="seconds"),
        "profile": profile.name,
        "model": model_name,
        "models": _models(profile),
        "sampling": _sampling(profile.sampling),
        "seed": result.seed,
        **({"reasoning": result.reasoning} if result.reasoning else {}),
        "finish_reason": result.finish_reason,
        "tokens": stats.emitted,
        "tokens_per_s": result.timings.tokens_per_s,
        "steps": stats.steps,
        "drafts": stats.drafts,
        "drafted": stats.drafted,
        "accepted": stats.accepted,
        "per_drafter": {
            name: {"drafts": one.drafts, "drafted": one.drafted, "accepted": one.accepted}
            for name, one in stats.per_drafter.items()
        },
    }


def _models(profile: Profile) -> list[dict[str, object]]:
    """Target first, then the draft models."""
    named = [("target", profile.target.model)]
    named += [(drafter.kind or "drafter", drafter.model) for drafter in profile.drafters]
    return [_model(role, source) for role, source in named if source is not None]


def _model(role: str, source: ModelSource) -> dict[str, object]:
    """A model's file; its hash where it was checked, for reading a file takes too long here."""
    path = locate(source)
    return {
        "role": role,
        "file": path.name if path else source.parts[0].file_name,
        "bytes": path.stat().st_size if path else None,
        "sha256": source.sha256.lower() if source.sha256 else None,
    }


def _sampling(sampling: Sampling) -> dict[str, object]:
    """What differs from the defaults; the seed of this answer stands beside it."""
    default = Sampling()
    values = {field.name: getattr(sampling, field.name) for field in fields(Sampling)}
    return {
        name: _plain(value)
        for name, value in values.items()
        if name != "seed" and value != getattr(default, name)
    }


def _plain(value: object) -> object:
    """``value`` as JSON can say it: a token that is never drawn has an infinite bias."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
