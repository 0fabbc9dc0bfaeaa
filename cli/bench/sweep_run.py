"""SweepRun: the answers of all candidates, on one engine for each number of threads."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from outrider.cli.bench.arm import Arm, ArmSpec, models_of
from outrider.cli.bench.candidates import Candidate
from outrider.cli.bench.prompt_set import Sample
from outrider.cli.bench.show import Tell, duration
from outrider.cli.bench.sweep import num_pairs_needed
from outrider.cli.chat.transcript import system_messages
from outrider.cli.engine_setup import engine_settings, sampling_settings
from outrider.cli.errors import UsageError
from outrider.cli.stats_view import plural
from outrider.speculative.errors import EngineError
from outrider.speculative.events import GenerationResult
from outrider.speculative.settings import EngineSettings, GenerationSettings

PREDICT = 48
_WARM_UP_PREDICT = 16
_BLOCK = 4  # prompts a candidate answers before the next one's turn


@dataclass(frozen=True, slots=True)
class Answer:
    """One timed answer: ``prompt`` counts on from round to round, ``sample`` is its text's id."""

    round: int
    candidate: int
    prompt: int
    sample: str
    result: GenerationResult

    @property
    def tokens_per_s(self) -> float | None:
        return self.result.timings.tokens_per_s


@dataclass
class SweepRun:
    """Asks candidates in turn; a context manager, which closes the engines.

    In every block of a few prompts each candidate has its turn, in the next block in the
    opposite order. A turn begins with a short answer that is not counted: changing the drafter
    may have made a new context. Seeds are the same for all.
    """

    candidates: Sequence[Candidate]
    samples: Sequence[Sample]
    num_rounds: int
    text: str
    tell: Tell = lambda text: None
    answers: list[Answer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._arms: dict[int, Arm] = {}
        self._stack = ExitStack()
        self._settings: list[EngineSettings] = []
        self._num_blocks = self._num_asked = 0
        self._started = 0.0

    def __enter__(self) -> SweepRun:
        self._settings = [engine_settings(candidate.profile) for candidate in self.candidates]
        return self

    def __exit__(self, *exception: Any) -> None:
        self._stack.close()

    def ask(
        self, number: int, alive: Sequence[int], prompts: Sequence[int]
    ) -> Iterator[tuple[int, int, float | None]]:
        """One round; see :data:`outrider.cli.bench.sweep.Ask`."""
        self._num_asked, self._started = 0, time.monotonic()
        for start in range(0, len(prompts), _BLOCK):
            order = alive if self._num_blocks % 2 == 0 else alive[::-1]
            self._num_blocks += 1
            for candidate in order:
                arm = self.arm(candidate)
                self._answer(arm, candidate, prompts[start], _WARM_UP_PREDICT)
                for prompt in prompts[start : start + _BLOCK]:
                    self._tell(number, candidate, len(alive) * len(prompts))
                    result = self._answer(arm, candidate, prompt)
                    sample = self._sample(prompt).id
                    answer = Answer(number, candidate, prompt, sample, result)
                    self.answers.append(answer)
                    yield candidate, prompt, answer.tokens_per_s

    def arm(self, candidate: int) -> Arm:
        """The engine of its threads, set to draft as the candidate does."""
        profile, settings = self.candidates[candidate].profile, self._settings[candidate]
        arm = self._arms.get(profile.target.threads)
        if arm is None:
            arm = self._load(profile.target.threads)
        arm.engine.configure(settings.speculation, settings.drafters)
        return arm

    def models(self, candidate: int) -> dict[str, dict[str, object]]:
        """What identifies the files of a candidate."""
        return models_of(self._settings[candidate])

    def _load(self, threads: int) -> Arm:
        self.tell("loading")
        of_threads = [c.profile for c in self.candidates if c.profile.target.threads == threads]
        # NextN heads of the target are only there if it was loaded with them
        own_heads = [p for p in of_threads if any(d.kind == "draft-mtp" for d in p.drafters)]
        profile = (own_heads or of_threads)[-1]
        arm = self._stack.enter_context(Arm(str(threads), ArmSpec(self.text, profile, {})))
        self._arms[threads] = arm
        return arm

    def _answer(
        self, arm: Arm, candidate: int, prompt: int, predict: int | None = None
    ) -> GenerationResult:
        ids = self._encode(arm, prompt)
        result = arm.answer(ids, self._generation(arm, candidate, prompt, ids, predict))
        if result.error is not None:
            raise EngineError(f"{self.candidates[candidate].label}: {result.error[1]}")
        return result

    def _encode(self, arm: Arm, prompt: int) -> list[int]:
        question = {"role": "user", "content": self._sample(prompt).turns[0]}
        before = system_messages(self.candidates[0].profile.chat.system)
        return arm.encode([*before, question])

    def _generation(
        self, arm: Arm, candidate: int, prompt: int, ids: list[int], predict: int | None
    ) -> GenerationSettings:
        profile = self.candidates[candidate].profile
        most = profile.sampling.predict if profile.sampling.predict > 0 else PREDICT
        first = profile.sampling.seed or 0
        rule = arm.engine.resolve_rule(sampling_settings(arm.spec.profile.sampling))
        # a given seed would fix the length of drafts that are verified by rejection
        is_free = profile.speculation.adaptive and rule == "rejection"
        seed = None if is_free else first + prompt
        return arm.settings(ids, predict=min(most, predict or most), seed=seed)

    def _sample(self, prompt: int) -> Sample:
        return self.samples[prompt % len(self.samples)]

    def _tell(self, number: int, candidate: int, num_answers: int) -> None:
        self._num_asked += 1
        label, done = self.candidates[candidate].label, self._num_asked - 1
        left = ""
        if done:
            spent = time.monotonic() - self._started
            left = f", {duration(spent / done * (num_answers - done))} left in it"
        self.tell(
            f"round {number} of {self.num_rounds}, {label},"
            f" answer {done + 1} of {num_answers}{left}"
        )


def mixed(samples: Sequence[Sample]) -> tuple[Sample, ...]:
    """The samples with the categories in turn: a few prompts are already of all kinds."""
    seen: dict[str, int] = {}
    turns = []
    for sample in samples:
        seen[sample.category] = seen.get(sample.category, 0) + 1
        turns.append(seen[sample.category])
    order = sorted(range(len(samples)), key=lambda i: turns[i])
    return tuple(samples[i] for i in order)


def check_prompts(samples: Sequence[Sample], num_candidates: int) -> None:
    """Refuse a set with too few prompts to tell anything."""
    needed = num_pairs_needed(num_candidates)
    if len(samples) < needed:
        raise UsageError(
            f"--prompts: {plural(len(samples), 'prompt')};"
            f" {num_candidates} candidates need {needed} or more"
        )
