"""Adaptive drafting as a user meets it: decisions, kept costs, and the same text again."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import platformdirs
import pytest
from tools.program import outrider, outrider_here

PROMPT = "Once upon a time there was a small owl."


@pytest.fixture
def pair(zoo: Path) -> tuple[str, ...]:
    files = ("-m", str(zoo / "target-llama.gguf"), "-md", str(zoo / "draft-simple.gguf"))
    return (*files, "-t", "1", "--raw", "-n", "60", "--ignore-eos")


def _json(*args: str) -> dict[str, Any]:
    return _made(outrider_here("run", "--json", *args))


def _made(run: CompletedProcess[bytes]) -> dict[str, Any]:
    assert run.returncode == 0, run.stderr
    made: dict[str, Any] = json.loads(run.stdout)
    return made


def _costs() -> list[Path]:
    folder = Path(platformdirs.user_cache_path("outrider", appauthor=False)) / "costs"
    return sorted(folder.glob("*.json"))


def test_decisions_are_told(pair: tuple[str, ...]) -> None:
    made = _json(*pair, "--temp", "0", PROMPT)["speculation"]
    (decision,) = made["decisions"]
    assert decision["drafter"] == "draft-simple"
    assert 0 <= decision["length"] <= 8
    if decision["needed"] is not None:
        assert decision["measured"] < decision["needed"]
    fixed = _json(*pair, "--temp", "0", "--no-spec-adaptive", PROMPT)["speculation"]
    assert fixed["decisions"] == []


def test_costs_are_kept_for_the_next_start(pair: tuple[str, ...]) -> None:
    assert not _costs()
    _json(*pair, PROMPT)
    (file,) = _costs()
    kept = json.loads(file.read_text())
    assert min(map(int, kept["verify_s"])) == 1
    file.write_text("broken")
    _json(*pair, PROMPT)
    assert json.loads(file.read_text()).keys() == kept.keys()
    _json(*pair, "--no-spec-adaptive", PROMPT)
    assert _costs() == [file]


def test_a_seed_gives_the_same_text_while_verifying_by_the_ratio(pair: tuple[str, ...]) -> None:
    """Also in another process, with other costs kept from another time."""
    rule = ("--temp", "1", "-s", "7", "--spec-draft-sampling", "probabilistic")
    asked = (*pair, "-n", "400", *rule, PROMPT)
    first = _json(*asked)
    assert first["speculation"]["verification"]["rejection"] > 0
    for file in _costs():
        kept = json.loads(file.read_text())
        kept["verify_s"] = dict.fromkeys(kept["verify_s"], 9.0)
        file.write_text(json.dumps(kept))
    again = _made(outrider("run", "--json", *asked))
    assert again["token_ids"] == first["token_ids"]
    for count in ("drafted", "accepted", "accepted_histogram"):
        assert again["speculation"][count] == first["speculation"][count]
