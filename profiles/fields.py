"""FIELDS: the one table of values, derived from the schema; check() reads one from text."""

from __future__ import annotations

import difflib
import functools
import json
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from outrider.profiles.errors import ProfileError
from outrider.profiles.model_source import FORMS, ModelSource
from outrider.profiles.option import Option
from outrider.profiles.sampling import Sampling
from outrider.profiles.schema import (
    KIND_FLAGS,
    Chat,
    Drafter,
    DrafterKind,
    Profile,
    Speculation,
    Target,
)

_PANELS = {
    "target": "Model",
    "drafter": "Speculation",
    "speculation": "Speculation",
    "sampling": "Sampling",
    "chat": "Chat",
}
_NOUNS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


@dataclass(frozen=True, slots=True)
class Field:
    """One value of a profile.

    ``path`` is where it stands: ``sampling.temp``; ``drafter.model`` for each drafter of
    ``drafters``. ``type`` is what a command line shows; ``annotation`` what is checked.
    """

    path: str
    flags: tuple[str, ...]
    type: type
    default: object
    minimum: float | None
    maximum: float | None
    choices: tuple[str, ...] | None
    help: str
    metavar: str | None
    multiple: bool
    panel: str
    allowed: str
    annotation: Any


def _without_none(annotation: Any) -> tuple[Any, bool]:
    """Return the type without ``None``, and whether there was one."""
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation, False
    parts = [part for part in get_args(annotation) if part is not type(None)]
    return functools.reduce(lambda a, b: a | b, parts), len(parts) < len(get_args(annotation))


def _words(annotation: Any) -> tuple[str, ...]:
    """Return the words a type takes, or those it takes beside numbers."""
    if get_origin(annotation) is Literal:
        return tuple(str(word) for word in get_args(annotation))
    return tuple(word for part in get_args(annotation) for word in _words(part))


def _number(value: float) -> str:
    return f"{value:g}" if value < 1e5 else f"{value:.0f}"


def _allowed(kind: Any, words: tuple[str, ...], option: Option, optional: bool) -> str:
    """Say in words which values a field takes."""
    if kind is ModelSource:
        return FORMS
    if get_origin(kind) is tuple:
        return "allowed: a list of texts"
    if option.metavar == "ID+BIAS":
        return "allowed: token ids and numbers, on the command line ID+BIAS or ID-BIAS"
    if get_origin(kind) not in (None, Literal, types.UnionType, Union):
        return "allowed: a mapping, on the command line a JSON object"
    noun = "a whole number" if int in get_args(kind) else _NOUNS.get(kind, "")
    if option.minimum is not None and option.maximum is not None:
        noun += f" from {_number(option.minimum)} to {_number(option.maximum)}"
    return "allowed: " + ", ".join(filter(None, (noun, *words, "null" if optional else "")))


def _field(path: str, annotation: Any, default: object) -> Field:
    annotated, option = get_args(annotation)
    kind, optional = _without_none(annotated)
    words = _words(kind) if get_origin(kind) is not tuple else ()
    return Field(
        path=path,
        flags=tuple(option.flags.split()),
        type=kind if kind in (int, float, bool) else str,
        default=default,
        minimum=option.minimum,
        maximum=option.maximum,
        choices=words if get_origin(kind) is Literal else None,
        help=option.help,
        metavar=option.metavar,
        multiple=get_origin(kind) is tuple or path == "sampling.logit_bias",
        panel=_PANELS.get(path.split(".")[0], "Profile"),
        allowed=_allowed(kind, words, option, optional),
        annotation=annotation,
    )


def _walk(section: Any, prefix: str = "") -> Iterator[Field]:
    hints = get_type_hints(section, include_extras=True)
    for item in fields(section):
        hint = hints[item.name]
        if get_origin(hint) is Annotated:
            default = (
                item.default_factory() if item.default_factory is not MISSING else item.default
            )
            yield _field(prefix + item.name, hint, default)
        elif is_dataclass(hint):
            yield from _walk(hint, f"{item.name}.")
        elif item.name == "drafters":
            yield SPEC_TYPE
            yield from _walk(Drafter, "drafter.")


_KIND_NAMES = ("none", *get_args(DrafterKind))

SPEC_TYPE = Field(
    path="drafter.kinds",
    flags=("--spec-type",),
    type=str,
    default=(),
    minimum=None,
    maximum=None,
    choices=None,
    help=f"drafters in order, separated by commas: {', '.join(_KIND_NAMES)}",
    metavar="LIST",
    multiple=False,
    panel="Speculation",
    allowed=f"allowed: {', '.join(_KIND_NAMES)}, or several separated by commas",
    annotation=tuple[DrafterKind, ...],
)

FIELDS: tuple[Field, ...] = tuple(_walk(Profile))
_BY_PATH = {field.path: field for field in FIELDS}


def _kind_fields() -> Iterator[Field]:
    for kind, keys in KIND_FLAGS.items():
        for key, flags in keys.items():
            key_field = _BY_PATH[f"drafter.{key}"]
            yield replace(
                key_field,
                path=f"drafter.{kind.replace('-', '_')}.{key}",
                flags=tuple(flags.split()),
                help=f"{kind}: {key_field.help}",
            )


KIND_FIELDS: tuple[Field, ...] = tuple(_kind_fields())
"""A key of a drafter for those of one kind only: ``drafter.ngram_simple.match``."""

_BY_PATH |= {field.path: field for field in KIND_FIELDS}


def field_at(path: str) -> Field:
    """Return the field at ``path``; ProfileError names the nearest one."""
    if path not in _BY_PATH:
        raise ProfileError(f"{path}: unknown{nearest(path, _BY_PATH)}")
    return _BY_PATH[path]


def keys_of(section: str) -> tuple[str, ...]:
    """Return the keys a mapping of a profile may have; ``""`` is the whole file."""
    parts: dict[str, Any] = {
        "": Profile,
        "target": Target,
        "drafter": Drafter,
        "speculation": Speculation,
        "sampling": Sampling,
        "chat": Chat,
        "target.model": ModelSource,
        "drafter.model": ModelSource,
    }
    if section not in parts:
        return ()
    return tuple(
        item.name for item in fields(parts[section]) if (section, item.name) != ("", "name")
    )


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'X'?`` or nothing."""
    match = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {match[0]!r}?" if match and match[0] != word else ""


def check(path: str, *texts: str, name: str | None = None) -> object:
    """Return the value that ``texts`` mean for the field at ``path``.

    Several texts are one value only where the field is ``multiple``. The ProfileError
    names what was given (``name``, say a flag, else the path), the value and what is allowed.
    """
    field = field_at(path)
    try:
        return validated(field, _read(field, texts))
    except ValueError as error:
        shown = ", ".join(repr(text) for text in texts)
        raise ProfileError(f"{name or path}: {shown}: {error}") from None


def validated(field: Field, value: object) -> object:
    """Return ``value`` as the field's type; ValueError says what is allowed."""
    from pydantic import ValidationError

    try:
        return _adapter(field.path).validate_python(value)
    except ValidationError as error:
        raise ValueError(reason(field, error.errors()[0])) from None


def reason(field: Field, error: Mapping[str, Any]) -> str:
    """Say what is allowed, or what a model source found wrong with itself."""
    message = str(error.get("ctx", {}).get("error", ""))
    if message.startswith("allowed: "):
        return message
    return field.allowed + nearest(str(error["input"]), field.choices or ())


@functools.cache
def _adapter(path: str) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(_BY_PATH[path].annotation)


def _read(field: Field, texts: tuple[str, ...]) -> object:
    """Turn text into what a profile file would hold."""
    kind, optional = _without_none(get_args(field.annotation)[0])
    if field is SPEC_TYPE:
        return _read_kinds(texts)
    if field.path == "sampling.logit_bias":
        return dict(_read_bias(field, text) for text in texts)
    if get_origin(kind) is tuple:
        return texts
    (text,) = texts
    if optional and field.type is not str and text.lower() in ("null", "none"):
        return None
    if kind is ModelSource:
        return {"source": text}
    return _read_json(field, text) if field.metavar == "JSON" else text


def _read_kinds(texts: tuple[str, ...]) -> tuple[str, ...]:
    kinds = tuple(kind.strip() for text in texts for kind in text.split(","))
    for kind in kinds:
        if kind not in _KIND_NAMES:
            raise ValueError(SPEC_TYPE.allowed + nearest(kind, _KIND_NAMES))
    return () if "none" in kinds else kinds


def _read_bias(field: Field, text: str) -> tuple[str, str]:
    """Read ``ID+BIAS``: the sign splits, so ``7-1`` is minus one."""
    token_id, sign, bias = text.partition("+" if "+" in text else "-")
    if not token_id.strip().isdecimal() or not sign or bias[:1] in "+-":
        raise ValueError(field.allowed)
    return token_id, ("-" if sign == "-" else "") + bias


def _read_json(field: Field, text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        raise ValueError(field.allowed) from None
