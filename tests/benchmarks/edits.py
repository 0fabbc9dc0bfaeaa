"""N-gram drafting on copies and edits of many texts, without a model: not the luck of one text.

    python tests/benchmarks/edits.py MODEL.gguf [--functions 20] [--drafters "ngram-edit;..."]

Functions of Python's library, as tokens of the model's vocabulary, are written again: as they are
(``copy``), with one name changed throughout (``rename``), with a remark behind every twelfth line
(``remarks``). The prompt is the function, the answer is known, so that a draft token stands or not.
The drafters and the adaptive lengths are the real ones; a clock by formula gives the times, with
rows and cached tokens as dear as measured with SmolLM2 Q4_0 on two cores, and a noise of 4 %;
drafting takes nothing.
"""

from __future__ import annotations

import argparse
import builtins
import importlib
import inspect
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, geometric_mean

import numpy as np

from outrider.speculative.acceptance import AcceptanceModel
from outrider.speculative.draft_length import AdaptiveLength
from outrider.speculative.drafters.chain import ChainDrafter
from outrider.speculative.drafters.ngram_family import ngram_drafter
from outrider.speculative.engine import Engine
from outrider.speculative.proposal import NO_DRAFT, DraftLaw, DraftRequest, Proposal, Verdict
from outrider.speculative.settings import DrafterSettings, EngineSettings, ModelSettings
from outrider.speculative.step_costs import StepCosts, StepLoad
from outrider.speculative.token_sequence import TokenSequence

MODULES = "bisect calendar colorsys copy csv filecmp fnmatch getopt glob heapq linecache pprint"
MODULES += " quopri reprlib shlex statistics string tabnanny textwrap"
DRAFTERS = "ngram-edit;ngram-mod,ngram-simple:3;ngram-mod;ngram-simple:3;ngram-simple"
LONGEST, MOST, SEEDS = 64, 400, 3
ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
SECONDS = np.array([4.7, 7.7, 10.2, 11.3, 15, 17, 22.6, 26, 38, 46, 92]) / 1e3
CELL_S, TILED = 1.6e-6, 0.55  # a row's share of a cached token; of it from 64 rows on
DRAFT_S, NOISE = 2e-5, 0.04  # what the policy is told of drafting


@dataclass(frozen=True, slots=True)
class Task:
    """A prompt, and what is written after it."""

    kind: str
    prompt: list[int]
    answer: list[int]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--functions", type=int, default=20)
    parser.add_argument(
        "--drafters", default=DRAFTERS, help="chains, with ';' between them; :3 is what must match"
    )
    arguments = parser.parse_args()
    with Engine.load(EngineSettings(ModelSettings(arguments.model, ctx_size=512))) as engine:
        made = list(tasks(engine, arguments.functions))
    kinds = list(dict.fromkeys(task.kind for task in made))
    print(f"{'times plain decoding':<24}" + "".join(f"{kind:>10}" for kind in kinds))
    for chain in arguments.drafters.split(";"):
        gains = [[gain(task, chain.split(",")) for task in made if task.kind == k] for k in kinds]
        print(f"{chain:<24}" + "".join(f"{geometric_mean(row):>10.2f}" for row in gains))


def tasks(engine: Engine, count: int) -> Iterator[Task]:
    choice = random.Random(7)
    sources = list(functions())
    choice.shuffle(sources)
    for source in sources[:count]:
        lines = source.splitlines(keepends=True)
        for at in choice.sample(range(len(lines)), max(1, len(lines) // 12)):
            lines[at] = lines[at].rstrip("\n") + "  # checked\n"
        name = choice.choice(names(source))
        new = choice.choice(["fresh_value", "other", "chosen_item", "total", "handle", "xs"])
        renamed = re.sub(rf"\b{name}\b", new, source)
        for kind, text in (("copy", source), ("rename", renamed), ("remarks", "".join(lines))):
            prompt = engine.encode(f"Write this again.\n\n{source}\n")
            yield Task(kind, prompt, engine.encode(text)[:MOST])


def functions() -> Iterator[str]:
    """Functions of some length with a name that comes three to eight times."""
    for module in map(importlib.import_module, MODULES.split()):
        for _, function in sorted(vars(module).items()):
            if inspect.isfunction(function) and function.__module__ == module.__name__:
                source = re.sub(
                    r'""".*?"""', '"""Do it."""', inspect.getsource(function), flags=re.S
                )
                if 500 < len(source) < 2200 and names(source):
                    yield source


def names(source: str) -> list[str]:
    words = set(re.findall(r"\b[a-z_]{4,}\b", source)) - set(dir(builtins)) - KEYWORDS
    return sorted(w for w in words if 3 <= len(re.findall(rf"\b{w}\b", source)) <= 8)


KEYWORDS = {"self", "return", "while", "else", "elif", "continue", "raise", "yield", "from"}
KEYWORDS |= {"import", "with", "lambda", "class", "break", "pass", "except", "assert"}


def gain(task: Task, chain: Sequence[str]) -> float:
    """Times as fast as plain decoding."""
    lengths = range(len(task.prompt), len(task.prompt) + len(task.answer) - 1)
    plain_s = sum(step_s(1, length) for length in lengths)
    return plain_s / fmean(answer_s(task, chain, seed) for seed in range(SEEDS))


def answer_s(task: Task, chain: Sequence[str], seed: int) -> float:
    """Seconds of one answer."""
    noise = np.random.default_rng([seed, len(task.prompt)])
    members = [ngram_drafter(one.kind, one, LONGEST, 0) for one in map(settings_of, chain)]
    drafter, costs = ChainDrafter(members), StepCosts()
    costs.calibrate({rows: step_s(rows, 0) for rows in ROWS})
    limits = {member.name: member.n_max for member in members}
    policy = AdaptiveLength(costs, limits, {n: AcceptanceModel(m) for n, m in limits.items()})
    text, done, total = TokenSequence(task.prompt), 1, 0.0
    text.append(task.answer[0])
    while done < len(task.answer):
        proposal = draft(drafter, policy, text, len(task.answer) - done - 1, costs)
        rest = task.answer[done:]
        pairs = enumerate(zip(proposal.token_ids, rest, strict=False))
        stood = next((i for i, (one, other) in pairs if one != other), len(proposal))
        seconds = step_s(1 + len(proposal), len(text)) * float(np.exp(noise.normal(0, NOISE)))
        costs.observe_verify(1 + len(proposal), seconds, len(text))
        policy.observe(proposal, stood, rest[: stood + 1])
        if proposal.token_ids:
            drafter.observe_verdict(0, Verdict(stood, rest[stood], "bonus"))
        text.extend(rest[: stood + 1])
        done, total = done + stood + 1, total + seconds
    return total


def settings_of(text: str) -> DrafterSettings:
    kind, _, match = text.partition(":")
    return DrafterSettings(kind, options={"match": int(match)} if match else {})


def draft(
    drafter: ChainDrafter, policy: AdaptiveLength, text: TokenSequence, room: int, costs: StepCosts
) -> Proposal:
    load = StepLoad(len(text), len(text))
    bound = 0 if policy.waits() else policy.bound(room, load)
    if bound <= 0:
        return NO_DRAFT
    request = DraftRequest(0, text.ids, bound, no_law, gates=policy.gates, revision=text.revision)
    [proposal] = drafter.propose([request])
    for one in drafter.spent:
        costs.observe_draft(one.num_tokens, DRAFT_S, one.drafter)
    return proposal


def no_law() -> DraftLaw:
    raise AssertionError("n-gram drafters ask for no law")


def step_s(rows: int, num_cells: int) -> float:
    reading = rows * (TILED if rows >= LONGEST else 1.0)
    return float(np.interp(rows, ROWS, SECONDS)) + CELL_S * num_cells * reading


if __name__ == "__main__":
    main()
