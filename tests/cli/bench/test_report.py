from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest

from outrider.cli.bench.reply import Conversation, Reply
from outrider.cli.program import run_program

MACHINE = {"cpu": "Fast 1", "cores": 2, "memory_bytes": 2**34, "system": "Linux"}
SPEEDS = {"a": ("math", 20), "b": ("math", 40), "c": ("qa", 10)}


def result(
    text: str = "base",
    factor: float = 1.0,
    accepted: int = 0,
    server: Mapping[str, object] | None = None,
    speed_from: Any = "engine",
) -> dict[str, Any]:
    """A saved ``bench speed`` of three prompts; each answer has 10 drafted tokens if any."""
    rounds = [
        Conversation(1, name, category, name, [_reply(speed * factor, accepted, speed_from)])
        for name, (category, speed) in SPEEDS.items()
    ]
    models = {"target": {"file": "m.gguf", "bytes": 1, "sha256": "0123456789abcdef"}}
    prompts = {"file": "the built-in set", "sha256": "fedcba9876543210", "samples": 3}
    return {
        "schema": 1,
        "kind": "speed",
        "synthetic": False,
        "machine": dict(MACHINE),
        "arms": {"A": {"text": text, "models": models, "server": server}},
        "settings": {"osl": 64, "temp": 0, "system": None, "prompts": prompts},
        "rounds": [one.as_json() for one in rounds],
    }


def _reply(speed: float, accepted: int, speed_from: Any) -> Reply:
    return Reply(
        text="",
        finish_reason="stop",
        prompt_tokens=1,
        cached_tokens=0,
        completion_tokens=11,
        latency_s=1.0,
        prompt_s=0.1,
        first_token_s=0.1,
        timed_tokens=10,
        timed_s=10 / speed,
        speed_from=speed_from,
        drafted=10 if accepted else 0,
        accepted=accepted,
    )


class Report(Protocol):
    def __call__(self, *words: str, code: int = 0) -> tuple[str, str]: ...


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Report:
    def run(*words: str, code: int = 0) -> tuple[str, str]:
        returned = run_program(["bench", "report", *words])
        out, err = capsys.readouterr()
        assert returned == code, err
        return out, err

    return run


def write(**results: Mapping[str, object]) -> tuple[str, ...]:
    for name, data in results.items():
        Path(f"{name}.json").write_text(json.dumps(data))
    return tuple(f"{name}.json" for name in results)


def table(out: str) -> dict[str, list[str]]:
    """The rows by their first word."""
    return {line.split()[0]: line.split()[1:] for line in out.splitlines()}


def test_two_sides_are_joined_by_category(report: Report) -> None:
    out, err = report(*write(one=result(), two=result("other", 1.5, accepted=7)))
    rows = table(out)
    assert rows["math"] == ["30.0", "45.0", "1.50", "–", "0.70"]
    assert rows["qa"] == ["10.0", "15.0", "1.50", "–", "0.70"]
    assert rows["overall"][:3] == ["23.3", "35.0", "1.50"]
    assert out.startswith("A base   1 run of 3 prompts, 33 tokens\nB other   1 run of 3 prompts")
    assert "21 of 30 drafted accepted" in out
    assert not err


def test_runs_of_one_side_are_a_column_with_the_median(report: Report) -> None:
    runs = write(a1=result(), b1=result("other", 2), b2=result("other", 3), a2=result(factor=1.5))
    rows = table(report(*runs)[0])
    assert rows["math"][:3] == ["37.5", "75.0", "2.00"]
    assert rows["A"] == ["base", "2", "runs", "of", "3", "prompts,", "66", "tokens"]


def test_more_than_two_sides_have_two_tables(report: Report) -> None:
    files = write(a=result(), b=result("b", 2, 5), c=result("c", 0.5))
    lines = report(*files)[0].splitlines()
    assert [line.split()[1:] for line in lines if line.startswith("qa")] == [
        ["10.0", "20.0", "2.00", "5.00", "0.50"],
        ["–", "0.50", "–"],
    ]


def test_json_has_rows_and_ratios(report: Report) -> None:
    made = json.loads(report(*write(a=result(), b=result("b", 2)), "--json")[0])
    assert made["kind"] == "report"
    assert made["columns"][1]["ratio"] == {"math": 2, "qa": 2, "overall": 2}
    assert made["columns"][0]["files"] == ["a.json"]


def test_only_prompts_that_all_have_answered_count(report: Report) -> None:
    broken = result("other")
    broken["rounds"][1]["error"] = "turn 1: no"  # b: only a is left of math
    rows = table(report(*write(one=result(), two=broken))[0])
    assert rows["math"][:3] == ["20.0", "20.0", "1.00"]
    assert rows["A"][4:6] == ["2", "prompts,"]


Change = Callable[[dict[str, Any]], None]


def _set(*path: str, value: object) -> Change:
    def change(data: dict[str, Any]) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return change


TARGET = ("arms", "A", "models", "target")
REMOTE = {"is_local": False, "url": "http://far:1/v1"}
CHANGES = {
    "prompts: 3 of the built-in set (fedcba987654)": _set(
        "settings", "prompts", "sha256", value="other"
    ),
    "model: m.gguf (0123456789ab) in one.json, m.gguf (fff) in two.json": _set(
        *TARGET, "sha256", value="fff"
    ),
    "m.gguf (hash not known) in two.json": _set(*TARGET, "sha256", value=None),
    "osl: 64 in one.json, 65 in two.json": _set("settings", "osl", value=65),
    "temperature: 0 in one.json, 0.5 in two.json": _set("settings", "temp", value=0.5),
    "system: '' in one.json, 'Be kind.'": _set("settings", "system", value="Be kind."),
    "machine: Fast 1, 2 cores, 16 GiB, Linux in one.json, Fast 2": _set(
        "machine", "cpu", value="Fast 2"
    ),
    "the server at far:1 in two.json": _set("arms", "A", "server", value=REMOTE),
    "clock: tokens after the first in one.json, whole requests in two.json": _set(
        "rounds", value=result(speed_from="latency")["rounds"]
    ),
}


@pytest.mark.parametrize("words", CHANGES)
def test_what_differs_is_refused_and_with_force_it_heads_the_table(
    report: Report, words: str
) -> None:
    other = result("other")
    CHANGES[words](other)
    files = write(one=result(), two=other)
    out, err = report(*files, code=2)
    assert not out
    [line] = err.splitlines()
    assert words in line
    assert "--force" in line
    out, _ = report(*files, "--force")
    first = out.splitlines()[0]
    assert first.startswith("DIFFERENT ")
    assert words in first
    assert "overall" in table(out)


def test_a_model_that_neither_side_knows_is_not_the_same(report: Report) -> None:
    one, two = result(), result("other")
    for data in (one, two):
        _set(*TARGET, "sha256", value=None)(data)
    _, err = report(*write(one=one, two=two), code=2)
    assert "model: m.gguf (hash not known) in one.json" in err


def test_a_local_server_is_the_same_machine(report: Report) -> None:
    server = {"is_local": True, "url": "http://localhost:1/v1"}
    report(*write(one=result(), two=result("other", server=server, speed_from="timings")))


def test_synthetic_figures_are_never_beside_real_ones(report: Report) -> None:
    made_up = result("other")
    made_up["synthetic"] = True
    for words in ((), ("--force",)):
        _, err = report(*write(one=result(), two=made_up), *words, code=2)
        assert "two.json: synthetic figures are never beside real ones" in err
    other = made_up | {"arms": result("third")["arms"]}
    out, _ = report(*write(one=made_up, two=other))
    assert out.startswith("SYNTHETIC")


def test_both_sides_of_a_comparison_are_columns(
    report: Report, zoo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("set.jsonl").write_text(
        json.dumps({"question_id": "a", "category": "x", "turns": ["List the days of the week."]})
    )
    target, drafter = zoo / "target-llama.gguf", zoo / "draft-simple.gguf"
    arms = [
        f"base -m {target} -t 1 -c 512",
        f"base -m {target} -t 1 -c 512 -md {drafter} --no-spec-adaptive",
    ]
    words = ["--prompts", "set.jsonl", "--rounds", "3", "-n", "24", "-o", "both.json"]
    assert run_program(["bench", "compare", *arms, *words]) == 0
    capsys.readouterr()
    made = json.loads(report("both.json", "--json")[0])
    plain, drafting = made["columns"]
    assert plain["name"] == arms[0]
    saved = json.loads(Path("both.json").read_text())
    for column, label in ((plain, "A"), (drafting, "B")):
        overall = column["rows"][-1]
        assert overall["completion_tokens"] == 3 * 24
        rate = saved["summary"]["arms"][label]["acceptance_rate"]
        assert overall["accept_rate"] == rate
    assert plain["ratio"]["overall"] == 1

    speed = ["bench", "speed", "--prompts", "set.jsonl", "-m", str(target), "-t", "1", "--osl"]
    assert run_program([*speed, "24", "-o", "speed.json"]) == 0
    capsys.readouterr()
    _, err = report("speed.json", "both.json", code=2)
    difference = "kind: 'speed' in speed.json, 'compare' in both.json"
    assert err == f"outrider: error: {difference} (--force compares all the same)\n"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"kind": "sweep", "schema": 1}, "of kind sweep; allowed: "),
        ({"kind": "speed", "schema": 1}, "not a saved bench speed"),
        ({"kind": "speed", "schema": 1, "rounds": []}, "not a saved bench speed"),
        ({"schema": 1}, 'not a saved result: no "kind"'),
    ],
)
def test_what_is_no_saved_result_is_refused(
    report: Report, data: dict[str, object], reason: str
) -> None:
    _, err = report(*write(one=result(), two=data), code=2)
    assert f"two.json: {reason}" in err


def test_one_side_alone_is_nothing_to_compare(report: Report) -> None:
    _, err = report(*write(one=result(), two=result()), code=2)
    assert "one.json: nothing to compare with" in err
