"""load_profile(): find, read, check, merge ``extends``, apply what the command line says."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from outrider.profiles.chain import apply_drafter_flags, drafter_faults
from outrider.profiles.errors import ProfileError
from outrider.profiles.fields import field_at, keys_of, nearest, reason, validated
from outrider.profiles.model_source import FORMS, LocalPart, parse_part
from outrider.profiles.sampling import GRAMMAR_KEYS
from outrider.profiles.schema import Profile
from outrider.profiles.search import every_file, find
from outrider.profiles.yaml_file import Key, YamlFile, read_yaml

_MAX_SHOWN = 80
_SECTIONS = ("target", "drafters", "speculation", "sampling", "chat")


@dataclass(frozen=True, slots=True)
class ProfileEntry:
    """A line of ``profiles list``. ``fault`` says why the file cannot be used."""

    name: str
    description: str
    origin: str
    path: Path
    fault: str | None = None


def load_profile(name_or_path: str, overrides: Mapping[str, object] | None = None) -> Profile:
    """Return the profile with everything it extends merged in and ``overrides`` on top.

    ``overrides`` are field paths and values (:data:`outrider.profiles.fields.FIELDS`).
    """
    path = find(name_or_path)
    profile = replace(profile_in(path), name=name_or_path)
    return override(profile, overrides or {}, where=str(path))


def profile_in(path: Path) -> Profile:
    """Return the profile that the file at ``path`` makes, before any flag."""
    data: dict[str, Any] = {}
    for file in reversed(_chain(path)):
        data = _merged(data, _anchored(file))
    profile = _adapter().validate_python({**data, "extends": None})
    faults = [f"{path}: {fault}" for fault in _whole_faults(profile)]
    if faults:
        raise ProfileError(*faults)
    return profile  # type: ignore[no-any-return]


def override(profile: Profile, overrides: Mapping[str, object], *, where: str = "") -> Profile:
    """Return the profile with the fields at the paths in ``overrides`` replaced."""
    values: dict[str, object] = {}
    for path, value in overrides.items():
        try:
            values[path] = validated(field_at(path), value)
        except ValueError as error:
            raise ProfileError(f"{path}: {_short(value)}: {error}") from None
    if any(f"sampling.{key}" in values for key in GRAMMAR_KEYS):
        # one that is given replaces the one of the profile
        values = {f"sampling.{key}": None for key in GRAMMAR_KEYS} | values
    changed = replace(profile, drafters=apply_drafter_flags(profile.drafters, values))
    for path, value in values.items():
        section, _, key = path.rpartition(".")
        if section and not path.startswith("drafter."):
            part = replace(getattr(changed, section), **{key: value})
            changed = replace(changed, **{section: part})
    faults = _whole_faults(changed) if values else []
    if faults:
        raise ProfileError(*(f"{where or profile.name} with flags: {fault}" for fault in faults))
    return changed


def list_profiles() -> tuple[ProfileEntry, ...]:
    """Return every profile that can be loaded by name, those that would win first."""
    entries: dict[str, ProfileEntry] = {}
    for place, path in every_file():
        if path.stem not in entries:
            entries[path.stem] = _entry(path, place.origin)
    return tuple(entries.values())


def _entry(path: Path, origin: str) -> ProfileEntry:
    try:
        profile = profile_in(path)
    except ProfileError as error:
        return ProfileEntry(path.stem, "", origin, path, str(error))
    return ProfileEntry(path.stem, profile.description, origin, path)


def _chain(path: Path) -> list[YamlFile]:
    """Read the file and everything it extends, the first file first."""
    files: list[YamlFile] = []
    seen: list[str] = []
    while True:
        file = _checked(read_yaml(path))
        files.append(file)
        if os.path.realpath(path) in seen:
            circle = " -> ".join(file.path.name for file in files)
            raise ProfileError(f"{files[-2].path}: extends: a circle: {circle}")
        seen.append(os.path.realpath(path))
        parent = file.data.get("extends")
        if parent is None:
            return files
        try:
            path = find(parent, beside=path.parent, skip=seen)
        except ProfileError as error:
            raise ProfileError(f"{file.path}: extends: {error}") from None
        if not os.path.exists(path):
            raise ProfileError(f"{file.path}: extends: {parent!r}: no such file")


def _checked(file: YamlFile) -> YamlFile:
    """Return the file without empty sections if each of its values is allowed."""
    from pydantic import ValidationError

    for section in _SECTIONS:
        if section in file.data and file.data[section] is None:
            del file.data[section]
    lines: dict[Key, str] = {}
    if "name" in file.data:
        lines["name",] = _line(file, ("name",), "unknown: a profile is called as its file is")
    try:
        _adapter().validate_python(file.data)
    except ValidationError as error:
        for fault in error.errors():
            path, text = _fault(file, fault)
            lines.setdefault(path, _line(file, path, text))
    if lines:
        raise ProfileError(*(lines[path] for path in sorted(lines, key=file.line)))
    return file


def _fault(file: YamlFile, error: Mapping[str, Any]) -> tuple[Key, str]:
    """Return where a fault is and what is allowed there."""
    path = file.existing(error["loc"])
    *section, key = path or ("",)
    if error["type"] == "unexpected_keyword_argument":
        return path, "unknown key" + _suggestion(_field_path(section), str(key))
    if error["type"] == "missing":
        return path, f"'{error['loc'][-1]}' is missing"
    return path, _reason(_field_path(path), error)


def _reason(path: str, error: Mapping[str, Any]) -> str:
    if path in ("target.model", "drafter.model"):
        return "allowed: a mapping: {source: ..., sha256: ...}"
    if path.endswith(".source"):
        return str(error.get("ctx", {}).get("error", FORMS))
    if path.endswith(".sha256"):
        return "allowed: 64 hexadecimal digits, null"
    if path == "drafters":
        return "allowed: a list of drafters, such as [{kind: ngram-simple}]"
    keys = keys_of(path)
    if keys:
        return f"allowed: a mapping with the keys {', '.join(keys)}"
    return reason(field_at(_leaf(path)), error)


def _leaf(path: str) -> str:
    """Cut what lies inside the value of a field: ``sampling.stop.1`` is ``sampling.stop``."""
    while path.count(".") > 1:
        path = path.rpartition(".")[0]
    return path


def _suggestion(section: str, key: str) -> str:
    keys = keys_of(section)
    close = nearest(key, keys)
    if not close:
        homes = [f"{name}.{key}" for name in (*_SECTIONS, "drafter") if key in keys_of(name)]
        close = f"; did you mean {homes[0]!r}?" if homes else ""
    return f"{close or '; allowed: ' + ', '.join(keys)}"


def _field_path(path: Key | list[str | int]) -> str:
    """Return the path as FIELDS writes it: an item of ``drafters`` is ``drafter``."""
    if len(path) > 1 and path[0] == "drafters":
        path = ("drafter", *path[2:])
    return ".".join(str(key) for key in path)


def _line(file: YamlFile, path: Key, text: str) -> str:
    shown = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).lstrip(".")
    number = f" (line {file.lines[path]})" if path in file.lines else ""
    return f"{file.path}: {shown}: {_short(file.value(path))}{number}: {text}"


def _short(value: object) -> str:
    words = {"None": "null", "True": "true", "False": "false"}
    text = words.get(repr(value), repr(value))
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return ``base`` with ``over`` on top: mappings are merged, anything else replaced."""
    result = dict(base)
    for key, value in over.items():
        # a hash belongs to its source: a model is replaced as a whole
        deep = key != "model" and isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = _merged(result[key], value) if deep else value
    return result


def _anchored(file: YamlFile) -> dict[str, Any]:
    """Return the file's data with relative paths made to start at the file's folder."""
    data = copy.deepcopy(file.data)
    folder = file.path.parent.resolve()
    for holder in (data.get("target", {}), *data.get("drafters", ())):
        if model := holder.get("model"):
            source = model["source"]
            texts = [source] if isinstance(source, str) else source
            anchored = [_anchored_text(text, folder) for text in texts]
            holder["model"] = {**model, "source": anchored[0] if len(anchored) == 1 else anchored}
    for drafter in data.get("drafters", ()):
        for key in ("static", "dynamic"):
            if drafter.get(key):
                drafter[key] = str(folder / Path(drafter[key]).expanduser())
    if template := data.get("chat", {}).get("template_file"):
        data["chat"]["template_file"] = str(folder / Path(template).expanduser())
    data.setdefault("description", "")
    return data


def _anchored_text(text: str, folder: Path) -> str:
    part = parse_part(text)
    return text if not isinstance(part, LocalPart) or part.built_in else str(folder / part.path)


def _whole_faults(profile: Profile) -> list[str]:
    """Return what is wrong between values that are each allowed."""
    faults = list(drafter_faults(profile.drafters))
    rules = profile.speculation
    if rules.n_max is not None and rules.n_min > rules.n_max:
        faults.append(f"speculation.n_min: {rules.n_min}: allowed: at most n_max, {rules.n_max}")
    grammars = [f"sampling.{k}" for k in GRAMMAR_KEYS if getattr(profile.sampling, k) is not None]
    if len(grammars) > 1:
        faults.append(f"{' and '.join(grammars)}: an answer follows one of them; leave one out")
    return faults


def _adapter() -> Any:
    from outrider.profiles.json_schema import profile_adapter

    return profile_adapter()
