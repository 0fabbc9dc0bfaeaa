"""PromptSet: conversations to ask, each of a category, read from JSONL."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from outrider.cli.errors import UsageError

OWN = "prompts.jsonl"


@dataclass(frozen=True, slots=True)
class Sample:
    """One conversation: what the user says, turn by turn."""

    id: str
    category: str
    turns: tuple[str, ...]

    @property
    def sha256(self) -> str:
        """The same for the same texts in the same category."""
        return _digest([self.id, self.category, *self.turns])


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Samples in the order of their file; ``num_skipped`` of its rows could not be used."""

    name: str
    samples: tuple[Sample, ...]
    num_skipped: int = 0

    @property
    def categories(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(sample.category for sample in self.samples))

    @property
    def sha256(self) -> str:
        return _digest(sample.sha256 for sample in self.samples)

    def select(self, categories: str | None, limit: int | None) -> PromptSet:
        """Those of the ``categories`` (a list with commas, or ``all``), ``limit`` of each.

        Raises:
            UsageError: a category that is not there.
        """
        wanted = self._wanted(categories)
        seen: Counter[str] = Counter()
        chosen = []
        for sample in self.samples:
            seen[sample.category] += 1
            if sample.category in wanted and (limit is None or seen[sample.category] <= limit):
                chosen.append(sample)
        return replace(self, samples=tuple(chosen))

    def _wanted(self, text: str | None) -> tuple[str, ...]:
        if text is None or text.strip() == "all":
            return self.categories
        names = tuple(name.strip() for name in text.split(",") if name.strip())
        unknown = [name for name in names if name not in self.categories]
        if unknown or not names:
            given = ", ".join(unknown) or repr(text)
            raise UsageError(f"--category: {given}; {self.name} has {', '.join(self.categories)}")
        return names


def read_prompts(path: Path | None) -> PromptSet:
    """The set in a file of SPEED-Bench's form, or our own.

    A row has ``question_id``, ``category`` and ``turns``; one that lacks any of them is skipped.

    Raises:
        UsageError: no such file, a line that is no JSON object, an id twice, no row to use.
    """
    name = "the built-in set" if path is None else str(path)
    try:
        file = files("outrider.cli.bench").joinpath(OWN) if path is None else path
        lines = file.read_text("utf-8").splitlines()
    except OSError as error:
        raise UsageError(f"--prompts {name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"--prompts {name}: not UTF-8 text") from None
    samples: dict[str, Sample] = {}
    num_skipped = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        sample = _sample(_row(line, f"--prompts {name}, line {number}"))
        if sample is None:
            num_skipped += 1
        elif sample.id in samples:
            raise UsageError(
                f"--prompts {name}, line {number}: question_id {sample.id!r} is there twice"
            )
        else:
            samples[sample.id] = sample
    if not samples:
        raise UsageError(f"--prompts {name}: no row with question_id, category and turns")
    return PromptSet(name, tuple(samples.values()), num_skipped)


def _row(line: str, where: str) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise UsageError(f"{where}: not JSON: {error}") from None
    if not isinstance(row, dict):
        raise UsageError(f"{where}: not a JSON object")
    return row


def _sample(row: Mapping[str, Any]) -> Sample | None:
    """The conversation of a row; None if there is none in it."""
    name, category, turns = (row.get(key) for key in ("question_id", "category", "turns"))
    name = str(name) if isinstance(name, int) and not isinstance(name, bool) else name
    texts = [name, category, *(turns if isinstance(turns, list) else ())]
    if len(texts) < 3 or not all(isinstance(text, str) and text.strip() for text in texts):
        return None
    name, category, *turns = (text.strip() for text in texts)
    return Sample(name, category, tuple(turns))


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256(json.dumps(list(parts)).encode()).hexdigest()
