"""A profile as text: the YAML of what is in force, the start of a new file, the key table."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from outrider.profiles.errors import ProfileError
from outrider.profiles.fields import FIELDS, KIND_FIELDS, Field
from outrider.profiles.load import load_profile
from outrider.profiles.schema import Drafter, Profile
from outrider.profiles.search import is_path, user_folder

_NEW = """\
schema: 1
extends: {parent}
description: Own profile {name}
# What is written here wins over what it extends. All keys: docs/profiles.md, or
# `outrider profiles show {name}` for the values in force. For example:
# target: {{ctx_size: 8192}}
# sampling: {{temp: 0.5}}
"""


def effective_yaml(profile: Profile) -> str:
    """Return the YAML of all values in force; loading it gives the same profile."""
    import yaml

    values = asdict(profile)
    del values["name"], values["extends"]
    unset = asdict(Drafter())
    values["drafters"] = [
        {key: value for key, value in drafter.items() if value != unset[key]}
        for drafter in values["drafters"]
    ]
    text: str = yaml.safe_dump(_plain(values), sort_keys=False, allow_unicode=True, width=1000)
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def new_profile(name: str, parent: str) -> Path:
    """Write a file for profile ``name`` that extends ``parent``, and return its path."""
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name) or is_path(name):
        raise ProfileError(f"{name!r}: allowed: letters, digits, '-', '_' and '.', no folder")
    load_profile(parent)
    path = user_folder() / f"{name}.yaml"
    extends = str(Path(parent).expanduser().resolve()) if is_path(parent) else parent
    text = _NEW.format(name=name, parent=json.dumps(extends, ensure_ascii=False))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(exist_ok=False)
        try:
            path.write_text(text, encoding="utf-8")
        except BaseException:
            path.unlink()
            raise
    except FileExistsError:
        raise ProfileError(f"{path}: exists already; choose another name or edit it") from None
    except OSError as error:
        raise ProfileError(f"{path}: cannot be written: {error.strerror}") from None
    return path


def key_table() -> str:
    """Return the Markdown table of all keys, as docs/profiles.md has it."""
    rows = ["| key | flags | default | allowed | what |", "|---|---|---|---|---|"]
    for field in FIELDS:
        cells = (_key(field), _flags(field), _default(field), _allowed(field), _what(field))
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def _key(field: Field) -> str:
    if field.path == "drafter.kinds":
        return "(the kinds of `drafters`)"
    return f"`{field.path.replace('drafter.', 'drafters[].')}`"


def _of_kinds(field: Field) -> list[Field]:
    """Return the fields that set this key for one kind of drafter."""
    section, _, key = field.path.rpartition(".")
    ends = [f for f in KIND_FIELDS if f.path.rpartition(".")[2] == key]
    return ends if section == "drafter" else []


def _flags(field: Field) -> str:
    return " ".join(flag for f in (field, *_of_kinds(field)) for flag in f.flags)


def _what(field: Field) -> str:
    """Return the help, with the kinds that the key is for."""
    kinds = [f.help.removesuffix(f": {field.help}") for f in _of_kinds(field)]
    if not kinds or field.path == "drafter.n_max":
        return field.help
    return f"{', '.join(kinds)}: {field.help}"


def _default(field: Field) -> str:
    words = {"None": "null", "True": "true", "False": "false", "()": "[]"}
    return words.get(repr(field.default), str(field.default))


def _allowed(field: Field) -> str:
    return field.allowed.removeprefix("allowed: ").split(", on the command line")[0]
