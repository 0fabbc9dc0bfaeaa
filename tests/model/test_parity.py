"""Drafted and accepted tokens, one to one with a real llama-server.

Runs end by length, before the model would end its answer. End tokens are banned on both sides,
but only our drafter knows of the ban: where it would draft one the counts could differ.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tools.llama_server import ServerSettings, llama_server
from tools.toy_session import check_counts, result_of
from tools.witness import engine_settings, model_settings

from outrider.speculative.engine import Engine
from outrider.speculative.settings import DrafterSettings, GenerationSettings, SamplingSettings

pytestmark = pytest.mark.skipif(
    find_spec("xllamacpp") is None, reason="the wheel xllamacpp is not installed"
)

GREEDY = SamplingSettings(temp=0, ignore_eos=True)
MATCH, SIZE = 3, 4


def _pair(kind: str, zoo: Path, n_max: int) -> tuple[DrafterSettings, ServerSettings]:
    """The same drafter for the engine and for the server."""
    target = zoo / "target-llama.gguf"
    if kind == "ngram-simple":
        options = {"match": MATCH, "size": SIZE}
        server = ServerSettings(str(target), "ngram_simple", n_max=n_max, match=MATCH, size=SIZE)
        return DrafterSettings("ngram-simple", options=options), server
    draft = target if kind == "itself" else zoo / "draft-simple.gguf"
    server = ServerSettings(str(target), "draft_simple", str(draft), n_max)
    return DrafterSettings("draft-simple", model_settings(draft)), server


@pytest.mark.parametrize(
    ("kind", "n_max"),
    [
        ("itself", 4),
        ("itself", 7),
        ("draft-simple", 1),
        ("draft-simple", 3),
        ("draft-simple", 8),
        ("ngram-simple", SIZE),
    ],
)
def test_counts_are_those_of_llama_server(kind: str, n_max: int, zoo: Path, tmp_path: Path) -> None:
    drafter, server_settings = _pair(kind, zoo, n_max)
    prompts: list[dict[str, Any]] = [
        json.loads(line) for line in (zoo / "prompts.jsonl").read_text().splitlines()
    ]
    target = zoo / "target-llama.gguf"
    drafted = 0
    with (
        llama_server(server_settings, tmp_path / "server.log") as server,
        Engine.load(engine_settings(target, [drafter], n_max=n_max)) as engine,
    ):
        session = engine.session()
        for prompt in prompts:
            # the recorded answer but its end token
            predict = len(prompt["greedy"]["target-llama"]["tokens"]) - 1
            asked = GenerationSettings(GREEDY, predict=predict)
            ours = result_of(session.generate(engine.encode(prompt["text"]), asked))
            theirs = server.complete(prompt["text"], predict)
            check_counts(ours)
            assert ours.token_ids == theirs.token_ids, prompt["id"]
            counts = (ours.stats.drafted, ours.stats.accepted)
            assert counts == (theirs.drafted, theirs.accepted), prompt["id"]
            drafted += theirs.drafted
    assert drafted > 200
