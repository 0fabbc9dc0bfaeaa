"""bench compare: who answers when, what is left out, and the whole command on a tiny model."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tools.program import outrider_here as outrider

from outrider.cli.bench.compare import LABELS, order_of, read_compare_prompts
from outrider.cli.bench.compare_view import identity_line, verdict_line
from outrider.cli.bench.footprint import peak_memory
from outrider.cli.bench.identity import Difference, Identity
from outrider.cli.bench.planted_delay import DelayedRunner
from outrider.cli.bench.ratio import Noise, Ratio
from outrider.cli.errors import UsageError

ROUNDS, TOKENS = 3, 16
SHORT = ("--rounds", str(ROUNDS), "-n", str(TOKENS))


@pytest.fixture
def plain(zoo: Path) -> str:
    return f"base -m {shlex.quote(str(zoo / 'target-llama.gguf'))} -t 1 -c 512"


@pytest.fixture
def drafted(zoo: Path, plain: str) -> str:
    return f"{plain} -md {shlex.quote(str(zoo / 'draft-simple.gguf'))}"


def compare(*args: str) -> dict[str, Any]:
    run = outrider("bench", "compare", *args, "--json")
    assert (run.returncode, run.stderr) == (0, b""), run.stderr
    made: dict[str, Any] = json.loads(run.stdout)
    return made


def test_everyone_is_first_second_and_third_equally_often() -> None:
    for prompt in range(8):
        orders = [order_of(number, prompt) for number in range(1, 13)]
        assert set(Counter(orders).values()) == {2}
        assert len(set(orders)) == 6
        places = Counter((label, order.index(label)) for order in orders for label in LABELS)
        assert set(places.values()) == {4}


def test_neighbours_have_different_orders() -> None:
    assert all(order_of(1, prompt) != order_of(1, prompt + 1) for prompt in range(8))


def test_our_own_prompts() -> None:
    samples = read_compare_prompts(None).samples
    assert [sample.category for sample in samples] == [
        *("code", "prose", "list", "json", "translation", "summary", "dialogue", "maths")
    ]
    assert all(len(sample.turns) == 1 for sample in samples)


def test_a_prompt_a_line(tmp_path: Path) -> None:
    file = tmp_path / "some.txt"
    file.write_text("  one \n\ntwo {x}\n", "utf-8")
    assert [sample.turns for sample in read_compare_prompts(file).samples] == [
        ("one",),
        ("two {x}",),
    ]


def test_rows_of_jsonl(tmp_path: Path) -> None:
    row = {"question_id": "q7", "category": "code", "turns": ["first", "second"]}
    file = tmp_path / "rows"
    file.write_text(json.dumps(row) + "\n", "utf-8")
    [sample] = read_compare_prompts(file).samples
    assert (sample.id, sample.turns[0]) == ("q7", "first")


def test_an_empty_file(tmp_path: Path) -> None:
    file = tmp_path / "none.txt"
    file.write_text("\n \n")
    with pytest.raises(UsageError, match=r"--prompts .*none\.txt: no prompt in it"):
        read_compare_prompts(file)


class Recorder:
    """A runner and a clock: decodes take 8 s, looking at the clock 0.25 s."""

    def __init__(self) -> None:
        self.now = 100.0

    def decode(self, blocks: Any) -> Any:
        self.now += 8.0
        return f"outputs of {blocks}"

    def clock(self) -> float:
        self.now += 0.25
        return self.now


def test_a_planted_delay_is_a_share_of_each_decode() -> None:
    seen = Recorder()
    runner: Any = DelayedRunner(seen, 0.5, seen.clock)  # type: ignore[arg-type]
    assert runner.decode(["b"]) == "outputs of ['b']"
    # from 100.25 to 108.5 it decodes; half of that longer is 112.625, the next look is later
    assert seen.now == 112.75


@pytest.mark.parametrize(
    ("ratio", "line"),
    [
        (
            (1.29, 1.26, 1.32),
            "B is faster: 1.29 times (1.26 to 1.32), outside today's noise of this machine",
        ),
        (
            (0.91, 0.9, 0.92),
            "B is slower: 0.91 times (0.90 to 0.92), outside today's noise of this machine",
        ),
        (
            (1.01, 0.98, 1.04),
            "not distinguishable: 1.01 (0.98 to 1.04) lies inside the noise (0.97 to 1.03)",
        ),
        (
            (1.06, 0.99, 1.12),
            "not distinguishable: 1.06 (0.99 to 1.12) may as well be 1",
        ),
    ],
)
def test_the_verdict_in_words(ratio: tuple[float, float, float], line: str) -> None:
    assert verdict_line(Ratio(*ratio, 96), Noise(0.966, 1.035)) == line


def test_texts_in_words() -> None:
    tie, fault = Difference(7, 31, 0.0003), Difference(19, 4, None)
    assert identity_line(Identity(("A", "B"), 40, 40, ())) == (
        "same text at temperature 0: 40 of 40"
    )
    assert identity_line(Identity(("A", "B"), 38, 40, (tie, fault))) == (
        "texts differ in 2 of 40: prompt 7, token 31, a tie (0.0003); prompt 19, token 4, a FAULT"
    )
    assert identity_line(Identity(("plain", "A"), 39, 40, (tie,))) == (
        "A differs from plain decoding in 1 of 40: prompt 7, token 31, a tie (0.0003)"
    )


def test_every_answer_is_saved(plain: str, drafted: str, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    made = compare(plain, f"{drafted} --no-spec-adaptive", *SHORT, "-o", str(file))
    assert json.loads(file.read_text("utf-8")) == made
    assert (made["kind"], made["synthetic"]) == ("compare", False)
    rounds, summary = made["rounds"], made["summary"]
    num_prompts = 8
    assert len(rounds) == 3 * num_prompts * (1 + ROUNDS)
    assert {row["tokens"] for row in rounds} == {TOKENS}
    assert [row["round"] == 0 for row in rounds] == [row["warm_up"] for row in rounds]
    assert sum(row["warm_up"] for row in rounds) == 3 * num_prompts
    for start in range(0, len(rounds), 3):
        three = rounds[start : start + 3]
        assert {row["arm"] for row in three} == set(LABELS)
        assert [row["order"] for row in three] == [0, 1, 2]
        assert len({(row["round"], row["prompt"]) for row in three}) == 1
    drafts = {label: sum(r["drafted"] for r in rounds if r["arm"] == label) for label in LABELS}
    assert drafts["A"] == drafts["A again"] == 0 < drafts["B"]
    measured = [row for row in rounds if row["arm"] == "B" and not row["warm_up"]]
    accepted = sum(row["accepted"] for row in measured)
    rate = accepted / sum(row["drafted"] for row in measured)
    assert summary["arms"]["B"]["acceptance_rate"] == pytest.approx(rate)
    assert summary["arms"]["A"]["acceptance_rate"] is None
    assert summary["tokens_per_s"]["num_pairs"] == num_prompts * ROUNDS
    assert [text["equal"] for text in summary["texts"]] == [num_prompts]
    assert set(made["arms"]["B"]["models"]) == {"target", "drafter 1"}


def test_the_ratio_is_that_of_the_rounds(plain: str) -> None:
    made = compare(plain, plain, *SHORT)
    speeds: dict[tuple[int, str], dict[str, float]] = {}
    for row in made["rounds"]:
        if not row["warm_up"]:
            speeds.setdefault((row["round"], row["prompt"]), {})[row["arm"]] = row["tokens_per_s"]
    for key, label in (("tokens_per_s", "B"), ("a_against_a", "A again")):
        ratios = sorted(pair[label] / pair["A"] for pair in speeds.values())
        middle = ratios[len(ratios) // 2 - 1 : len(ratios) // 2 + 1]
        assert middle[0] <= made["summary"][key]["value"] <= middle[1]


def test_the_table(plain: str, drafted: str) -> None:
    run = outrider("bench", "compare", drafted, plain, *SHORT)
    assert (run.returncode, run.stderr) == (0, b"")
    lines = run.stdout.decode().splitlines()
    assert f"8 prompts, {ROUNDS} rounds of A, A again and B in all orders" in lines[2]
    assert "the warm-up round is left out" in lines[2]
    assert f"answers of {TOKENS} tokens, end tokens ignored, temperature 0" in lines[3]
    rows = {line[:16].strip(): line[16:].split() for line in lines[5:11]}
    assert list(rows) == [
        *("tok/s", "first token, s", "memory, MiB"),
        *("acceptance", "mean length", "A against A"),
    ]
    assert rows["acceptance"][1] == "–"
    assert re.fullmatch(r"\d\.\d\d to \d\.\d\d", " ".join(rows["A against A"][1:]))
    assert lines[11:14] == [
        "same text at temperature 0: 8 of 8",
        "same text as plain decoding, A: 8 of 8",
        "same text as plain decoding, B: 8 of 8",
    ]
    assert re.match("B is (fast|slow)er: |not distinguishable: ", lines[14])


@pytest.mark.parametrize(
    ("model", "flags", "reason"),
    [
        ("target-swa-gemma3.gguf", "", "the models differ"),
        ("target-llama.gguf", "--temp 0.7", "B samples at temperature 0.7"),
        ("target-llama.gguf", "--repeat-penalty 1.2", "the sampling differs"),
        ("target-llama.gguf", "-sys Hello", "the prompts differ (system message or template)"),
        (
            "target-llama.gguf",
            "-ctk q8_0",
            "the models compute differently (cache types, flash attention or GPU layers)",
        ),
    ],
)
def test_texts_that_cannot_be_the_same(
    zoo: Path, plain: str, tmp_path: Path, model: str, flags: str, reason: str
) -> None:
    file = tmp_path / "one.txt"
    file.write_text("Count down from 12 to 4.\n")
    other = f"base -m {shlex.quote(str(zoo / model))} -t 1 -c 512 {flags}"
    made = compare(plain, other, *SHORT, "--prompts", str(file))
    assert (made["summary"]["why_no_texts"], made["summary"]["texts"]) == (reason, [])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["base", "base", "--rounds", "2"], "--rounds"),
        (["base", "base", "-n", "1"], "--predict"),
        (["base", "base --no-such-flag"], "--no-such-flag"),
        (["base"], "Missing argument"),
        (["base", "base", "--prompts", "nowhere.txt"], "nowhere.txt"),
    ],
)
def test_bad_input(args: list[str], message: str) -> None:
    run = outrider("bench", "compare", *args)
    assert run.returncode == 2
    assert run.stdout == b""
    assert message in run.stderr.decode()
    assert run.stderr.count(b"\n") == 1


def test_memory_is_that_of_a_child(plain: str, drafted: str) -> None:
    alone, with_drafter = peak_memory(plain), peak_memory(drafted)
    assert alone is not None
    assert with_drafter is not None
    assert alone > (8 << 20)  # an interpreter and a model
    large = peak_memory(plain.replace("-c 512", "-c 32768"))
    assert large is not None
    assert large > alone + (4 << 20)  # the cache: 2 (k, v) x layers x width x 2 bytes a token
