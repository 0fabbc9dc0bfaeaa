"""The real command on a toy target: identity, order, resuming, interrupts."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from tools.program import COMMAND, outrider, outrider_here
from tools.ties import margins
from tools.toy_session import result_of

from outrider.speculative.engine import Engine
from outrider.speculative.settings import (
    EngineSettings,
    GenerationSettings,
    ModelSettings,
    SamplingSettings,
)

NUM_PROMPTS = NUM_TOKENS = 24
NUM_ENDS = 4  # end tokens of the target, at most
CLEAR = 0.1  # a logarithm of probability: three times what other batches were seen to change


@pytest.fixture
def flags(zoo: Path) -> tuple[str, ...]:
    model = zoo / "target-llama.gguf"
    drafts = ("-md", str(zoo / "draft-simple.gguf"))
    return (
        "-m",
        str(model),
        *drafts,
        "-t",
        "1",
        "-c",
        "2048",
        "-n",
        str(NUM_TOKENS),
        "--temp",
        "0",
        "--raw",
        "--ignore-eos",
        "--no-spec-adaptive",
    )


@pytest.fixture(scope="module")
def prompts(zoo: Path) -> list[str]:
    """Prompts whose answers hang on no tie: with other neighbours it might fall otherwise."""
    asked = GenerationSettings(
        SamplingSettings(temp=0, ignore_eos=True), predict=NUM_TOKENS, logprobs=NUM_ENDS + 2
    )
    target = ModelSettings(zoo / "target-llama.gguf", threads=1, ctx_size=2048)
    candidates = (f"{'The river. ' * (i % 4)}Tell me about the number {i}." for i in range(200))
    with Engine.load(EngineSettings(target)) as engine:
        session, is_end = engine.session(), engine._target.vocabulary.is_end
        clear = (
            prompt
            for prompt in candidates
            if min(margins(result_of(session.generate(engine.encode(prompt), asked)), is_end))
            > CLEAR
        )
        found = list(islice(clear, NUM_PROMPTS))
    assert len(found) == NUM_PROMPTS
    return found


@pytest.fixture
def requests(tmp_path: Path, prompts: list[str]) -> Path:
    path = tmp_path / "in.jsonl"
    rows = [{"id": f"r{i}", "prompt": prompt} for i, prompt in enumerate(prompts)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def results(path: Path) -> dict[str, dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row for row in rows}


def texts(path: Path) -> dict[str, list[int]]:
    return {key: row["token_ids"] for key, row in results(path).items()}


def test_each_answer_is_that_of_run(flags: tuple[str, ...], requests: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    run = outrider("batch", str(requests), "-o", str(path), "-np", "4", *flags)
    assert run.returncode == 0, run.stderr
    found = results(path)
    assert run.stderr.decode().startswith(f"{NUM_PROMPTS} done · ")
    for number in (0, 7, NUM_PROMPTS - 1):
        prompt = json.loads(requests.read_text().splitlines()[number])["prompt"]
        alone = json.loads(outrider("run", "--json", *flags, prompt).stdout)
        assert found[f"r{number}"]["token_ids"] == alone["token_ids"]
        assert found[f"r{number}"].keys() == alone.keys() | {"id"}
    assert sum(row["speculation"]["drafted"] for row in found.values()) > 0


@pytest.mark.parametrize("slots", ["1", "8"])
def test_results_in_order_without_a_file(
    flags: tuple[str, ...], requests: Path, slots: str
) -> None:
    run = outrider("batch", str(requests), "--in-order", "-np", slots, *flags)
    ids = [json.loads(line)["id"] for line in run.stdout.splitlines()]
    assert ids == [f"r{i}" for i in range(NUM_PROMPTS)]


def test_a_bad_line_has_a_result_and_the_rest_goes_on(
    flags: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "out.jsonl"
    lines = [
        '{"id": "a", "prompt": "Hi"}',
        '{"id": "b"}',
        "{",
        json.dumps({"id": "c", "prompt": "word " * 5000}),
        '{"id": "d", "prompt": "Hi", "grammar": "root ::= ("}',
        '{"id": "e", "prompt": "Hi", "predict": 3}',
    ]
    asked = "\n".join(lines).encode()
    run = outrider("batch", "-", "-o", str(path), *flags, stdin=asked)
    assert run.returncode == 1
    found = results(path)
    assert {key: row["finish_reason"] == "error" for key, row in found.items()} == {
        "a": False,
        "b": True,
        3: True,
        "c": True,
        "d": True,
        "e": False,
    }
    assert found["b"]["error"] == {"code": "input", "message": 'line 2: no "prompt"'}
    assert found["c"]["error"]["code"] == "prompt_too_long"
    assert found["d"]["error"]["message"].startswith("line 5: ")
    assert found["e"]["usage"]["completion_tokens"] == 3
    assert "2 done, 4 failed (line 2: " in run.stderr.decode()


def test_killed_at_random_moments_it_ends_with_the_same_results(
    flags: tuple[str, ...], requests: Path, tmp_path: Path
) -> None:
    whole, path = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    command = ["batch", str(requests), "-np", "4", *flags]
    started = time.monotonic()
    assert outrider(*command, "-o", str(whole)).returncode == 0
    took = time.monotonic() - started
    moments = random.Random(8)
    sizes = []
    for _ in range(10):
        process = subprocess.Popen(
            [*COMMAND, *command, "-o", str(path)],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(moments.uniform(0.5, 1.0) * took)
        process.kill()
        process.wait()
        sizes.append(len(path.read_bytes()) if path.exists() else 0)
        if sizes[-1] and moments.random() < 0.5:  # as if the machine had stopped in mid-write
            path.write_bytes(path.read_bytes()[: -moments.randrange(1, 30)])
    assert outrider(*command, "-o", str(path)).returncode == 0
    assert texts(path) == texts(whole)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_a_file_to_go_on_with(
    flags: tuple[str, ...], requests: Path, tmp_path: Path, number: signal.Signals
) -> None:
    path = tmp_path / "out.jsonl"
    command = ["batch", str(requests), "-o", str(path), "-np", "2", *flags]
    process = subprocess.Popen([*COMMAND, *command], stderr=subprocess.PIPE)
    while not (path.exists() and path.read_bytes().count(b"\n") >= 2):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(number)
    _, said = process.communicate()
    assert process.returncode == 128 + number
    assert b"Traceback" not in said
    before = results(path)
    assert outrider(*command).returncode == 0
    after = results(path)
    assert set(before) < set(after) or len(before) == NUM_PROMPTS
    assert len(after) == NUM_PROMPTS


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["-o", "/dev/null/out.jsonl"], "/dev/null/out.jsonl: Not a directory"),
        (["-np", "0"], "-np"),
        (["--no-kv-unified", "-c", "100", "-np", "2"], ""),
    ],
)
def test_what_cannot_work_is_said_in_one_line(
    flags: tuple[str, ...], requests: Path, extra: list[str], said: str
) -> None:
    run = outrider_here("batch", str(requests), *flags, *extra)
    if said:
        assert run.returncode == 2
        assert said in run.stderr.decode()
    assert run.stderr.count(b"\n") <= 1


def test_an_equal_part_of_the_cache_for_each_slot(
    flags: tuple[str, ...], requests: Path, tmp_path: Path
) -> None:
    shared, apart = tmp_path / "shared.jsonl", tmp_path / "apart.jsonl"
    command = ["batch", str(requests), "-np", "4", *flags]
    assert outrider(*command, "-o", str(shared)).returncode == 0
    assert outrider(*command, "-o", str(apart), "--no-kv-unified").returncode == 0
    assert texts(apart) == texts(shared)


def test_a_full_cache_parks_answers_and_loses_none(
    flags: tuple[str, ...], requests: Path, tmp_path: Path
) -> None:
    roomy, tight = tmp_path / "roomy.jsonl", tmp_path / "tight.jsonl"
    command = ["batch", str(requests), "-np", "8", *flags]
    assert outrider(*command, "-o", str(roomy)).returncode == 0
    assert outrider(*command, "-o", str(tight), "-c", "256", "-n", "60").returncode == 0
    found = results(tight)
    assert {row["finish_reason"] for row in found.values()} <= {"length", "stop"}
    for key, row in results(roomy).items():
        assert found[key]["token_ids"][: len(row["token_ids"])] == row["token_ids"]
