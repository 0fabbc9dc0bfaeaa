"""``bench speed`` on the engine and on a real llama-server: the same texts and the same counts."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tools.llama_server import ServerSettings, llama_server
from tools.program import outrider

pytestmark = pytest.mark.skipif(
    find_spec("xllamacpp") is None, reason="the wheel xllamacpp is not installed"
)

# longer answers than are asked for: all end by length, where both sides count alike
ASKED = (
    "Count from 5 to 16.",
    "Write the 7 times table.",
    "Tell me a story about a fox.",
    "List the months of the year.",
    "Give me JSON for a user named Tom.",
)
OSL = 24


def _speed(prompts: Path, *flags: str) -> list[dict[str, Any]]:
    run = outrider("bench", "speed", "--json", "--osl", str(OSL), "--prompts", str(prompts), *flags)
    assert run.returncode == 0, run.stderr
    return [one["turns"][0] for one in json.loads(run.stdout)["rounds"]]


def test_counts_are_those_of_a_server(zoo: Path, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    lines = [
        {"question_id": str(number), "category": "zoo", "turns": [text]}
        for number, text in enumerate(ASKED)
    ]
    prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
    target, draft = str(zoo / "target-llama.gguf"), str(zoo / "draft-simple.gguf")
    settings = ServerSettings(target, "draft_simple", draft, n_max=4)
    with llama_server(settings, tmp_path / "server.log") as server:
        theirs = _speed(prompts, "--url", server.address)
    drafting = ("-md", draft, "--spec-draft-n-max", "4", "--no-spec-adaptive")
    ours = _speed(prompts, "-m", target, "-t", "1", "-c", "1024", *drafting)
    for a, b in zip(ours, theirs, strict=True):
        assert a["text"] == b["text"]
        assert a["completion_tokens"] == b["completion_tokens"] == OSL
        assert a["prompt_tokens"] == b["prompt_tokens"]
        assert (a["accepted"], a["drafted"]) == (b["accepted"], b["drafted"])
    assert sum(turn["accepted"] for turn in ours) > 50
