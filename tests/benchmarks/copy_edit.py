"""N-gram drafting on copied and edited code, beside a native llama-server.

    python tests/benchmarks/copy_edit.py TARGET.gguf LLAMA_SERVER [--rounds 5]

Two raw prompts, 160 greedy tokens each, end tokens ignored. ``copy``: a file of 17 lines twice,
and its first line. ``edit``: the same, but the third time one name is another, and the first
five lines are there. The server runs plain and with four n-gram settings, ours plain, with the
drafters of the profile that is the default, and with each chain of ``--drafters``, no length
given. In every round each arm answers each prompt
once, in rotated order, from the same token ids; both sides leave the first token out.

The server's ngram-mod keeps its table from request to request, so a prompt that comes again
has its whole answer there; it has no way to empty it. So each answer is given by a new process,
and by a new engine on our side, after eight tokens to another prompt. With ``--keep`` all of
them stay up instead: the server's tables and what our engines have learned are kept, and the
tables of our ngram-mod too.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np

from outrider.cli.engine_setup import engine_settings
from outrider.profiles.load import load_profile
from outrider.speculative.engine import Engine
from outrider.speculative.events import FinishEvent
from outrider.speculative.session import Session
from outrider.speculative.settings import (
    DrafterSettings,
    EngineSettings,
    GenerationSettings,
    ModelSettings,
    SamplingSettings,
)
from outrider.speculative.token_sequence import common_prefix_length

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.adaptive import Clock
from benchmarks.plain_speed import TEXT, post, serving

TOKENS = 160
CONTEXT = 2048
FILE = """\
import csv
from datetime import date

def load_trips(path):
    with open(path) as file:
        return list(csv.DictReader(file, delimiter=";"))

def longest_trip(trips):
    return max(trips, key=lambda trip: float(trip["km"]))

trips = load_trips("trips-2023.csv")
print("number of trips:", len(trips))
print("kilometres:", sum(float(trip["km"]) for trip in trips))
print("longest:", longest_trip(trips)["city"])
winter = [trip for trip in trips if date.fromisoformat(trip["day"]).month < 3]
print("in winter:", len(winter), "of", len(trips))
assert len(winter) <= len(trips), "a trip was counted twice"
"""
OLD_NAME, NEW_NAME = "load_trips", "fetch_trips"
SERVER, OURS, PLAIN = "llama-server", "outrider", "plain"
MOD = ("--spec-type", "ngram-mod")
SHORT = (*MOD, "--spec-ngram-mod-n-match", "4", "--spec-ngram-mod-n-min", "1")
SIMPLE = ("--spec-type", "ngram-simple", "--spec-ngram-simple-size-n")
SERVER_SETTINGS: dict[str, tuple[str, ...]] = {
    PLAIN: (),
    "ngram-mod": MOD,
    "ngram-mod 4/1/15": (*SHORT, "--spec-ngram-mod-n-max", "15"),
    "ngram-mod 4/1/31": (*SHORT, "--spec-ngram-mod-n-max", "31"),
    "ngram-simple 4/15": (*SIMPLE, "4", "--spec-ngram-simple-size-m", "15"),
}
PROFILE = "smollm2"
DRAFTERS = "ngram-mod;ngram-simple"


@dataclass(frozen=True, slots=True)
class Task:
    """A prompt, and the text that a perfect copyist would go on with."""

    name: str
    prompt: str
    expected: str


@dataclass(frozen=True, slots=True)
class Answer:
    """``speed`` in tokens/s; a step is one decode after the prompt's."""

    token_ids: list[int]
    speed: float
    drafted: int
    accepted: int
    steps: int


Ask = Callable[[Sequence[int], int], Answer]
"""(prompt ids, number of tokens) to the answer."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One setting of one side; ``open`` starts what answers."""

    side: str
    setting: str
    open: Callable[[], AbstractContextManager[Ask]]


def main() -> None:
    arguments = parse()
    target = ModelSettings(arguments.model, ctx_size=CONTEXT, threads=arguments.threads)
    arms = [*server_arms(arguments), *our_arms(target, arguments.drafters.split(";"))]
    with Engine.load(EngineSettings(target)) as engine:
        warm_up = engine.encode(TEXT)
        prompts = {task.name: engine.encode(task.prompt) for task in tasks()}
        texts = {task.name: engine.encode(task.prompt + task.expected) for task in tasks()}
    answers: dict[str, dict[Arm, list[Answer]]] = {
        name: {arm: [] for arm in arms} for name in prompts
    }
    clock = Clock(arguments.rounds * len(prompts) * len(arms))
    with asking(arms, warm_up, keep=arguments.keep) as ask:
        for number in range(arguments.rounds):
            for place, (name, prompt) in enumerate(prompts.items()):
                first = (number * len(prompts) + place) % len(arms)
                for arm in (*arms[first:], *arms[:first]):
                    answers[name][arm].append(ask(arm, prompt))
                    clock.tick(f"{name}: {arm.side} {arm.setting}")
    for name, prompt in prompts.items():
        print_table(name, answers[name], texts[name][len(prompt) :])
    if arguments.output:
        save(arguments.output, answers)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("server")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--drafters", default=DRAFTERS, help="chains, with ';' between them")
    parser.add_argument("--keep", action="store_true", help="keep processes and engines up")
    parser.add_argument("-o", "--output", type=Path)
    return parser.parse_args()


def tasks() -> Iterator[Task]:
    lines = FILE.splitlines(keepends=True)
    before = f"{FILE}\n{FILE}\n"
    # no line end: in the middle of a text one token is the line end and the indent
    yield begun("copy", before, FILE, len(lines[0]) - 1)
    edited = FILE.replace(OLD_NAME, NEW_NAME)
    yield begun("edit", before, edited, edited.index("\n        return"))


def begun(name: str, before: str, text: str, length: int) -> Task:
    return Task(name, before + text[:length], text[length:] + "\n" + text)


@contextmanager
def asking(
    arms: Sequence[Arm], warm_up: list[int], *, keep: bool
) -> Iterator[Callable[[Arm, list[int]], Answer]]:
    """Gives what asks an arm: one that stays up, or a new one for each answer."""
    with ExitStack() as stack:
        kept = {arm: stack.enter_context(arm.open()) for arm in arms if keep}
        for ask in kept.values():
            ask(warm_up, 8)

        def ask_new(arm: Arm, prompt: list[int]) -> Answer:
            with arm.open() as ask:
                ask(warm_up, 8)
                return ask(prompt, TOKENS)

        yield (lambda arm, prompt: kept[arm](prompt, TOKENS)) if keep else ask_new


def server_arms(arguments: argparse.Namespace) -> list[Arm]:
    start = partial(asked_server, arguments.server, arguments.model, arguments.threads)
    return [Arm(SERVER, name, partial(start, flags)) for name, flags in SERVER_SETTINGS.items()]


@contextmanager
def asked_server(server: str, model: Path, threads: int, flags: Sequence[str]) -> Iterator[Ask]:
    """A server process of its own."""
    with serving(server, model, threads, flags) as url:
        yield partial(ask_server, url)


def ask_server(url: str, prompt: Sequence[int], num_tokens: int) -> Answer:
    body = {
        "prompt": list(prompt),
        "n_predict": num_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "cache_prompt": False,
        "return_tokens": True,
    }
    answer = post(f"{url}/completion", body)
    timings = answer["timings"]
    assert timings["predicted_n"] == num_tokens
    drafted, accepted = timings.get("draft_n", 0), timings.get("draft_n_accepted", 0)
    speed = timings["predicted_per_second"]
    # it does not count steps: each gives its accepted tokens and one more
    return Answer(answer["tokens"], speed, drafted, accepted, num_tokens - 1 - accepted)


def our_arms(target: ModelSettings, chains: Sequence[str]) -> list[Arm]:
    plain = Arm(OURS, PLAIN, partial(loaded, EngineSettings(target)))
    drafters = {f"profile {PROFILE}": engine_settings(load_profile(PROFILE)).drafters}
    drafters |= {chain: tuple(map(DrafterSettings, chain.split(","))) for chain in chains}
    return [
        plain,
        *(
            Arm(OURS, name, partial(loaded, EngineSettings(target, members)))
            for name, members in drafters.items()
        ),
    ]


@contextmanager
def loaded(settings: EngineSettings) -> Iterator[Ask]:
    """An engine of its own."""
    with Engine.load(settings) as engine:
        yield partial(ask_session, engine.session())


def ask_session(session: Session, prompt: Sequence[int], num_tokens: int) -> Answer:
    session.reset()
    sampling = SamplingSettings(temp=0, ignore_eos=True)
    *_, last = session.generate(prompt, GenerationSettings(sampling, predict=num_tokens))
    assert isinstance(last, FinishEvent)
    result, stats = last.result, last.result.stats
    speed = result.timings.tokens_per_s
    assert speed is not None
    assert len(result.token_ids) == num_tokens
    return Answer(result.token_ids, speed, stats.drafted, stats.accepted, stats.steps)


def print_table(
    name: str, answers: Mapping[Arm, Sequence[Answer]], expected: Sequence[int]
) -> None:
    """One line an arm: medians over the rounds, ratios within a round."""
    first = next(iter(answers.values()))[0].token_ids
    same = common_prefix(first, expected)
    changed = sum(one.token_ids != first for row in answers.values() for one in row)
    print(f"\n{name}: {same} of {TOKENS} tokens as expected, {changed} answers differ")
    print(f"  {'':<36} {'tok/s':>7} {'/plain':>7} {'/best':>7}  drafted accepted steps")
    best = max(
        (arm for arm in answers if arm.side == SERVER),
        key=lambda arm: ratio(answers[arm], answers[plain_of(answers, SERVER)]),
    )
    for arm, row in answers.items():
        last = row[-1]
        to_plain = ratio(row, answers[plain_of(answers, arm.side)])
        print(
            f"  {arm.side + ' ' + arm.setting:<36} {median(one.speed for one in row):7.1f}"
            f" {to_plain:7.2f} {ratio(row, answers[best]):7.2f}"
            f"  {last.drafted:7} {last.accepted:8} {last.steps:5}"
        )
    print(f"  /best: to {SERVER} {best.setting}; counts are those of the last round")


def plain_of(answers: Mapping[Arm, Sequence[Answer]], side: str) -> Arm:
    return next(arm for arm in answers if (arm.side, arm.setting) == (side, PLAIN))


def ratio(row: Sequence[Answer], base: Sequence[Answer]) -> float:
    """Median of the ratios within a round."""
    return median(one.speed / other.speed for one, other in zip(row, base, strict=True))


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    return common_prefix_length(np.array(one, np.int32), np.array(other, np.int32))


def save(path: Path, answers: Mapping[str, Mapping[Arm, Sequence[Answer]]]) -> None:
    rows = [
        {"task": name, "side": arm.side, "setting": arm.setting, "round": number, **asdict(one)}
        for name, of_arm in answers.items()
        for arm, row in of_arm.items()
        for number, one in enumerate(row)
    ]
    path.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
