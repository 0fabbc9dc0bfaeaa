from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest
from tools.chat_server import chat_server, completion
from tools.program import outrider
from tools.witness import engine_settings

from outrider.cli.bench.prompt_set import PromptSet, Sample
from outrider.cli.bench.reply import Conversation, Message, Reply, TurnError
from outrider.cli.bench.speed import SpeedPlan, failures, row, rows, run_speed
from outrider.cli.program import run_program
from outrider.speculative.engine import Engine

REPLY = Reply(
    text="",
    finish_reason="stop",
    prompt_tokens=10,
    cached_tokens=0,
    completion_tokens=5,
    latency_s=1.0,
    prompt_s=0.5,
    first_token_s=0.5,
    timed_tokens=4,
    timed_s=0.5,
    speed_from="engine",
    drafts=0,
)
PROMPTS = PromptSet(
    "set", (Sample("a", "x", ("a1", "a2")), Sample("b", "y", ("b1",)), Sample("c", "x", ("c1",)))
)


class Echo:
    """Answers with what it was asked in capitals; keeps what it saw."""

    def __init__(self) -> None:
        self.seen: list[list[str]] = []

    def ask(self, messages: Sequence[Message], prompt_ids: Sequence[int] | None) -> Reply:
        self.seen.append([message["content"] for message in messages])
        if messages[-1]["content"] in ("b1", "a2"):
            raise TurnError("no")
        return replace(REPLY, text=messages[-1]["content"].upper())


def silent(text: str) -> None:
    pass


def talked(name: str, category: str, *replies: Reply, round: int = 1) -> Conversation:
    return Conversation(round, name, category, "", replies)


def test_a_failure_ends_a_conversation_and_no_other() -> None:
    side = Echo()
    asked = run_speed(side, SpeedPlan(PROMPTS, rounds=2), silent)
    one_round = [["a1"], ["a1", "A1", "a2"], ["b1"], ["c1"]]
    assert side.seen == [["Hello!"], *one_round, *one_round]
    assert [(one.round, one.id, len(one.replies)) for one in asked] == [
        (number, name, count) for number in (1, 2) for name, count in (("a", 1), ("b", 0), ("c", 1))
    ]
    assert failures(asked)[:2] == ["a, turn 2: no", "b, turn 1: no"]


def test_nothing_is_asked_if_the_warm_up_fails() -> None:
    class Silent:
        def ask(self, messages: Sequence[Message], prompt_ids: Sequence[int] | None) -> Reply:
            raise TurnError("asleep")

    with pytest.raises(TurnError, match="asleep"):
        run_speed(Silent(), SpeedPlan(PROMPTS), silent)


def test_requests_run_at_once_and_results_stay_in_order() -> None:
    together = threading.Barrier(3)

    class Meeting(Echo):
        def ask(self, messages: Sequence[Message], prompt_ids: Sequence[int] | None) -> Reply:
            if len(messages) == 1 and messages[0]["content"] != "Hello!":
                together.wait(60)  # broken, so an error, unless all three come
            return super().ask(messages, prompt_ids)

    asked = run_speed(Meeting(), SpeedPlan(PROMPTS, concurrency=3), silent)
    assert [one.id for one in asked] == ["a", "b", "c"]


def test_an_error_in_a_thread_is_not_lost() -> None:
    class Broken(Echo):
        def ask(self, messages: Sequence[Message], prompt_ids: Sequence[int] | None) -> Reply:
            if messages[-1]["content"] == "c1":
                raise RuntimeError("a bug")
            return super().ask(messages, prompt_ids)

    with pytest.raises(RuntimeError, match="a bug"):
        run_speed(Broken(), SpeedPlan(PROMPTS, concurrency=2), silent)


def test_speed_is_the_mean_of_conversations_and_beside_it_all_over_all() -> None:
    fast = replace(REPLY, timed_tokens=30, timed_s=1.0)
    slow = replace(REPLY, timed_tokens=10, timed_s=2.0)
    made = row("x", [talked("a", "x", fast, slow), talked("b", "x", slow)])
    # a: 40 tokens in 3 s; b: 10 in 2; all: 50 in 5
    assert made["avg_pred_t_s"] == pytest.approx((40 / 3 + 5) / 2)
    assert made["total_pred_t_s"] == pytest.approx(10)
    assert (made["requests"], made["turns"], made["completion_tokens"]) == (2, 3, 15)
    assert made["avg_latency"] == pytest.approx(1.5)
    assert made["avg_prompt_t_s"] == pytest.approx(20)


def test_of_several_rounds_the_median_speed_counts() -> None:
    speeds = [talked("a", "x", replace(REPLY, timed_tokens=n), round=n) for n in (1, 2, 30)]
    made = row("x", [*speeds, talked("b", "x", replace(REPLY, timed_tokens=5))])
    assert made["avg_pred_t_s"] == pytest.approx((4 + 10) / 2)
    assert made["requests"] == 2


def test_acceptance_is_of_all_drafted_tokens() -> None:
    many = replace(REPLY, drafts=10, drafted=40, accepted=10)
    few = replace(REPLY, drafts=2, drafted=2, accepted=2)
    made = row("x", [talked("a", "x", many), talked("b", "x", few)])
    assert made["accept_rate"] == pytest.approx(12 / 42)
    assert made["mean_accepted_length"] == pytest.approx(1 + 12 / 12)
    unknown = replace(few, drafts=None)
    made = row("x", [talked("a", "x", many), talked("b", "x", unknown)])
    assert made["accept_rate"] == pytest.approx(12 / 42)
    assert (made["drafts"], made["mean_accepted_length"]) == (None, None)


def test_what_does_not_exist_is_none() -> None:
    short = replace(REPLY, timed_tokens=0, timed_s=0.0, first_token_s=None, prompt_s=None)
    made = row("x", [talked("a", "x", short), Conversation(1, "b", "x", "", (), "no")])
    keys = ("avg_pred_t_s", "total_pred_t_s", "first_token_s", "avg_prompt_t_s", "accept_rate")
    assert [made[key] for key in (*keys, "mean_accepted_length")] == [None] * 6
    assert (made["requests"], made["failed"], made["draft_n"]) == (1, 1, 0)


def test_a_row_for_each_category_and_one_for_all() -> None:
    made = rows([talked("a", "x", REPLY), talked("b", "y", REPLY), talked("c", "x", REPLY)])
    assert [(one["category"], one["requests"]) for one in made] == [
        ("x", 2),
        ("y", 1),
        ("overall", 3),
    ]


def test_a_conversation_is_read_as_it_was_written() -> None:
    reply = replace(REPLY, prompt_ids=[1, 2], token_ids=[3])
    one = Conversation(2, "a", "x", "hash", [reply], "turn 2: no")
    assert Conversation.from_json(json.loads(json.dumps(one.as_json()))) == one


# the command, on tiny models

ZOO_SET = [
    ("plus", "math", ["What is 3 plus 4?"]),
    ("tables", "math", ["Write the 7 times table.", "Write the 3 times table."]),
    ("days", "lists", ["List the days of the week."]),
]


@pytest.fixture
def prompts() -> str:
    rows = [dict(zip(("question_id", "category", "turns"), one, strict=True)) for one in ZOO_SET]
    rows.insert(1, {"question_id": "none", "category": "math", "turns": []})
    Path("set.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return "set.jsonl"


Json = Callable[..., Any]


class Speed(Protocol):
    def __call__(self, *words: str, code: int = 0) -> tuple[str, str]: ...


@pytest.fixture
def speed(capfd: pytest.CaptureFixture[str]) -> Speed:
    """The command in this process: its stdout and stderr."""

    def run(*words: str, code: int = 0) -> tuple[str, str]:
        returned = run_program(["bench", "speed", *words])
        out, err = capfd.readouterr()
        assert returned == code, err
        return out, err

    return run


@pytest.fixture
def speed_json(speed: Speed) -> Json:
    def run(*words: str) -> Any:
        out, err = speed(*words, "--json")
        assert not err
        return json.loads(out)

    return run


def turns(result: Any, name: str) -> Any:
    return next(one["turns"] for one in result["rounds"] if one["id"] == name)


def test_several_conversations_at_once_are_those_one_by_one(
    prompts: str, zoo: Path, speed_json: Json
) -> None:
    flags = ("-m", str(zoo / "target-llama.gguf"), "-t", "1", "--osl", "48", "--prompts", prompts)
    alone, together = speed_json(*flags), speed_json(*flags, "--concurrency", "2")
    for name, _, _ in ZOO_SET:
        answers = [[turn["token_ids"] for turn in turns(made, name)] for made in (alone, together)]
        assert answers[0] == answers[1]
    assert turns(together, "tables")[1]["cached_tokens"] > 0


def test_the_engine_answers_the_set(prompts: str, zoo: Path) -> None:
    flags = ("-m", str(zoo / "target-llama.gguf"), "-t", "1", "--osl", "64", "--prompts", prompts)
    drafting = ("-md", str(zoo / "draft-simple.gguf"), "--no-spec-adaptive")
    run = outrider("bench", "speed", *flags, *drafting, "--json", "-o", "saved.json")
    assert (run.returncode, run.stderr) == (0, b"")
    made = json.loads(run.stdout)
    assert json.loads(Path("saved.json").read_text()) == made

    [expected] = [
        one["greedy"]["target-llama"]
        for one in map(json.loads, (zoo / "prompts.jsonl").read_text().splitlines())
        if one["id"] == "plus"
    ]
    [plus] = turns(made, "plus")
    assert plus["text"] == expected["text"]
    assert plus["token_ids"] == expected["tokens"][:-1]  # without the end token
    assert plus["prompt_tokens"] == len(plus["prompt_ids"]) == expected["n_prompt"]

    first, second = turns(made, "tables")
    # the answer is in the next prompt, and only one's own is in the cache
    history = [*first["prompt_ids"], *first["token_ids"]]
    assert second["prompt_ids"][: len(history)] == history
    assert second["cached_tokens"] >= len(first["prompt_ids"])
    assert [turns(made, name)[0]["cached_tokens"] for name, _, _ in ZOO_SET] == [0, 0, 0]

    table = {one["category"]: one for one in made["summary"]}
    assert list(table) == ["math", "lists", "overall"]
    everything = [turn for one in made["rounds"] for turn in one["turns"]]
    for name, key in (("draft_n", "drafted"), ("accepted", "accepted"), ("drafts", "drafts")):
        assert table["overall"][name] == sum(turn[key] for turn in everything) > 0
    assert made["settings"]["temp"] == made["settings"]["seed"] == 0
    assert made["settings"]["prompts"]["skipped"] == 1
    assert made["arms"]["A"]["models"]["drafter 1"]["file"] == "draft-simple.gguf"
    assert not made["synthetic"]


def test_replay_asks_by_token_ids_where_the_model_is_the_same(
    speed_json: Json, prompts: str, zoo: Path
) -> None:
    flags = ("-t", "1", "--osl", "8", "--prompts", prompts)
    target, other = (str(zoo / f"target-{name}.gguf") for name in ("llama", "mtp-glm4moe"))
    saved = speed_json(*flags, "-m", target, "-o", "saved.json")
    for conversation in saved["rounds"]:
        for turn in conversation["turns"]:
            turn["text"], turn["prompt_ids"] = "7 7 7", [*turn["prompt_ids"][:-1], 5, 6]
    Path("saved.json").write_text(json.dumps(saved))

    same = speed_json(*flags, "-m", target, "--replay", "saved.json")
    assert same["settings"]["replay"]["by"] == "token ids: the same model"
    for name, _, _ in ZOO_SET:
        for mine, theirs in zip(turns(same, name), turns(saved, name), strict=True):
            assert mine["prompt_ids"] == theirs["prompt_ids"]

    by_text = speed_json(*flags, "-m", other, "--replay", "saved.json")
    assert by_text["settings"]["replay"]["by"] == "text: it is another model"
    with Engine.load(engine_settings(Path(other))) as engine:
        expected = engine.encode(
            "<|im_start|>user\nWrite the 7 times table.<|im_end|>\n"
            "<|im_start|>assistant\n7 7 7<|im_end|>\n"
            "<|im_start|>user\nWrite the 3 times table.<|im_end|>\n<|im_start|>assistant\n"
        )
    assert turns(by_text, "tables")[1]["prompt_ids"] == expected


def test_replay_is_refused_where_a_prompt_is_another(speed: Speed, prompts: str, zoo: Path) -> None:
    flags = ("-m", str(zoo / "target-llama.gguf"), "-t", "1", "--osl", "1", "--prompts", prompts)
    speed(*flags, "--category", "math", "-o", "saved.json")
    _, err = speed(*flags, "--replay", "saved.json", code=2)
    assert "--replay saved.json: no answer to the same prompt days" in err
    Path(prompts).write_text(Path(prompts).read_text().replace("3 plus 4", "3 plus 5"))
    _, err = speed(*flags, "--category", "math", "--replay", "saved.json", code=2)
    assert "no answer to the same prompt plus" in err


def test_a_prompt_that_does_not_fit_fails_alone(speed: Speed, prompts: str, zoo: Path) -> None:
    long = {"question_id": "long", "category": "math", "turns": ["one two three " * 100]}
    with Path(prompts).open("a") as file:
        file.write("\n" + json.dumps(long))
    flags = ("-m", str(zoo / "target-llama.gguf"), "-c", "128", "-t", "1", "--osl", "4")
    out, err = speed(*flags, "--prompts", prompts, "-o", "saved.json", code=1)
    [line] = err.splitlines()
    assert line.startswith("outrider: error: long, turn 1: the prompt does not fit the context")
    [math] = [line.split() for line in out.splitlines() if line.startswith("math")]
    assert math[1] == "2"
    assert json.loads(Path("saved.json").read_text())["summary"][0]["failed"] == 1


def test_extra_inputs_reach_the_engine(speed_json: Json, prompts: str, zoo: Path) -> None:
    flags = ("-m", str(zoo / "target-llama.gguf"), "-t", "1", "--osl", "40", "--prompts", prompts)
    made = speed_json(*flags, "--extra-inputs", '{"ignore_eos": true, "temperature": 0.5}')
    assert {t["completion_tokens"] for one in made["rounds"] for t in one["turns"]} == {40}
    assert made["settings"]["temp"] == 0.5


def test_a_server_answers_the_set(speed_json: Json, prompts: str) -> None:
    timings = {"prompt_n": 8, "prompt_ms": 100, "predicted_n": 11, "predicted_ms": 500}
    timings |= {"draft_n": 6, "draft_n_accepted": 3}
    with chat_server(lambda request: completion("Yes.", timings=timings)) as served:
        words = ("--url", served.url, "--model", "tiny", "--prompts", prompts, "--osl", "9")
        made = speed_json(*words, "--extra-inputs", '{"top_k": 3}', "--concurrency", "2")
    assert len(served.requests) == 5  # the warm-up is one
    for request in served.requests:
        messages = request.pop("messages")
        assert request == {
            "model": "tiny",
            "max_tokens": 9,
            "stream": False,
            "temperature": 0,
            "seed": 0,
            "top_k": 3,
        }
        assert [m["content"] for m in messages if m["role"] == "assistant"] in ([], ["Yes."])
    overall = made["summary"][-1]
    assert (overall["avg_pred_t_s"], overall["accept_rate"]) == (20, 0.5)
    assert (overall["requests"], overall["turns"], overall["failed"]) == (3, 4, 0)


def test_a_speed_of_whole_requests_is_marked(speed: Speed, prompts: str) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 4}
    with chat_server(lambda request: completion("Yes.", usage=usage)) as served:
        out, _ = speed("--url", served.url, "--prompts", prompts)
    assert "tok/s: all tokens over the whole request" in out
    [overall] = [line.split() for line in out.splitlines() if line.startswith("overall")]
    assert overall[4:] == ["–", "–", "–"]


def test_failures_of_a_server_are_a_line_each(speed: Speed, prompts: str) -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any] | int:
        return 503 if "days" in request["messages"][-1]["content"] else completion("Yes.")

    with chat_server(answer) as served:
        _, err = speed("--url", served.url, "--prompts", prompts, code=1)
        assert err == "outrider: error: days, turn 1: HTTP 503: status 503\n"
    with chat_server(lambda _: 500) as served:
        _, err = speed("--url", served.url, "--prompts", prompts, code=2)
        assert "the warm-up is not answered: HTTP 500: status 500" in err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--category", "foo"), "--category: foo; the built-in set has coding, humanities"),
        (("--extra-inputs", "[]"), "--extra-inputs '[]': allowed: a JSON object"),
        (("--extra-inputs", '{"max_tokens": 3}'), "'max_tokens' is set by --osl"),
        (("--extra-inputs", '{"top_q": 3}'), "--extra-inputs: sampling.top_q: unknown"),
        (("--extra-inputs", '{"top_k": "x"}'), "--extra-inputs: sampling.top_k: 'x': allowed"),
        (("--url", "localhost:1", "--top-k", "3"), "--top-k: with --url the server draws"),
        (("--url", "localhost:1", "-P", "base"), "-P/--profile: with --url the server draws"),
        (("--url", "localhost:1"), "--url http://localhost:1/v1: Connection refused"),
    ],
)
def test_bad_input_is_one_line(
    speed: Speed, words: tuple[str, ...], reason: str, zoo: Path
) -> None:
    model = () if "--url" in words else ("-m", str(zoo / "target-llama.gguf"))
    out, err = speed(*words, *model, code=2)
    [line] = err.splitlines()
    assert reason in line
    assert not out
