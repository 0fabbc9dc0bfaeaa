"""The chain of drafters: what flags do to it, and which drafters cannot be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from outrider.profiles.errors import ProfileError
from outrider.profiles.fields import field_at
from outrider.profiles.model_source import ModelSource
from outrider.profiles.schema import KIND_FLAGS, MODEL_KINDS, Drafter

# keys that only drafters of these kinds have
_KINDS_WITH = {
    key: [kind for kind, keys in KIND_FLAGS.items() if key in keys]
    for keys in KIND_FLAGS.values()
    for key in keys
    if key != "n_max"
}
_OWN_HEADS = "draft-mtp"  # the target may have them
_MODEL_ONLY = ("model", "threads", "threads_batch", "gpu_layers", "cache_type_k", "cache_type_v")


def apply_drafter_flags(
    drafters: tuple[Drafter, ...], overrides: Mapping[str, Any]
) -> tuple[Drafter, ...]:
    """Return the chain after ``--spec-type``, ``-md`` and the flags of single drafters.

    ``--spec-type`` replaces the chain and keeps the settings of a kind that was in it; an
    empty list of kinds removes everything, other drafter flags included.
    """
    values = {
        path.removeprefix("drafter."): value
        for path, value in overrides.items()
        if path.startswith("drafter.")
    }
    kinds = values.pop("kinds", None)
    if kinds is not None:
        drafters = tuple(_of_kind(kind, drafters) for kind in kinds)
        if not drafters:
            return ()
    if "model" in values and not any(_is_model(drafter) for drafter in drafters):
        drafters = (*drafters, Drafter(model=values["model"]))
    for key, value in values.items():
        drafters = _set(drafters, key, value)
    return drafters


def _of_kind(kind: Any, drafters: tuple[Drafter, ...]) -> Drafter:
    same = [drafter for drafter in drafters if drafter.kind == kind]
    if kind in MODEL_KINDS:
        same += [drafter for drafter in drafters if drafter.kind is None]
    return replace(same[0], kind=kind) if same else Drafter(kind=kind)


def _set(drafters: tuple[Drafter, ...], key: str, value: object) -> tuple[Drafter, ...]:
    """Set ``key`` in every drafter that has it; ``ngram_mod.n_max`` in those of that kind."""
    prefix, _, name = key.rpartition(".")
    kind = prefix.replace("_", "-")
    takes = [kind in ("", drafter.kind) and _takes(drafter, name) for drafter in drafters]
    if not any(takes):
        raise ProfileError(_nobody_has(key, kind or _KINDS_WITH.get(name, [""])[0], value))
    changes: Any = {name: value}
    return tuple(
        replace(drafter, **changes) if take else drafter
        for drafter, take in zip(drafters, takes, strict=True)
    )


def _nobody_has(key: str, kind: str, value: object) -> str:
    flags = field_at(f"drafter.{key}").flags
    given = next((flag for flag in flags if flag.startswith("--")), f"drafter.{key}")
    need = kind or "a draft model"
    way = f"--spec-type {kind}" if kind else "--model-draft FILE"
    return f"{given}: {value!r}: needs {need} among the drafters: add {way}"


def _is_model(drafter: Drafter) -> bool:
    return drafter.kind is None or drafter.kind in MODEL_KINDS


def _takes(drafter: Drafter, key: str) -> bool:
    if key in _KINDS_WITH:
        return drafter.kind in _KINDS_WITH[key]
    return key not in _MODEL_ONLY or _is_model(drafter)


def drafter_faults(drafters: tuple[Drafter, ...]) -> Iterator[str]:
    """Yield what makes a drafter impossible, one line each."""
    unset = Drafter()
    for index, drafter in enumerate(drafters):
        where = f"drafters[{index}]"
        for key in (*_KINDS_WITH, *_MODEL_ONLY):
            value = getattr(drafter, key)
            if value != getattr(unset, key) and not _takes(drafter, key):
                shown = value.source if isinstance(value, ModelSource) else value
                kind = drafter.kind or "a draft model"
                yield f"{where}.{key}: {shown!r}: {kind} has no such setting"
        if drafter.kind is None and drafter.model is None:
            yield f"{where}: needs a kind or a model"
        elif drafter.kind in MODEL_KINDS - {_OWN_HEADS} and drafter.model is None:
            yield f"{where}: {drafter.kind} needs a model: {{source: ...}} or --model-draft FILE"
