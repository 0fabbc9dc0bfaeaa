"""Compare: two arms on the same prompts in one run, and arm A against itself for the noise."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from importlib.resources import as_file, files
from itertools import permutations
from pathlib import Path
from typing import Any

from outrider.cli.bench.arm import Arm, ArmSpec
from outrider.cli.bench.footprint import peak_memory
from outrider.cli.bench.identity import Asked, Identity, check_identity
from outrider.cli.bench.planted_delay import DelayedRunner
from outrider.cli.bench.prompt_set import PromptSet, Sample, read_prompts
from outrider.cli.bench.ratio import Noise, Ratio, ratio_of
from outrider.cli.bench.result import BenchResult
from outrider.cli.bench.show import Tell, duration
from outrider.cli.chat.transcript import system_messages
from outrider.cli.engine_setup import engine_settings
from outrider.cli.errors import UsageError
from outrider.cli.prompt_source import read_text
from outrider.speculative.errors import EngineError
from outrider.speculative.events import GenerationResult
from outrider.speculative.settings import GenerationSettings
from outrider.speculative.statistics import SpeculationStats

LABELS = ("A", "A again", "B")
ORDERS = tuple(permutations(LABELS))


@dataclass(frozen=True, slots=True)
class Request:
    """What is compared, on what, and how often; ``delay`` makes B's decodes slower by a share."""

    a: ArmSpec
    b: ArmSpec
    prompts: PromptSet
    rounds: int
    predict: int
    delay: float = 0.0

    @property
    def specs(self) -> dict[str, ArmSpec]:
        return {"A": self.a, "A again": self.a, "B": self.b}


@dataclass(frozen=True, slots=True)
class Timed:
    """One answer: ``round`` 0 is the warm-up; ``order`` is its place among the three."""

    round: int
    prompt: int
    label: str
    order: int
    result: GenerationResult

    @property
    def first_token_s(self) -> float:
        return self.result.timings.time_to_first_token_s


@dataclass(frozen=True, slots=True)
class Comparison:
    """All that was measured. ``why_no_texts`` says why texts are not compared, if they are not."""

    request: Request
    answers: Sequence[Timed]
    memory: dict[str, int | None]
    models: dict[str, dict[str, dict[str, object]]]
    identities: Sequence[Identity]
    why_no_texts: str | None
    is_synthetic: bool = False

    @property
    def measured(self) -> list[Timed]:
        """The answers without the warm-up."""
        return [answer for answer in self.answers if answer.round > 0]

    def pairs(
        self, label: str, value: Callable[[Timed], float | None]
    ) -> tuple[list[float], list[float]]:
        """The values of A and of ``label`` for the same prompt in the same round."""
        found: dict[tuple[int, int], dict[str, float]] = {}
        for answer in self.measured:
            if (number := value(answer)) is not None:
                found.setdefault((answer.round, answer.prompt), {})[answer.label] = number
        both = [each for each in found.values() if "A" in each and label in each]
        return [each["A"] for each in both], [each[label] for each in both]

    def values(self, label: str, value: Callable[[Timed], float | None]) -> list[float]:
        made = (value(answer) for answer in self.measured if answer.label == label)
        return [number for number in made if number is not None]

    def stats(self, label: str) -> SpeculationStats:
        total = SpeculationStats()
        for answer in self.measured:
            if answer.label == label:
                total.merge(answer.result.stats)
        return total

    @property
    def speed(self) -> Ratio:
        return ratio_of(*self.pairs("B", tokens_per_s))

    @property
    def itself(self) -> Ratio:
        """A again over A."""
        return ratio_of(*self.pairs("A again", tokens_per_s))

    @property
    def first_token(self) -> Ratio:
        return ratio_of(*self.pairs("B", first_token_s))


def tokens_per_s(answer: Timed) -> float | None:
    return answer.result.timings.tokens_per_s


def first_token_s(answer: Timed) -> float:
    return answer.first_token_s


def order_of(number: int, prompt: int) -> tuple[str, ...]:
    """Who answers when: each prompt meets all orders, one after another from round to round."""
    return ORDERS[(number + prompt) % len(ORDERS)]


def read_compare_prompts(path: Path | None) -> PromptSet:
    """Eight prompts of our own, or a file: JSONL as for ``bench speed``, or a prompt a line."""
    if path is None:
        with as_file(files("outrider.cli.bench") / "compare_prompts.jsonl") as own:
            return replace(read_prompts(own), name="the built-in set")
    lines = [line.strip() for line in read_text(path, "--prompts").splitlines()]
    lines = [line for line in lines if line]
    if path.suffix == ".jsonl" or (lines and lines[0].startswith("{")):
        return read_prompts(path)
    if not lines:
        raise UsageError(f"--prompts {path}: no prompt in it; give one a line")
    samples = (Sample(str(number), "text", (line,)) for number, line in enumerate(lines, 1))
    return PromptSet(str(path), tuple(samples))


def run_compare(request: Request, tell: Tell) -> Comparison:
    """Measure it all; ``tell`` is told how far it is."""
    targets = {label: engine_settings(spec.profile).target for label, spec in request.specs.items()}
    memory = {}
    for label in ("A", "B"):
        tell(f"memory of {label}")
        memory[label] = peak_memory(request.specs[label].text)
    with ExitStack() as stack:
        arms = {}
        for label, spec in request.specs.items():
            tell(f"loading {label}")
            arms[label] = stack.enter_context(Arm(label, spec))
        if request.delay:
            arms["B"].engine.wrap_runner(lambda runner: DelayedRunner(runner, request.delay))
        questions = {label: _questions(arm, request) for label, arm in arms.items()}
        answers = list(_ask(request, arms, questions, tell))
        models = {label: arms[label].models() for label in ("A", "B")}
        is_synthetic = any(arm.engine.speculation.is_synthetic for arm in arms.values())
        why_no_texts = _why_no_texts(arms["A"], arms["B"], questions, models)
        is_drafting = bool(arms["A"].engine.drafter_names)
    identities: list[Identity] = []
    if why_no_texts is None:
        tell("comparing texts")
        asked = list(_asked(questions["A"], answers))
        identities = check_identity(asked, targets["A"], with_plain=is_drafting)
    made = Comparison(request, answers, memory, models, identities, why_no_texts, is_synthetic)
    if not made.pairs("B", tokens_per_s)[0] or not made.pairs("A again", tokens_per_s)[0]:
        raise UsageError("the answers are too short to be timed; give a larger -n")
    return made


_Question = tuple[list[int], GenerationSettings]


def _questions(arm: Arm, request: Request) -> list[_Question]:
    """Each prompt with the settings that give all answers the same length."""
    changes: dict[str, Any] = {"predict": request.predict, "ignore_eos": True, "stop": ()}
    if "sampling.temp" not in arm.spec.overrides:
        changes["temp"] = 0.0
    before = system_messages(arm.spec.profile.chat.system)
    questions = []
    for sample in request.prompts.samples:
        ids = arm.encode([*before, {"role": "user", "content": sample.turns[0]}])
        questions.append((ids, arm.settings(ids, **changes)))
    return questions


def _ask(
    request: Request,
    arms: dict[str, Arm],
    questions: dict[str, list[_Question]],
    tell: Tell,
) -> Iterator[Timed]:
    num_prompts = len(request.prompts.samples)
    num_answers = len(LABELS) * num_prompts * (1 + request.rounds)
    started, done = time.monotonic(), 0
    for number in range(1 + request.rounds):
        for prompt in range(num_prompts):
            for order, label in enumerate(order_of(number, prompt)):
                spent = time.monotonic() - started
                left = spent / done * (num_answers - done) if done else None
                words = "" if left is None else f", {duration(left)} left"
                where = f"round {number} of {request.rounds}" if number else "warm-up"
                tell(f"{where}, {label}, prompt {prompt + 1} of {num_prompts}{words}")
                result = arms[label].answer(*questions[label][prompt])
                if result.error is not None:
                    raise EngineError(f"{label}: {result.error[1]}")
                yield Timed(number, prompt, label, order, result)
                done += 1


def _asked(questions: Sequence[_Question], answers: Sequence[Timed]) -> Iterator[Asked]:
    """Every prompt with all different texts of both sides, the warm-up's too."""
    for prompt, (ids, settings) in enumerate(questions):
        texts: dict[str, list[list[int]]] = {"A": [], "B": []}
        for answer in answers:
            side = texts[answer.label[0]]
            if answer.prompt == prompt and answer.result.token_ids not in side:
                side.append(answer.result.token_ids)
        yield Asked(ids, settings, texts)


def _why_no_texts(
    a: Arm,
    b: Arm,
    questions: dict[str, list[_Question]],
    models: dict[str, dict[str, dict[str, object]]],
) -> str | None:
    """Why equal texts cannot be expected; None if they can."""
    if models["A"]["target"]["sha256"] != models["B"]["target"]["sha256"]:
        return "the models differ"
    for arm in (a, b):
        if arm.engine.speculation.is_synthetic:
            return f"the acceptance of {arm.label} is synthetic"
        temp = questions[arm.label][0][1].sampling.temp
        if temp > 0:
            return f"{arm.label} samples at temperature {temp:g}"
    ours, theirs = questions["A"], questions["B"]
    if [ids for ids, _ in ours] != [ids for ids, _ in theirs]:
        return "the prompts differ (system message or template)"
    if [settings for _, settings in ours] != [settings for _, settings in theirs]:
        return "the sampling differs"
    if ours[0][1].grammar is not None:
        return "a grammar decides too"
    if _computing(a) != _computing(b):
        return "the models compute differently (cache types, flash attention or GPU layers)"
    return None


def _computing(arm: Arm) -> tuple[object, ...]:
    target = arm.spec.profile.target
    return target.cache_type_k, target.cache_type_v, target.flash_attn, target.gpu_layers


def result_of(comparison: Comparison) -> BenchResult:
    """What is saved."""
    request, samples = comparison.request, comparison.request.prompts.samples
    arms: dict[str, dict[str, object]] = {
        label: {
            "text": request.specs[label].text,
            "profile": asdict(request.specs[label].profile),
            "flags": dict(request.specs[label].overrides),
            "models": comparison.models[label],
        }
        for label in ("A", "B")
    }
    settings = {
        "prompts": request.prompts.name,
        "prompts_sha256": request.prompts.sha256,
        "rounds": request.rounds,
        "predict": request.predict,
        "ignore_eos": True,
        "planted_delay": request.delay,
    }
    return BenchResult(
        "compare",
        arms,
        settings,
        [_round(answer, samples) for answer in comparison.answers],
        _summary(comparison),
        synthetic=comparison.is_synthetic,
    )


def _round(answer: Timed, samples: Sequence[Sample]) -> dict[str, object]:
    result = answer.result
    return {
        "round": answer.round,
        "warm_up": answer.round == 0,
        "prompt": samples[answer.prompt].id,
        "category": samples[answer.prompt].category,
        "arm": answer.label,
        "order": answer.order,
        "seconds": result.timings.generation_s,
        "tokens": result.completion_tokens,
        "tokens_per_s": result.timings.tokens_per_s,
        "first_token_s": answer.first_token_s,
        "drafts": result.stats.drafts,
        "drafted": result.stats.drafted,
        "accepted": result.stats.accepted,
        "seed": result.seed,
    }


def _summary(comparison: Comparison) -> dict[str, object]:
    speed, itself = comparison.speed, comparison.itself
    noise = Noise.of(itself)
    return {
        "verdict": noise.verdict(speed),
        "tokens_per_s": asdict(speed),
        "a_against_a": asdict(itself),
        "noise": asdict(noise),
        "first_token_s": asdict(comparison.first_token),
        "memory_bytes": comparison.memory,
        "arms": {
            label: {
                "acceptance_rate": (stats := comparison.stats(label)).acceptance_rate,
                "mean_accepted_length": stats.mean_accepted_length,
            }
            for label in ("A", "B")
        },
        "texts": [
            {
                "sides": list(each.sides),
                "equal": each.num_equal,
                "prompts": each.num_prompts,
                "differences": [
                    {"prompt": one.prompt, "token": one.token, "kind": one.kind, "gap": one.gap}
                    for one in each.differences
                ],
            }
            for each in comparison.identities
        ],
        "why_no_texts": comparison.why_no_texts,
    }
