"""Adaptive drafting against plain decoding and against every fixed draft length.

    python tests/benchmarks/adaptive.py MODEL.gguf [--rounds 3] [--tokens 96] [-o FILE.json]

Four workloads of two prompts each (workloads.jsonl) with four drafters: ``ngram-mod``,
``draft-eagle3``, ``self`` (the target drafts for itself) and ``bad`` (a tiny llama with random
weights); other n-gram kinds can be named too. In each round every prompt is answered by all
arms with the same seed: plain, plain again (another engine of the same kind, which shows the
noise), adaptive, and fixed at each length. They go on in turns of a third of a second: a machine
that is slow for a while is slow for all of them. End tokens are ignored, and the prompt is read
before the clock starts.

Each pair of workload and drafter has engines of its own, one for each arm: what the adaptive one
learns it keeps from answer to answer and from nothing else. Texts must not: the prompts come
again in every round, so the pools of ngram-mod are emptied before each answer.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from outrider.speculative.drafters.ngram_pool import NgramPool
from outrider.speculative.engine import Engine
from outrider.speculative.events import FinishEvent, GenerationResult, StepEvent
from outrider.speculative.gguf_file import GgufFile
from outrider.speculative.session import Session
from outrider.speculative.settings import (
    DrafterSettings,
    EngineSettings,
    GenerationSettings,
    GrammarSettings,
    ModelSettings,
    SamplingSettings,
    SpeculationSettings,
)

sys.path.insert(0, str(Path(__file__).parents[1]))
from tools.gguf_edit import raw_metadata
from tools.gguf_writer import Block, Given, write

from benchmarks.turns import take_turns

HERE = Path(__file__).parent
EAGLE3 = HERE.parents[1] / "profiles" / "smollm2-135m-eagle3.gguf"
DRAFTERS = ("ngram-mod", "draft-eagle3", "self", "bad")
PLAIN, AGAIN, ADAPTIVE = "plain", "plain again", "adaptive"
CONTEXT = 2048
QUIET_STEPS = 16  # without a draft: then the drafter was given up, and what follows are probes


@dataclass(frozen=True, slots=True)
class Prompt:
    """One line of workloads.jsonl."""

    id: str
    workload: str
    temp: float
    messages: list[dict[str, str]]
    json_schema: dict[str, Any] | None = None

    def settings(self, seed: int, num_tokens: int) -> GenerationSettings:
        grammar = None
        if self.json_schema is not None:
            grammar = GrammarSettings("json-schema", json.dumps(self.json_schema), self.id)
        return GenerationSettings(
            SamplingSettings(temp=self.temp, ignore_eos=True),
            predict=num_tokens,
            seed=seed,
            grammar=grammar,
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """``lengths`` are the draft lengths in force, one a step; the speed is in tokens/s."""

    round: int
    prompt: str
    arm: str
    speed: float
    drafted: int
    accepted: int
    draft_s: float
    verify_s: float
    lengths: list[int]
    token_ids: list[int]


@dataclass(slots=True)
class Pair:
    """All answers of one workload with one drafter."""

    workload: str
    drafter: str
    answers: list[Answer] = field(default_factory=list)

    def speeds(self, arm: str) -> list[float]:
        return [answer.speed for answer in self.answers if answer.arm == arm]

    def ratio(self, arm: str, base: str) -> float:
        """Median over rounds and prompts of the ratio within a round."""
        pairs = zip(self.speeds(arm), self.speeds(base), strict=True)
        return median(one / other for one, other in pairs)

    def best_fixed(self) -> str:
        """The fixed length with the highest ratio to plain, which is length 0."""
        fixed = dict.fromkeys(a.arm for a in self.answers if a.arm not in (AGAIN, ADAPTIVE))
        return max(fixed, key=lambda arm: self.ratio(arm, PLAIN))

    def given_up(self) -> tuple[int | None, int]:
        """The steps of the first adaptive answer before the drafter was given up, None if it
        never was; and how many steps had a draft after that.
        """
        first = next(a for a in self.answers if a.arm == ADAPTIVE)
        lengths = first.lengths
        for step in range(len(lengths) - QUIET_STEPS + 1):
            if not any(lengths[step : step + QUIET_STEPS]):
                return step, sum(map(bool, lengths[step:]))
        return None, 0

    def num_changed(self) -> int:
        """Answers that are not what plain decoding gives to the same prompt in the same round."""
        plain = {(a.round, a.prompt): a.token_ids for a in self.answers if a.arm == PLAIN}
        return sum(plain[a.round, a.prompt] != a.token_ids for a in self.answers)


class Clock:
    """Says on stderr what is done and about how long the rest takes."""

    def __init__(self, num_answers: int) -> None:
        self._total = num_answers
        self._done = 0
        self._started = time.perf_counter()

    def tick(self, words: str) -> None:
        self._done += 1
        passed = time.perf_counter() - self._started
        left = passed / self._done * (self._total - self._done)
        print(
            f"{self._done}/{self._total} {words}, load {os.getloadavg()[0]:.1f},"
            f" left {left // 60:.0f} min {left % 60:02.0f} s",
            file=sys.stderr,
            flush=True,
        )


def main() -> None:
    arguments = parse()
    prompts = read_prompts(arguments.workloads)
    names, lengths = arguments.drafters.split(","), arguments.lengths
    clock = Clock(len(names) * len(prompts) * arguments.rounds)
    target = ModelSettings(arguments.model, ctx_size=CONTEXT, threads=arguments.threads)
    pairs = []
    print_header()
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            drafter = drafter_of(name, target, arguments.eagle3, Path(folder))
            for workload in dict.fromkeys(prompt.workload for prompt in prompts):
                pair = Pair(workload, name)
                chosen = [prompt for prompt in prompts if prompt.workload == workload]
                with Arms(target, drafter, lengths, arguments.tokens) as arms:
                    for number, prompt in product(range(arguments.rounds), chosen):
                        pair.answers.extend(arms.answers(prompt, number))
                        clock.tick(f"{name}, {prompt.id}, round {number}")
                pairs.append(pair)
                print_row(pair)
                if arguments.output:
                    arguments.output.write_text(json.dumps([summary(p) for p in pairs], indent=1))
    changed, total = sum(pair.num_changed() for pair in pairs), sum(len(p.answers) for p in pairs)
    print(f"answers that differ from plain decoding's: {changed} of {total}")


def parse() -> argparse.Namespace:
    def numbers(text: str) -> list[int]:
        return [int(word) for word in text.split(",")]

    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--workloads", help="such as 'prose,code editing'; all by default")
    parser.add_argument("--drafters", default=",".join(DRAFTERS))
    parser.add_argument("--lengths", type=numbers, default=[1, 2, 3, 4, 5, 6, 7, 8])
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--eagle3", type=Path, default=EAGLE3, help="draft model of that kind")
    parser.add_argument("-o", "--output", type=Path)
    return parser.parse_args()


def read_prompts(workloads: str | None) -> list[Prompt]:
    """The prompts of the ``workloads``, of all if None."""
    lines = (HERE / "workloads.jsonl").read_text().splitlines()
    prompts = [Prompt(**json.loads(line)) for line in lines]
    known = dict.fromkeys(prompt.workload for prompt in prompts)
    wanted = workloads.split(",") if workloads else list(known)
    for name in wanted:
        if name not in known:
            raise SystemExit(f"--workloads {name}: allowed {', '.join(known)}")
    return [prompt for prompt in prompts if prompt.workload in wanted]


def drafter_of(name: str, target: ModelSettings, eagle3: Path, folder: Path) -> DrafterSettings:
    """The drafter called ``name``; a random model is written to ``folder``."""
    if name == "self":
        return DrafterSettings("draft-simple", target)
    if name == "draft-eagle3":
        return DrafterSettings(name, ModelSettings(eagle3, threads=target.threads))
    if name == "bad":
        path = random_model(target.path, folder / "random.gguf")
        return DrafterSettings("draft-simple", ModelSettings(path, threads=target.threads))
    return DrafterSettings(name)


def random_model(target: Path, path: Path) -> Path:
    """Write a llama of one layer with random weights and the vocabulary of ``target``."""
    width, hidden = 64, 128
    vocab = GgufFile.open(target).text_array("tokenizer.ggml.tokens")
    assert vocab is not None
    kept = {k: v for k, v in raw_metadata(target).items() if k.startswith("tokenizer.")}
    shapes = {
        "token_embd": (width, len(vocab)),
        "output_norm": (width,),
        "blk.0.attn_norm": (width,),
        "blk.0.attn_q": (width, width),
        "blk.0.attn_k": (width, width),
        "blk.0.attn_v": (width, width),
        "blk.0.attn_output": (width, width),
        "blk.0.ffn_norm": (width,),
        "blk.0.ffn_gate": (width, hidden),
        "blk.0.ffn_up": (width, hidden),
        "blk.0.ffn_down": (hidden, width),
    }
    facts: dict[str, Given] = {
        "general.architecture": "llama",
        "general.name": "random",
        "llama.context_length": CONTEXT,
        "llama.block_count": 1,
        "llama.embedding_length": width,
        "llama.feed_forward_length": hidden,
        "llama.attention.head_count": 2,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
    }
    blocks = {f"{k}.weight": Block(s, 0, 4 * int(np.prod(s))) for k, s in shapes.items()}
    write(path, {**facts, **kept}, blocks)
    numbers = np.random.default_rng(1)
    with path.open("r+b") as file:
        for tensor in GgufFile.open(path).tensors.values():
            weights = numbers.normal(0, 0.5, tensor.num_elements)
            if len(tensor.shape) == 1:
                weights = np.ones(tensor.num_elements)
            file.seek(tensor.offset)
            file.write(weights.astype("<f4").tobytes())
    return path


class Writing:
    """An answer that goes on for a moment at a time. The prompt is read before its clock starts."""

    def __init__(
        self, engine: Engine, session: Session, prompt: Prompt, settings: GenerationSettings
    ) -> None:
        session.reset()
        self.result: GenerationResult | None = None
        self.lengths: list[int] = []
        self._session = session
        self._events = session.generate(engine.render(prompt.messages), settings)
        self._seconds, self._num_tokens = 0.0, 0
        # the first event that is a step is the token that the prompt gave
        next(event for event in self._events if isinstance(event, StepEvent))

    @property
    def is_over(self) -> bool:
        return self.result is not None

    @property
    def speed(self) -> float:
        """Tokens a second."""
        return self._num_tokens / self._seconds

    def go_on(self, seconds: float) -> None:
        started = time.perf_counter()
        end = started + seconds
        while not self.is_over and time.perf_counter() < end:
            event = next(self._events)
            if isinstance(event, StepEvent):
                self.lengths.append(self._session.draft_length or 0)
                self._num_tokens += len(event.token_ids)
            elif isinstance(event, FinishEvent):
                self.result = event.result
        self._seconds += time.perf_counter() - started


class Arms:
    """The engines of one pair: plain twice, one that adapts, one for each fixed length."""

    def __init__(
        self,
        target: ModelSettings,
        drafter: DrafterSettings,
        lengths: Sequence[int],
        num_tokens: int,
    ) -> None:
        self._num_tokens = num_tokens
        self._stack = ExitStack()
        settings = {PLAIN: EngineSettings(target), AGAIN: EngineSettings(target)}
        settings[ADAPTIVE] = EngineSettings(target, (drafter,))
        for length in lengths:
            fixed = SpeculationSettings(adaptive=False, n_max=length)
            settings[str(length)] = EngineSettings(target, (drafter,), fixed)
        self._running = {name: self._load(one) for name, one in settings.items()}

    def __enter__(self) -> Arms:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def answers(self, prompt: Prompt, number: int) -> list[Answer]:
        """What each arm gives to ``prompt`` in round ``number``."""
        forget_pools()
        settings = prompt.settings(number, self._num_tokens)
        writing = {
            name: Writing(engine, session, prompt, settings)
            for name, (engine, session) in self._running.items()
        }
        take_turns(list(writing.values()), number)
        return [self._answer(name, one, prompt, number) for name, one in writing.items()]

    def _answer(self, name: str, writing: Writing, prompt: Prompt, number: int) -> Answer:
        result = writing.result
        if result is None or len(result.token_ids) != self._num_tokens:
            raise SystemExit(f"{prompt.id}, {name}: ended early")
        stats = result.stats
        counts = (stats.drafted, stats.accepted, stats.draft_s, stats.verify_s)
        return Answer(
            number, prompt.id, name, writing.speed, *counts, writing.lengths, result.token_ids
        )

    def _load(self, settings: EngineSettings) -> tuple[Engine, Session]:
        engine = self._stack.enter_context(Engine.load(settings))
        session = engine.session()
        if not (settings.drafters and settings.speculation.adaptive):  # which would learn from it
            warm(session)
        return engine, session


def warm(session: Session) -> None:
    """A few tokens, because the first decodes of a context take longer."""
    settings = GenerationSettings(SamplingSettings(temp=0, ignore_eos=True), predict=4)
    for _ in session.generate([1, 2, 3, 4], settings):
        pass


def forget_pools() -> None:
    """Empty the tables of ngram-mod, which know the texts of all answers before."""
    for thing in gc.get_objects():
        if type(thing) is NgramPool:
            thing.clear()


def print_header() -> None:
    print(
        f"{'workload':<13} {'drafter':<13} {'plain':>7} {'again':>7} {'adaptive':>9}"
        f" {'best fixed':>12} {'adaptive/':>10} {'given up':>9} {'later':>6} {'adaptive':>9}\n"
        f"{'':<13} {'':<13} {'tok/s':>7} {'/plain':>7} {'/plain':>9} {'(k) /plain':>12}"
        f" {'best':>10} {'at step':>9} {'drafts':>6} {'accepted':>9}",
        flush=True,
    )


def print_row(pair: Pair) -> None:
    best = pair.best_fixed()
    length = "0" if best == PLAIN else best
    ratio = pair.ratio(best, PLAIN)
    step, later = pair.given_up()
    adaptive = [answer for answer in pair.answers if answer.arm == ADAPTIVE]
    counts = [sum(answer.accepted for answer in adaptive), sum(a.drafted for a in adaptive)]
    print(
        f"{pair.workload:<13} {pair.drafter:<13} {median(pair.speeds(PLAIN)):7.1f}"
        f" {pair.ratio(AGAIN, PLAIN):7.3f} {pair.ratio(ADAPTIVE, PLAIN):9.3f}"
        f" {f'({length}) {ratio:.3f}':>12}"
        f" {pair.ratio(ADAPTIVE, best):10.3f} {'-' if step is None else step:>9} {later:6}"
        f" {f'{counts[0]}/{counts[1]}':>9}",
        flush=True,
    )


def summary(pair: Pair) -> dict[str, object]:
    best = pair.best_fixed()
    step, later = pair.given_up()
    arms = dict.fromkeys(answer.arm for answer in pair.answers)
    return {
        "workload": pair.workload,
        "drafter": pair.drafter,
        "plain_tokens_per_s": median(pair.speeds(PLAIN)),
        "adaptive_to_plain": pair.ratio(ADAPTIVE, PLAIN),
        "best_fixed": 0 if best == PLAIN else int(best),
        "best_fixed_to_plain": pair.ratio(best, PLAIN),
        "adaptive_to_best_fixed": pair.ratio(ADAPTIVE, best),
        "given_up_at_step": step,
        "drafts_after_that": later,
        "to_plain": {arm: pair.ratio(arm, PLAIN) for arm in arms},
        "answers": [asdict(answer) for answer in pair.answers],
    }


if __name__ == "__main__":
    main()
