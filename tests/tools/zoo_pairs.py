"""The pairs of tiny trained models, and what llama-server wrote, drafted and accepted with them.

``expected.json`` lists the pairs with llama-server's counts, ``prompts.jsonl`` has the answers
without a drafter, ``drafts.jsonl`` the steps with one, at most 4 tokens a draft.

All of it was recorded on a processor with AVX-512. Another adds in another order, which shows in
the second decimal of an F16 logit, and these models have near ties. So a prompt counts for a
target only if plain decoding gives the recorded answer on this processor; where it does not, the
answers must part at a tie (:func:`here`).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tools.processor import is_recording_processor
from tools.ties import check_same
from tools.toy_session import result_of
from tools.witness import engine_settings, model_settings

from outrider.speculative.engine import Engine
from outrider.speculative.settings import DrafterSettings, GenerationSettings, SamplingSettings

ZOO = Path(__file__).parents[1] / "fixtures" / "zoo"
N_CTX = 1024
MAX_OTHERS = 0.15  # of the prompts may have another answer on another processor


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt, its length by target, and its greedy answers with the end token."""

    name: str
    text: str
    answers: Mapping[str, tuple[int, ...]]
    lengths: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ServerStep:
    """One step of llama-server.

    Attributes:
        cached: tokens in its slot before the step.
        num_drafted: draft tokens.
        draft: their ids; None where the server did not log them.
        num_accepted: an end token counts only if it is the last one of the draft.
        is_restored: the target went back to a checkpoint and read the accepted tokens and the
            correction again, as a draft of which all stands: one token more than accepted.
    """

    cached: int
    num_drafted: int
    draft: tuple[int, ...] | None
    num_accepted: int
    is_restored: bool = False


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and its drafter; ``counts`` are [accepted, drafted] by setting and prompt."""

    name: str
    target: Path
    drafter: DrafterSettings
    counts: Mapping[str, Mapping[str, tuple[int, int]]]
    rate: float

    @property
    def kind(self) -> str:
        return self.drafter.kind

    def load(self, *, ctx_size: int = N_CTX, parallel: int = 1, **speculation: object) -> Engine:
        """An engine of this pair with a fixed draft length."""
        return Engine.load(
            engine_settings(
                self.target, [self.drafter], ctx_size=ctx_size, parallel=parallel, **speculation
            )
        )

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """Those whose answers are the same on this processor."""
        return here(self.target)

    def answer(self, prompt: Prompt) -> list[int]:
        """The tokens of the answer without the end token."""
        return list(prompt.answers[self.target.stem][:-1])


def _lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (ZOO / name).read_text().splitlines()]


def _prompt(line: dict[str, Any]) -> Prompt:
    answers, lengths = {}, {}
    for target, told in line["greedy"].items():
        assert told["stop"] == "eos"
        answers[target] = tuple(told["tokens"])
        lengths[target] = told["n_prompt"]
    return Prompt(line["id"], line["text"], answers, lengths)


def _pair(name: str, line: dict[str, Any]) -> Pair:
    kind, drafter = line["spec_type"], line["drafter"]
    options = {"match": 3, "size": 4} if kind == "ngram-simple" else {}
    model = None if drafter in (None, "-") else model_settings(ZOO / f"{drafter}.gguf")
    return Pair(
        name,
        ZOO / f"{line['target']}.gguf",
        DrafterSettings(kind, model, options=options),
        {
            setting: {prompt: tuple(counts) for prompt, counts in told["per_prompt"].items()}
            for setting, told in line.items()
            if isinstance(told, dict)
        },
        line["n4"]["rate"],
    )


def _steps(line: dict[str, Any]) -> tuple[ServerStep, ...]:
    return tuple(
        ServerStep(
            step["n_past"],
            step["n"],
            tuple(step["draft"]) if "draft" in step else None,
            step["accepted"],
            step.get("restored", False),
        )
        for step in line["steps"]
    )


PROMPTS: tuple[Prompt, ...] = tuple(_prompt(line) for line in _lines("prompts.jsonl"))
PAIRS: dict[str, Pair] = {
    name: _pair(name, line)
    for name, line in json.loads((ZOO / "expected.json").read_text()).items()
}
SERVER_STEPS: dict[tuple[str, str], tuple[ServerStep, ...]] = {
    (line["pair"], line["id"]): _steps(line) for line in _lines("drafts.jsonl")
}


def counts_by_design(
    pair: Pair, prompt: Prompt, drafts: Sequence[Sequence[int]]
) -> tuple[int, int, int]:
    """Drafts, drafted and accepted tokens of llama-server, counted up to the end of the text.

    It counts what it drafted after an end token. By the design nothing from the end
    token on counts, but a draft token that the end token replaced was verified.
    """
    *answer, end = prompt.answers[pair.target.stem]
    length = prompt.lengths[pair.target.stem] + len(answer)
    num_drafts = drafted = accepted = 0
    for step, draft in zip(SERVER_STEPS[pair.name, prompt.name], drafts, strict=True):
        rest = length - (step.cached + 1)  # the pending token is part of the answer already
        kept = min(step.num_accepted, rest)
        is_last = kept == rest
        if is_last and not kept:
            continue  # the step emitted nothing: it is none
        replaced = is_last and kept < len(draft) and draft[kept] != end
        num_drafts += 1
        drafted += kept + replaced if is_last else len(draft)
        accepted += kept
    return num_drafts, drafted, accepted


@functools.cache
def here(target: Path) -> tuple[Prompt, ...]:
    """The prompts to which plain decoding gives the recorded answer on this processor.

    Asserts that it does to all on one like that of the recording, and that on another it parts
    from few, at ties.
    """
    asked = GenerationSettings(SamplingSettings(temp=0), predict=100)
    same, num_others = [], 0
    with Engine.load(engine_settings(target, ctx_size=N_CTX)) as engine:
        session = engine.session()
        for prompt in PROMPTS:
            ids = engine.encode(prompt.text)
            session.reset()
            result = result_of(session.generate(ids, asked))
            recorded = list(prompt.answers[target.stem][:-1])
            if result.token_ids == recorded:
                same.append(prompt)
            else:
                check_same(result, replace(result, token_ids=recorded), ids, asked, engine)
                num_others += 1
    assert num_others <= (0 if is_recording_processor() else MAX_OTHERS * len(PROMPTS))
    return tuple(same)
