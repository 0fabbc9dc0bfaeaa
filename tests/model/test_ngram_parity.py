"""The n-gram drafters' counts, one to one with a real llama-server.

Both sides are compared with llama.cpp's drafters written the slow way: the server with their
faults, the engine without. So a difference is shown to be a fault that is mended, and nothing
else. Runs end by length, end tokens are banned on both sides.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tools.llama_server import LlamaServer, ServerSettings, llama_server
from tools.slow_ngrams import SlowCache, SlowDrafter, SlowMap, SlowMod, SlowPool, counted, simulate
from tools.toy_session import check_counts, result_of
from tools.witness import engine_settings

from outrider.speculative.drafters.ngram_cache_file import add_counts
from outrider.speculative.drafters.ngram_counts import NgramCounts
from outrider.speculative.engine import Engine
from outrider.speculative.settings import DrafterSettings, GenerationSettings, SamplingSettings

pytestmark = pytest.mark.skipif(
    find_spec("xllamacpp") is None, reason="the wheel xllamacpp is not installed"
)

ZOO = Path(__file__).parent.parent / "fixtures" / "zoo"
TARGET = ZOO / "target-llama.gguf"
PREDICT = 70
ASKED = GenerationSettings(SamplingSettings(temp=0, ignore_eos=True), predict=PREDICT)
PROMPTS: dict[str, str] = {
    prompt["id"]: prompt["text"]
    for prompt in map(json.loads, (ZOO / "prompts.jsonl").read_text().splitlines())
}
TALKS = ("plus", "table", "colour", "story-fox", "json-tom", "say", "raw-count", "raw-table")

Counts = tuple[int, int]


@dataclass
class Tally:
    """Drafted and accepted of each answer, by who counted."""

    server: list[Counts]
    as_llama: list[Counts]
    engine: list[Counts]
    mended: list[Counts]
    num_same_text: int = 0

    def check(self) -> None:
        assert self.server == self.as_llama
        assert self.engine == self.mended
        assert self.num_same_text > 0.8 * len(self.engine)

    def total(self, who: Sequence[Counts]) -> Counts:
        return sum(drafted for drafted, _ in who), sum(accepted for _, accepted in who)


def _prompts(engine: Engine, first: str) -> Generator[list[int], list[int], None]:
    """A conversation: asked, asked again, gone on twice, undone. Each answer is sent in."""
    prompt = engine.encode(PROMPTS[first])
    more = engine.encode(PROMPTS["times"])[1:]
    yield prompt
    answer = yield prompt
    undone = prompt = [*prompt, *answer, *more]
    answer = yield prompt
    prompt = [*prompt, *answer, *more]
    answer = yield prompt
    yield undone[:-4]


def _next(prompts: Generator[list[int], list[int], None], answer: list[int]) -> list[int] | None:
    try:
        return prompts.send(answer)
    except StopIteration:
        return None


SlowPair = Callable[[], tuple[SlowDrafter, SlowDrafter]]


def _tally(server: LlamaServer, drafter: DrafterSettings, slow: SlowPair, *, apart: bool) -> Tally:
    """All talks; ``apart`` means that none knows of the one before: another slot there."""
    tally = Tally([], [], [], [])
    with Engine.load(engine_settings(TARGET, [drafter])) as engine:
        session = engine.session()
        as_llama, mended = slow()
        for slot, first in enumerate(TALKS):
            if apart:
                as_llama, mended = slow()
                session.reset()
            prompts = _prompts(engine, first)
            prompt: list[int] | None = next(prompts)
            while prompt is not None:
                ours = result_of(session.generate(prompt, ASKED))
                theirs = server.complete(prompt, PREDICT, slot if apart else 0)
                check_counts(ours)
                # other kernels: at a near tie each side writes on from its own token
                tally.num_same_text += ours.token_ids == theirs.token_ids
                tally.server.append((theirs.drafted, theirs.accepted))
                tally.engine.append((ours.stats.drafted, ours.stats.accepted))
                tally.as_llama.append(simulate(as_llama, prompt, theirs.token_ids))
                tally.mended.append(simulate(mended, prompt, ours.token_ids))
                prompt = _next(prompts, ours.token_ids)
    return tally


@pytest.mark.parametrize(("match", "size", "min_hits"), [(3, 5, 1), (2, 9, 1), (3, 5, 2)])
@pytest.mark.parametrize("kind", ["ngram-map-k", "ngram-map-k4v"])
def test_maps(kind: str, match: int, size: int, min_hits: int, tmp_path: Path) -> None:
    ngram = {"size_n": match, "size_m": size, "min_hits": min_hits}
    options = {"match": match, "size": size, "min_hits": min_hits}
    values = kind == "ngram-map-k4v"

    def slow() -> tuple[SlowDrafter, SlowDrafter]:
        as_llama = SlowMap(match, size, min_hits, values=values, as_llama=True)
        return as_llama, SlowMap(match, size, min_hits, values=values)

    with _server(kind, ngram, tmp_path, parallel=len(TALKS)) as server:
        tally = _tally(server, DrafterSettings(kind, options=options), slow, apart=True)
    tally.check()
    drafted, accepted = tally.total(tally.server)
    assert drafted > accepted > 30
    if values or min_hits == 1:
        # but for an answer that ended inside a draft of which all that was asked for stood
        same = [a == b for a, b in zip(tally.server, tally.engine, strict=True)]
        assert sum(same) > 0.85 * len(same)


def test_mod(tmp_path: Path) -> None:
    ngram = {"n_match": 3, "n_min": 2, "n_max": 7}
    drafter = DrafterSettings("ngram-mod", n_max=7, options={"n_match": 3, "n_min": 2})

    def slow() -> tuple[SlowDrafter, SlowDrafter]:
        return SlowMod(SlowPool(), [], 3, 2, 7, as_llama=True), SlowMod(SlowPool(), [], 3, 2, 7)

    with _server("ngram-mod", ngram, tmp_path) as server:
        tally = _tally(server, drafter, slow, apart=False)
    tally.check()
    drafted, accepted = tally.total(tally.server)
    assert drafted > accepted > 100


@pytest.mark.parametrize("has_files", [False, True])
def test_cache(has_files: bool, tmp_path: Path) -> None:
    static, dynamic = _corpora() if has_files else ({}, {})
    ngram: dict[str, object] = {}
    options: dict[str, object] = {}
    for name, counts in (("static", static), ("dynamic", dynamic)):
        if has_files:
            ngram[f"lookup_cache_{name}"] = str(_file(tmp_path / name, counts))
            # ours adds to it at the end
            options[name] = _file(tmp_path / f"our-{name}", counts)

    def slow() -> tuple[SlowDrafter, SlowDrafter]:
        return SlowCache(dynamic, static, as_llama=True), SlowCache(dynamic, static)

    # ours would learn from a text that is forgotten
    slots = 1 if has_files else len(TALKS)
    with _server("ngram-cache", ngram, tmp_path, parallel=slots) as server:
        drafter = DrafterSettings("ngram-cache", options=options)
        tally = _tally(server, drafter, slow, apart=not has_files)
    tally.check()
    drafted, accepted = tally.total(tally.server)
    assert drafted > accepted > 20
    # ours counts what the target writes, too
    assert tally.total(tally.engine)[1] > 1.5 * accepted


def _server(kind: str, ngram: Mapping[str, object], folder: Path, *, parallel: int = 1) -> Any:
    settings = ServerSettings(
        str(TARGET), kind.replace("-", "_"), ngram=dict(ngram), parallel=parallel
    )
    return llama_server(settings, folder / "server.log")


Corpus = dict[tuple[int, ...], dict[int, int]]


def _corpora() -> tuple[Corpus, Corpus]:
    """N-grams of the recorded answers: pairs as a corpus, all of some as earlier texts."""
    with Engine.load(engine_settings(TARGET)) as engine:
        texts = [engine.encode(text) for text in PROMPTS.values()]
    static = counted([token for text in texts for token in text])
    pairs: Corpus = {ngram: part for ngram, part in static.items() if len(ngram) == 2}
    return pairs, counted([token for text in texts[::3] for token in text])


def _file(path: Path, counts: Corpus) -> Path:
    made = NgramCounts()
    for ngram, part in counts.items():
        for token, count in part.items():
            made.add(b"".join(t.to_bytes(4, "little") for t in ngram), token, count)
    add_counts(path, made, 512)
    return path
