"""YamlFile: one YAML mapping with the line of each value; every fault is one line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from outrider.profiles.errors import ProfileError

Key = tuple[str | int, ...]

_MAX_BYTES = 1_000_000
_MERGE = "tag:yaml.org,2002:merge"


@dataclass(frozen=True, slots=True)
class YamlFile:
    """What a file holds, and the line (from 1) on which each key path stands."""

    path: Path
    data: dict[str, Any]
    lines: dict[Key, int]

    def line(self, path: Key) -> int:
        """Return the line on which ``path`` stands, 0 if it came through an alias."""
        return self.lines.get(path, 0)

    def value(self, path: Key) -> object:
        """Return the value at ``path``, which must exist."""
        value: Any = self.data
        for key in path:
            value = value[key]
        return value

    def existing(self, path: Key) -> Key:
        """Return the longest beginning of ``path`` that the file has."""
        value: Any = self.data
        for depth, key in enumerate(path):
            inside = value if isinstance(value, dict) else _numbered(value)
            if key not in inside:
                return path[:depth]
            value = inside[key]
        return path


def _numbered(value: object) -> dict[str | int, Any]:
    """Return the items of a list under their indexes, nothing for any other value."""
    return dict(enumerate(value)) if isinstance(value, list) else {}


class _Loader(yaml.SafeLoader):
    """YAML with the words of version 1.2: ``on`` and ``2024-01-01`` are text, ``010`` is ten."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            fault = ""
            if not isinstance(key, yaml.ScalarNode):
                fault = "a key must be one word"
            elif key.value in seen and key.tag != _MERGE:
                fault = f"key {key.value!r} appears twice"
            if fault:
                raise yaml.constructor.ConstructorError(None, None, fault, key.start_mark)
            seen.add(key.value)
        self.flatten_mapping(node)
        for key, _ in node.value:
            key.tag = "tag:yaml.org,2002:str"
        return super().construct_mapping(node, deep)


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"^({_pattern})$"), _first
    )
_Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(node.value))
_Loader.add_constructor(
    "tag:yaml.org,2002:float", lambda loader, node: float(re.sub(r"\.(?=[A-Za-z])", "", node.value))
)


def read_yaml(path: Path) -> YamlFile:
    """Return the mapping in ``path``."""
    text = _read_text(path)
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        data = None if node is None else loader.construct_document(node)
        lines = dict(_lines(node))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise ProfileError(f"{path}: not YAML: {error.problem}{where}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ProfileError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ProfileError(f"{path}: not a profile: nested too deeply") from None
    if data is None:
        raise ProfileError(f"{path}: empty; a profile begins with 'schema: 1'")
    if not isinstance(data, dict):
        kind = "a list" if isinstance(data, list) else "plain text"
        raise ProfileError(f"{path}: {kind}, not a mapping; a profile begins with 'schema: 1'")
    return YamlFile(path, data, lines)


def _read_text(path: Path) -> str:
    try:
        if path.is_dir():
            raise ProfileError(f"{path}: a folder; allowed: a YAML file")
        with path.open("rb") as stream:
            content = stream.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise ProfileError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        message = error.strerror if isinstance(error, OSError) else str(error)
        raise ProfileError(f"{path}: cannot be read: {message}") from None
    if content.startswith(b"GGUF"):
        raise ProfileError(f"{path}: a model, not a profile; give it with -m")
    if len(content) > _MAX_BYTES:
        raise ProfileError(f"{path}: larger than 1 MB; a profile is a small YAML file")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ProfileError(f"{path}: not UTF-8 text (line {line}); save it as UTF-8") from None


def _lines(node: yaml.Node | None, path: Key = ()) -> list[tuple[Key, int]]:
    found: list[tuple[Key, int]] = []
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            found.append(((*path, str(key.value)), key.start_mark.line + 1))
            found += _lines(value, (*path, str(key.value)))
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            found.append(((*path, index), value.start_mark.line + 1))
            found += _lines(value, (*path, index))
    return found
