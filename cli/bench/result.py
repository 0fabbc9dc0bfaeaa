"""BenchResult: a finished measurement as it is saved, with all that is needed to repeat it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from outrider.cli.bench.machine import library_facts, machine_facts
from outrider.cli.errors import UsageError

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class BenchResult:
    """``kind`` is the command; ``arms`` have profile, flags, models, settings by label;
    ``rounds`` is every single measurement, ``summary`` what the tables show.
    """

    kind: str
    arms: Mapping[str, Mapping[str, object]]
    settings: Mapping[str, object]
    rounds: Sequence[Mapping[str, object]]
    summary: Mapping[str, object] | Sequence[Mapping[str, object]]
    synthetic: bool = False
    created: str = field(
        default_factory=lambda: datetime.now().astimezone().isoformat(timespec="seconds")
    )
    command: Sequence[str] = field(default_factory=lambda: tuple(sys.argv[1:]))
    machine: Mapping[str, object] = field(default_factory=machine_facts)
    library: Mapping[str, object] = field(default_factory=library_facts)

    def as_json(self) -> dict[str, Any]:
        whole = {
            "schema": SCHEMA,
            "kind": self.kind,
            "synthetic": self.synthetic,
            "created": self.created,
            "command": self.command,
            "machine": self.machine,
            "library": self.library,
            "arms": self.arms,
            "settings": self.settings,
            "summary": self.summary,
            "rounds": self.rounds,
        }
        return {key: _plain(value) for key, value in whole.items()}

    def save(self, path: Path) -> None:
        """Write it as readable JSON.

        Raises:
            UsageError: the file cannot be written.
        """
        try:
            path.write_text(json.dumps(self.as_json(), indent=1) + "\n", "utf-8")
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from None


def _plain(value: Any) -> Any:
    """What JSON can hold of a value: flags may be dataclasses."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def read_result(path: Path) -> dict[str, Any]:
    """A saved result; UsageError if the file is none."""
    try:
        data = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{path}: not a saved result: {error}") from None
    if not isinstance(data, dict) or not isinstance(data.get("kind"), str):
        raise UsageError(f'{path}: not a saved result: no "kind"')
    if data.get("schema") != SCHEMA:
        raise UsageError(f"{path}: schema {data.get('schema')!r}: this version reads {SCHEMA}")
    return data
