"""Sweeps: halving on made-up speeds, the grid, and whole runs on tiny models."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tools.program import COMMAND, environment, outrider

from outrider.cli.bench import winner
from outrider.cli.bench.candidates import Axes, grid, read_axes
from outrider.cli.bench.sweep import Ask, best_of, halve, num_pairs_needed, paired_ratio
from outrider.cli.bench.winner import snippet
from outrider.cli.errors import UsageError
from outrider.profiles.errors import ProfileError
from outrider.profiles.load import load_profile
from outrider.profiles.schema import Profile
from outrider.profiles.text import new_profile


def noisy(true: Sequence[float], seed: int, noise: float = 0.1) -> Ask:
    """Speeds around the ``true`` ones: prompts differ by much, answers to one by ``noise``."""
    rng = np.random.default_rng(seed)
    of_prompt: dict[int, float] = {}

    def ask(
        number: int, alive: Sequence[int], prompts: Sequence[int]
    ) -> Iterator[tuple[int, int, float | None]]:
        for prompt in prompts:
            speed = of_prompt.setdefault(prompt, rng.lognormal(4, 0.3))
            for candidate in alive:
                yield candidate, prompt, speed * true[candidate] * rng.lognormal(0, noise)

    return ask


# --- statistics


def test_the_truly_best_survives_and_wins() -> None:
    true = (1.0, 1.02, 1.05, 1.15, 1.0, 0.95, 0.9, 0.8)
    for seed in range(25):
        standings = halve(8, 3, noisy(true, seed))
        assert standings[0].candidate == 3, seed
        assert standings[0].left_after is None
        last = next(one for one in standings if one.candidate == 7)
        assert last.is_slower
        assert last.left_after == 1


def test_equal_ones_are_not_distinguishable() -> None:
    told_apart = sum(
        any(one.is_slower for one in halve(4, 3, noisy((1.0,) * 4, seed))) for seed in range(40)
    )
    assert told_apart <= 4


def test_the_best_within_the_noise_stays() -> None:
    thrown_out = 0
    for seed in range(40):
        standings = halve(4, 3, noisy((1.0, 1.0, 1.01, 1.0), seed))
        thrown_out += next(one for one in standings if one.candidate == 2).left_after is not None
    assert thrown_out <= 1


def test_only_the_worse_half_leaves_and_the_rest_get_more_prompts() -> None:
    asked: list[tuple[int, list[int], int]] = []
    speeds = noisy((1.0, 0.7, 0.6, 0.5), 1)

    def ask(
        number: int, alive: Sequence[int], prompts: Sequence[int]
    ) -> Iterator[tuple[int, int, float | None]]:
        asked.append((number, list(alive), len(prompts)))
        yield from speeds(number, alive, prompts)

    standings = halve(4, 3, ask)
    need = num_pairs_needed(4)
    assert asked == [(1, [0, 1, 2, 3], need), (2, [0, 1], 2 * need)]
    assert [one.candidate for one in standings] == [0, 1, 2, 3]
    assert [one.left_after for one in standings] == [None, 2, 1, 1]


def test_nobody_leaves_after_the_last_round() -> None:
    assert all(one.left_after is None for one in halve(2, 1, noisy((1.0, 0.5), 1)))


def test_an_answer_too_short_to_time_is_no_pair() -> None:
    def ask(
        number: int, alive: Sequence[int], prompts: Sequence[int]
    ) -> Iterator[tuple[int, int, float | None]]:
        for prompt in prompts:
            yield 0, prompt, 10.0
            yield 1, prompt, None if prompt == 0 else 5.0

    [best, other] = halve(2, 1, ask)
    assert (best.candidate, best.ratio.num_pairs) == (0, num_pairs_needed(2))
    assert (other.ratio.value, other.ratio.num_pairs) == (0.5, num_pairs_needed(2) - 1)
    assert not other.is_slower  # one pair too few to tell


def test_pairs_that_can_tell() -> None:
    """2 * 0.5**n < 0.01 first holds at n = 8; shared by 7 comparisons at n = 11."""
    assert num_pairs_needed(2) == 8
    assert num_pairs_needed(8) == 11


def test_the_ratio_is_of_pairs() -> None:
    """Each prompt halves the speed, however much the prompts differ."""
    base = {i: 10.0 * 3**i for i in range(9)}
    ratio = paired_ratio({i: speed / 2 for i, speed in base.items()} | {99: 1.0}, base)
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((0.5, 0.5, 0.5))
    assert ratio.num_pairs == 9


def test_the_interval_holds_the_truth() -> None:
    held = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        speeds = dict(enumerate(rng.lognormal(np.log(1.2), 0.2, 16)))
        ratio = paired_ratio(speeds, dict.fromkeys(range(16), 1.0))
        held += ratio.low <= 1.2 <= ratio.high
    assert held >= 190


def test_the_best_is_the_one_nobody_beats() -> None:
    """0 has the fastest single answer, 1 wins most pairs."""
    speeds = [{0: 99.0, 1: 1.0, 2: 1.0}, {0: 2.0, 1: 2.0, 2: 2.0}, {0: 1.9, 1: 1.9, 2: 1.9}]
    assert best_of(speeds, [0, 1, 2]) == 1
    assert best_of(speeds, [0, 2]) == 2


# --- candidates


@pytest.fixture
def profile() -> Profile:
    return load_profile("smollm2")


def test_by_default_the_lengths_are_tried(profile: Profile) -> None:
    candidates = grid(profile, Axes())
    assert [one.label for one in candidates] == ["0", "1", "2", "3", "4", "6", "8", "adaptive"]
    assert [one.length for one in candidates] == [0, 1, 2, 3, 4, 6, 8, None]
    assert candidates[0].profile.drafters == ()
    eight = candidates[6].profile
    # the profile's own limit of its EAGLE-3 head, 3, is not in the way
    assert [drafter.n_max for drafter in eight.drafters] == [None, None]
    assert (eight.speculation.n_max, eight.speculation.adaptive) == (8, False)
    assert candidates[7].profile == profile


def test_a_grid_has_no_drafter_once(profile: Profile) -> None:
    axes = read_axes(lengths="0,2", p_min="0,0.5", drafters="ngram-mod;none", threads="1,2")
    labels = [one.label for one in grid(profile, axes)]
    assert len(labels) == len(set(labels)) == 2 * (1 + 2)
    assert "drafters none, length 0, threads 1" in labels
    assert "drafters ngram-mod, length 2, p_min 0.5, threads 2" in labels


def test_a_single_value_is_for_all(profile: Profile) -> None:
    candidates = grid(profile, read_axes(threads="2", verify="match"))
    assert [one.label for one in candidates][:2] == ["0", "1"]
    assert {one.profile.target.threads for one in candidates} == {2}
    assert candidates[1].profile.speculation.verify == "match"


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"lengths": "1,x"}, "--lengths: 'x': allowed: whole numbers from 0 to 64, adaptive"),
        ({"lengths": "65"}, "--lengths: '65'"),
        ({"p_min": "2"}, "--p-min: '2': allowed: a number from 0 to 1"),
        ({"drafters": "ngram-mud"}, "did you mean 'ngram-mod'"),
        ({"verify": "always"}, "--verify: 'always': allowed: auto, greedy, match, rejection"),
        ({"threads": "-5"}, "-t/--threads: '-5'"),
    ],
)
def test_a_value_that_is_not_allowed(axes: dict[str, str], message: str) -> None:
    with pytest.raises((UsageError, ProfileError)) as error:
        read_axes(**axes)
    assert message in str(getattr(error.value, "message", error.value))


def test_nothing_to_try(profile: Profile) -> None:
    with pytest.raises(UsageError, match="has no drafter"):
        grid(load_profile("smollm2-plain"), Axes())
    with pytest.raises(UsageError, match="one length only"):
        grid(profile, Axes(lengths=(3,)))
    with pytest.raises(UsageError, match="one candidate only"):
        grid(load_profile("smollm2-plain"), Axes(p_min=(0.0, 0.5)))


# --- the winner as a profile


def test_the_snippet_is_what_differs(profile: Profile) -> None:
    three = next(one for one in grid(profile, Axes()) if one.label == "3")
    made = yaml.safe_load(snippet(three.profile, profile))
    assert made["speculation"] == {"n_max": 3, "adaptive": False}
    assert set(made) == {"speculation", "drafters"}
    kinds = [drafter["kind"] for drafter in made["drafters"]]
    assert kinds == ["ngram-edit", "draft-eagle3"]
    assert snippet(profile, profile) == ""


def test_the_snippet_has_the_flags_and_whole_paths(tmp_path: Path) -> None:
    flags = {"target.model": {"source": "x.gguf"}, "sampling.temp": 0.5, "sampling.predict": 9}
    made = yaml.safe_load(snippet(load_profile("base", flags), load_profile("base")))
    assert made == {
        "target": {"model": {"source": str(Path.cwd() / "x.gguf")}},
        "sampling": {"temp": 0.5},
    }


# --- whole runs


@pytest.fixture(scope="module")
def known() -> dict[str, dict[str, Any]]:
    """Prompts of one message, with llama-server's answers, by id."""
    path = Path(__file__).parents[2] / "fixtures" / "zoo" / "prompts.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {row["id"]: row for row in rows if len(row.get("messages", ())) == 1}


@pytest.fixture
def prompts(known: dict[str, dict[str, Any]], tmp_path: Path) -> str:
    path = tmp_path / "prompts.jsonl"
    rows = [
        {"question_id": name, "category": "zoo", "turns": [row["messages"][0]["content"]]}
        for name, row in known.items()
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture
def models(zoo: Path) -> tuple[str, ...]:
    files = ("-m", str(zoo / "target-llama.gguf"), "-md", str(zoo / "draft-simple.gguf"))
    return (*files, "-c", "512", "--temp", "0", "-t", "1")


def test_all_candidates_give_llama_servers_tokens(
    models: tuple[str, ...], prompts: str, known: dict[str, Any], zoo: Path, tmp_path: Path
) -> None:
    run = outrider(
        *("bench", "sweep", *models, "--lengths", "0,1,4", "--prompts", prompts),
        *("-n", "100", "--rounds", "2", "--json", "-o", str(tmp_path / "saved.json")),
    )
    assert (run.returncode, run.stderr) == (0, b"")
    made = json.loads(run.stdout)
    assert made == json.loads((tmp_path / "saved.json").read_text())
    assert (made["kind"], made["synthetic"], list(made["arms"])) == (
        "sweep",
        False,
        ["0", "1", "4"],
    )

    need = num_pairs_needed(3)
    first = [one for one in made["rounds"] if one["round"] == 1]
    turns = [(one["arm"], one["prompt"]) for one in first]
    assert sorted(turns) == sorted((arm, i) for arm in "014" for i in range(need))
    blocks = [arm for i, (arm, _) in enumerate(turns) if i == 0 or turns[i - 1][0] != arm]
    assert "".join(blocks) == "014" + "10" + "14"  # there, back, there

    expected = json.loads((zoo / "expected.json").read_text())["draft-simple"]["n4"]["per_prompt"]
    for one in made["rounds"]:
        greedy = known[one["question_id"]]["greedy"]["target-llama"]["tokens"]
        assert one["token_ids"] == greedy[: len(one["token_ids"])]
        assert len(greedy) - len(one["token_ids"]) <= 1  # the end token is no part of it
        if one["arm"] == "4":
            accepted, drafted = expected[one["question_id"]]
            # an end token, and what was drafted after it, is not counted here
            assert accepted - 1 <= one["accepted"] <= accepted
            assert drafted - 4 <= one["drafted"] <= drafted
        elif one["arm"] == "0":
            assert one["drafts"] == one["drafted"] == 0

    summary = made["summary"]
    by_label = {one["label"]: one for one in summary["candidates"]}
    assert summary["same_text"]["identical"] == summary["same_text"]["prompts"]
    assert by_label["0"]["acceptance_rate"] is None
    for label, one in by_label.items():
        mine = [each for each in made["rounds"] if each["arm"] == label]
        assert one["prompts"] == len(mine)
        for key in ("drafts", "drafted", "accepted"):
            assert one[key] == sum(each[key] for each in mine)
    [costs] = summary["break_even"]
    assert costs["drafter"] == "draft-simple"
    assert [one["length"] for one in costs["lengths"]] == [1, 4]
    assert list(costs["verify_cost"]) == ["1", "2", "5"]
    assert [one["has"] for one in costs["lengths"]] == [
        by_label[label]["acceptance_rate"] for label in "14"
    ]


def test_the_table_and_the_written_profile(
    models: tuple[str, ...], prompts: str, tmp_path: Path, user_folders: Path
) -> None:
    run = outrider(
        *("bench", "sweep", *models, "--drafters", "draft-simple;filler", "--lengths", "2,6"),
        *("--prompts", prompts, "--rounds", "1", "--write", "mine"),
    )
    assert run.returncode == 0, run.stderr
    lines = run.stdout.decode().splitlines()
    need = num_pairs_needed(4)
    head = f"base  4 candidates, {need} prompts each, in turn there and back, no warm-up"
    assert lines[0] == head
    assert lines[1].split() == ["drafters", "length", "tok/s", "acceptance", "mean", "length"]
    rows = [line.split() for line in lines[2:6]]
    assert [row[:2] for row in rows] == [
        ["draft-simple", "2"],
        ["draft-simple", "6"],
        ["filler", "2"],
        ["filler", "6"],
    ]
    assert sum(row[-1] == "best" for row in rows) == 1
    assert all(len(line) <= 80 for line in lines[: lines.index("target:")])
    assert f"same text at temperature 0: {need} of {need}" in lines

    text = "\n".join(lines)
    printed = yaml.safe_load(text[text.index("\ntarget:") :])
    [best] = [row for row in rows if row[-1] == "best"]
    assert printed["speculation"] == {"n_max": int(best[1]), "adaptive": False}
    [path] = user_folders.rglob("mine.yaml")
    assert str(path).encode() in run.stderr
    made = load_profile(str(path))
    assert made.speculation.n_max == int(best[1])
    assert made.drafters[0].kind == best[0]
    assert made.target.threads == 1

    again = outrider("bench", "sweep", *models, "--prompts", prompts, "--write", "mine")
    assert again.returncode == 2
    assert b"exists already" in again.stderr
    assert again.stdout == b""


def test_threads_are_engines_of_their_own(models: tuple[str, ...], prompts: str) -> None:
    run = outrider(
        *("bench", "sweep", *models[:-2], "-t", "1,2", "--lengths", "2", "--prompts", prompts),
        *("-n", "8", "--rounds", "1", "--json"),
    )
    assert run.returncode == 0, run.stderr
    made = json.loads(run.stdout)
    assert [arm["settings"]["threads"] for arm in made["arms"].values()] == [1, 2]
    assert made["summary"]["same_text"] == {"prompts": 8, "identical": 8}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--write", "no/folder"], "no folder"),
        (["--chart", "x.pdf"], "--chart x.pdf: allowed: a file that ends in .svg or .png"),
        (["--lengths", "3"], "one length only"),
        (["--verify", "greedy", "--temp", "0.8", "-n", "4"], "--spec-verify greedy"),
    ],
)
def test_bad_input_is_one_line(
    models: tuple[str, ...], prompts: str, user_folders: Path, words: list[str], message: str
) -> None:
    run = outrider("bench", "sweep", *models, "--prompts", prompts, *words)
    assert (run.returncode, run.stdout) == (2, b"")
    assert run.stderr.count(b"\n") == 1
    assert message in run.stderr.decode()
    assert not list(user_folders.rglob("*.yaml"))


def test_too_few_prompts(models: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text('{"question_id": "a", "category": "b", "turns": ["Hi"]}')
    run = outrider("bench", "sweep", *models, "--prompts", str(tmp_path / "one.jsonl"))
    assert run.returncode == 2
    assert b"1 prompt; 8 candidates need 11 or more" in run.stderr


@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize("seed", range(4))
def test_ctrl_c_leaves_nothing(
    models: tuple[str, ...], prompts: str, user_folders: Path, seed: int
) -> None:
    """At the moment the file is there, or some time later: 88 long answers before the end."""
    long = ("--ignore-eos", "-n", "400", "--rounds", "9999")
    words = ["bench", "sweep", *models, "--prompts", prompts, *long, "--write", "x"]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([*COMMAND, *words], env=environment(), **streams) as running:  # type: ignore[call-overload]
        while not list(user_folders.rglob("x.yaml")):
            assert running.poll() is None
        time.sleep(random.Random(seed).uniform(0, 1) if seed else 0)
        running.send_signal(signal.SIGINT)
        out, error = running.communicate(timeout=60)
    assert (running.returncode, out, error) == (130, b"", b"")
    assert not list(user_folders.rglob("x.yaml"))


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_while_the_profile_is_made_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, user_folders: Path
) -> None:
    def interrupted(name: str, parent: str) -> Path:
        path = new_profile(name, parent)
        signal.raise_signal(signal.SIGINT)
        return path

    monkeypatch.setattr(winner, "new_profile", interrupted)
    with pytest.raises(KeyboardInterrupt), winner.reserved("x", "base"):
        pytest.fail("the interrupt was lost")
    assert not list(user_folders.rglob("x.yaml"))
