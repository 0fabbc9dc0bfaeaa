"""``bench speed``: the prompts of a set, asked of the engine or of a server."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median

from outrider.cli.bench.prompt_set import PromptSet, Sample
from outrider.cli.bench.replay import Replay
from outrider.cli.bench.reply import Conversation, Message, Reply, Side, TurnError
from outrider.cli.bench.show import duration

OVERALL = "overall"
WARM_UP = "Hello!"  # asked once before, and left out

Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class SpeedPlan:
    """What is asked: each sample of ``prompts`` once a round."""

    prompts: PromptSet
    rounds: int = 1
    concurrency: int = 1
    replay: Replay | None = None

    @property
    def jobs(self) -> list[tuple[int, Sample]]:
        rounds = range(1, self.rounds + 1)
        return [(number, sample) for number in rounds for sample in self.prompts.samples]


def run_speed(side: Side, plan: SpeedPlan, tell: Callable[[str], None]) -> list[Conversation]:
    """Ask everything, in order; a conversation that fails does not stop the others.

    Raises:
        TurnError: not even the warm-up is answered.
    """
    tell("warm-up")
    side.ask([{"role": "user", "content": WARM_UP}], None)
    jobs, done = plan.jobs, dict[int, Conversation]()
    started = time.perf_counter()
    tell(f"round 1 of {plan.rounds}, prompt 1 of {len(plan.prompts.samples)}")
    for index, conversation in _answers(side, plan):
        done[index] = conversation
        left = (time.perf_counter() - started) / len(done) * (len(jobs) - len(done))
        number, name = conversation.round, len(done) % len(plan.prompts.samples) + 1
        tell(
            f"round {number} of {plan.rounds},"
            f" prompt {name} of {len(plan.prompts.samples)}, {duration(left)} left"
        )
    return [done[index] for index in range(len(jobs))]


def _converse(side: Side, number: int, sample: Sample, replay: Replay | None) -> Conversation:
    """The turns of a sample one after another, each with the answers before it."""
    messages: list[Message] = []
    replies: list[Reply] = []
    error = None
    for turn, text in enumerate(sample.turns):
        messages.append({"role": "user", "content": text})
        prompt_ids = replay.prompt_ids(sample.id, turn) if replay else None
        try:
            replies.append(side.ask(messages, prompt_ids))
        except TurnError as failure:
            error = f"turn {turn + 1}: {failure}"
            break
        answer = replay.history(sample.id, turn) if replay else replies[-1].text
        messages.append({"role": "assistant", "content": answer})
    return Conversation(number, sample.id, sample.category, sample.sha256, replies, error)


def _answers(side: Side, plan: SpeedPlan) -> Iterator[tuple[int, Conversation]]:
    """The conversations, each with the index of its job, as they get ready."""
    jobs = list(enumerate(plan.jobs))
    if plan.concurrency == 1:
        yield from ((index, _converse(side, *job, plan.replay)) for index, job in jobs)
        return
    waiting, lock = iter(jobs), threading.Lock()
    ready = queue.SimpleQueue[tuple[int, Conversation] | BaseException]()

    def work() -> None:
        while True:
            with lock:
                index, job = next(waiting, (-1, None))
            if job is None:
                return
            try:
                ready.put((index, _converse(side, *job, plan.replay)))
            except BaseException as error:
                ready.put(error)

    for _ in range(min(plan.concurrency, len(jobs))):
        # daemons: Ctrl-C does not wait for answers
        threading.Thread(target=work, daemon=True).start()
    for _ in jobs:
        made = ready.get()
        if isinstance(made, BaseException):
            raise made
        yield made


def rows(conversations: Sequence[Conversation]) -> list[Row]:
    """One row a category, in order, and one for all."""
    categories = dict.fromkeys(one.category for one in conversations)
    made = [
        row(name, [one for one in conversations if one.category == name]) for name in categories
    ]
    return [*made, row(OVERALL, conversations)]


def row(category: str, conversations: Sequence[Conversation]) -> Row:
    """The summary of some conversations; what does not exist is None.

    Names and definitions up to ``accept_rate`` are those of llama.cpp's speed_bench.py. A
    conversation asked in several rounds counts with the median of its speeds.
    """
    good = [one for one in conversations if one.error is None]
    replies = [reply for one in good for reply in one.replies]
    drafted = sum(reply.drafted for reply in replies)
    accepted = sum(reply.accepted for reply in replies)
    tokens = sum(reply.timed_tokens for reply in replies)
    seconds = sum(reply.timed_s for reply in replies)
    first_tokens = [r.first_token_s for r in replies if r.first_token_s is not None]
    counts = [reply.drafts for reply in replies]
    drafts = sum(count for count in counts if count) if None not in counts else None
    return {
        "category": category,
        "requests": len({one.id for one in good}),
        "turns": len(replies),
        "failed": len(conversations) - len(good),
        "avg_prompt_t_s": _mean(one.prompt_tokens_per_s for one in good),
        "avg_pred_t_s": _mean(_median_speeds(good)),
        "avg_latency": _mean(one.latency_s for one in good),
        "draft_n": drafted,
        "accepted": accepted,
        "accept_rate": accepted / drafted if drafted else None,
        "total_pred_t_s": tokens / seconds if tokens > 0 < seconds else None,
        "first_token_s": _mean(first_tokens),
        "drafts": drafts,
        "mean_accepted_length": 1 + accepted / drafts if drafts else None,
        "completion_tokens": sum(reply.completion_tokens for reply in replies),
    }


def _median_speeds(conversations: Iterable[Conversation]) -> Iterator[float]:
    """The tokens/s of each sample, the median over its rounds."""
    speeds: dict[str, list[float]] = {}
    for one in conversations:
        if one.tokens_per_s is not None:
            speeds.setdefault(one.id, []).append(one.tokens_per_s)
    return map(median, speeds.values())


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return mean(known) if known else None


def failures(conversations: Iterable[Conversation]) -> list[str]:
    """One line for each conversation that failed."""
    return [f"{one.id}, {one.error}" for one in conversations if one.error is not None]


def speed_sources(conversations: Iterable[Conversation]) -> list[str]:
    """Whose clock the speeds are of; several if a server did not always tell."""
    return sorted({reply.speed_from for one in conversations for reply in one.replies})


def speed_settings(plan: SpeedPlan, asked: Mapping[str, object]) -> dict[str, object]:
    """What a saved result says about how it was asked; ``asked`` are osl, temp, seed, ..."""
    prompts = plan.prompts
    return {
        **asked,
        "rounds": plan.rounds,
        "concurrency": plan.concurrency,
        "prompts": {
            "file": prompts.name,
            "sha256": prompts.sha256,
            "samples": len(prompts.samples),
            "skipped": prompts.num_skipped,
        },
        "replay": plan.replay.as_json() if plan.replay else None,
        "warm_up": "one short answer, left out",
    }
