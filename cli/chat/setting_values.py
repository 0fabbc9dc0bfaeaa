"""The settings of an answer that commands change: their names, values and limits in words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from outrider.cli.errors import UsageError
from outrider.cli.glyphs import Glyphs
from outrider.profiles.errors import ProfileError
from outrider.profiles.fields import FIELDS, Field, check, nearest
from outrider.profiles.schema import Profile

if TYPE_CHECKING:
    from outrider.cli.chat.chat import Chat

GROUPS: Mapping[str, tuple[str, ...]] = {
    "temperature": ("temp", "dynatemp_range", "dynatemp_exp"),
    "candidates": ("top_k", "top_p", "min_p", "typical_p", "top_n_sigma", "samplers"),
    "xtc": ("xtc_probability", "xtc_threshold"),
    "penalties": ("repeat_penalty", "repeat_last_n", "frequency_penalty", "presence_penalty"),
    "dry": (
        "dry_multiplier",
        "dry_base",
        "dry_allowed_length",
        "dry_penalty_last_n",
        "dry_sequence_breakers",
    ),
    "mirostat": ("mirostat", "mirostat_tau", "mirostat_eta"),
    "tokens": ("logit_bias", "seed", "logprobs", "post_sampling_probs"),
    "end": ("predict", "stop", "ignore_eos"),
    "grammar": ("json_schema", "json_schema_file", "grammar", "grammar_file", "regex"),
    "thinking": (
        "reasoning",
        "reasoning_budget",
        "reasoning_budget_message",
        "reasoning_preserve",
    ),
    "context": ("context_policy", "template_kwargs"),
    "screen": ("markdown", "theme", "glyphs"),
}
"""The keys in the order and the rows of ``/set``."""

_LONGEST_VALUE = 32  # in a list
_NOTHING = ("none", "null")
_FIELDS = {field.path: field for field in FIELDS}


def setting(key: str, command: str = "/set") -> Field:
    """The field that ``key`` names; UsageError names the nearest one."""
    name = key.strip().replace("-", "_")
    if name not in SETTINGS:
        raise UsageError(f"{command} {name}: unknown{nearest(name, SETTINGS)}")
    return SETTINGS[name]


def read_setting(
    key: str, text: str, original: Profile, *, command: str = "/set"
) -> tuple[str, object]:
    """Path and value that ``KEY=TEXT`` means; ``default`` is what the original profile says.

    Raises:
        UsageError, ProfileError: no such key, or what is allowed there.
    """
    field, text = setting(key, command), text.strip()
    name = field.path.partition(".")[2]
    if text == "default":
        return field.path, value_in(original, field.path)
    if field.default in (None, "") and text.lower() in _NOTHING:
        return field.path, field.default
    try:
        return field.path, check(field.path, *_texts(field, text), name=f"{command} {name}")
    except ProfileError:
        if _is_out_of_range(field, text):
            raise UsageError(f"{name}={text} is out of range, allowed {limits(field)}") from None
        raise


def setting_choices(chat: Chat, typed: str) -> Iterator[tuple[str, str]]:
    """Completions of one ``KEY=VALUE``, with what they mean."""
    key, equals, _ = typed.partition("=")
    if not equals:
        for name, field in SETTINGS.items():
            now = short(value_words(value_in(chat.models.profile, field.path)), chat.glyphs)
            yield f"{name}=", f"{now}{in_brackets(field)}   {field.help}"
    elif key in SETTINGS:
        for word in words_of(SETTINGS[key]):
            yield f"{key}={word}", ""
        was = value_words(value_in(chat.models.original, SETTINGS[key].path))
        yield f"{key}=default", f"{short(was, chat.glyphs)}, as the profile says"


def _texts(field: Field, text: str) -> list[str]:
    """One text, or the several of a JSON list where a field takes several."""
    if field.multiple and not field.default and text.lower() in _NOTHING:
        return []
    if not (field.multiple and text.startswith("[")):
        return [text]
    try:
        texts = json.loads(text)
    except ValueError:
        texts = None
    if not (isinstance(texts, list) and all(isinstance(one, str) for one in texts)):
        raise UsageError(f'{text}: allowed: a text, or a JSON list of texts, ["a", "b"]')
    return texts


def _is_out_of_range(field: Field, text: str) -> bool:
    try:
        number = field.type(text)
    except ValueError:
        return False
    if field.minimum is None or field.maximum is None or not isinstance(number, int | float):
        return False
    return not field.minimum <= number <= field.maximum


def words_of(field: Field) -> tuple[str, ...]:
    """The words a field takes, if it takes no others."""
    return field.choices or (("true", "false") if field.type is bool else ())


def limits(field: Field) -> str:
    """What a field takes, in a few words: ``0 to 5``; nothing where that is any text."""
    if words_of(field):
        return ", ".join(words_of(field))
    if field.multiple or field.minimum is None or field.maximum is None:
        return ""
    return f"{_number(field.minimum)} to {_number(field.maximum)}"


def in_brackets(field: Field) -> str:
    """`` (0 to 5)``, or nothing."""
    words = limits(field)
    return f" ({words})" if words else ""


def short(words: str, glyphs: Glyphs) -> str:
    """A value in one line, of a long one its beginning."""
    line = " ".join(words.split())
    return line if len(line) <= _LONGEST_VALUE else line[: _LONGEST_VALUE - 1] + glyphs.ellipsis


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:g}"


def value_in(profile: Profile, path: str) -> object:
    """The value that stands at a path of a profile."""
    section, _, key = path.partition(".")
    value: object = getattr(getattr(profile, section), key)
    return value


def value_words(value: object) -> str:
    """A value as ``/set`` takes it: ``0.8``, ``none``, ``["a", "b"]``."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if value in (None, "", (), {}):
        return "none"
    if isinstance(value, tuple):
        return json.dumps(list(value), ensure_ascii=False)
    if isinstance(value, Mapping):
        return json.dumps(dict(value), ensure_ascii=False)
    return str(value)


SETTINGS: Mapping[str, Field] = {
    key: next(_FIELDS[path] for path in (f"sampling.{key}", f"chat.{key}") if path in _FIELDS)
    for keys in GROUPS.values()
    for key in keys
}
"""Field by key."""
