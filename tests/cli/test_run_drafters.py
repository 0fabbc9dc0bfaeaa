"""One-shot runs with every kind of drafter: the kind is read from the file."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tools.program import outrider_here as outrider
from tools.zoo_pairs import PAIRS, PROMPTS, ZOO, Pair

TABLE = next(prompt for prompt in PROMPTS if prompt.name == "table")
QUESTION = "Write the 7 times table."


def _run(pair: Pair, *flags: str) -> dict[str, Any]:
    run = outrider(
        "run",
        "-m",
        str(pair.target),
        *flags,
        "--no-spec-adaptive",  # such small models may not be worth a draft
        *("--temp", "0", "-t", "1", "--json", QUESTION),
    )
    assert run.stderr == b"", run.stderr
    assert run.returncode == 0
    made: dict[str, Any] = json.loads(run.stdout)
    return made


@pytest.mark.parametrize(
    "pair",
    [pair for pair in PAIRS.values() if pair.drafter.model is not None],
    ids=lambda pair: pair.name,
)
def test_the_kind_of_a_draft_file_is_found(pair: Pair) -> None:
    assert pair.drafter.model is not None
    made = _run(pair, "-md", str(pair.drafter.model.path))
    assert made["token_ids"] == pair.answer(TABLE)
    assert made["finish_reason"] == "stop"
    speculation = made["speculation"]
    assert speculation["drafters"] == [pair.kind]
    assert list(speculation["per_drafter"]) == [pair.kind]
    assert speculation["accepted"] > 0
    assert speculation["verification"]["greedy"] == speculation["drafts"] > 0


@pytest.mark.parametrize("name", ["mtp-glm4moe", "mtp-qwen35", "mtp3-mimo2"])
def test_heads_of_the_target_need_no_file(name: str) -> None:
    pair = PAIRS[name]
    made = _run(pair, "--spec-type", "draft-mtp")
    assert made["token_ids"] == pair.answer(TABLE)
    assert made["speculation"]["drafters"] == ["draft-mtp"]
    assert made["speculation"]["accepted"] > 0


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (
            ("--spec-type", "draft-dflash", "-md", str(ZOO / "eagle3-d2t.gguf")),
            "it is a draft-eagle3 drafter, --spec-type says draft-dflash",
        ),
        (("-md", str(ZOO / "lfm2-dflash.gguf")), "drafter reads 1 3 4, target has 4"),
        (("--spec-type", "draft-mtp"), "this target has no NextN heads"),
        (("--spec-type", "draft-eagle3"), "draft-eagle3 needs a model"),
        (
            ("-md", str(ZOO / "dspark-spec.gguf"), "--spec-draft-p-min", "0.5"),
            "has no confidence head",
        ),
    ],
)
def test_what_cannot_draft_is_said_in_one_line(flags: tuple[str, ...], reason: str) -> None:
    run = outrider("run", "-m", str(ZOO / "target-llama.gguf"), *flags, "Hello!")
    assert run.returncode == 2
    assert run.stdout == b""
    [line] = run.stderr.decode().splitlines()
    assert line.startswith("outrider: error: ")
    assert reason in line
