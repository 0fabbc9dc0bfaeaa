"""One-shot runs of a real, tiny model. Expected texts are llama-server's (prompts.jsonl)."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tools.program import COMMAND, environment, outrider, outrider_here

ENDLESS = ("--ignore-eos", "-c", "200000", "-n", "150000", "--temp", "0")


@pytest.fixture
def model(zoo: Path) -> tuple[str, ...]:
    """The flags for the tiny model at temperature 0."""
    return ("-m", str(zoo / "target-llama.gguf"), "--temp", "0", "-t", "1")


@pytest.fixture(scope="module")
def known() -> dict[str, dict[str, Any]]:
    """Prompts and answers by id."""
    path = Path(__file__).parents[1] / "fixtures" / "zoo" / "prompts.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {line["id"]: line for line in lines}


def answer(known: dict[str, Any], name: str) -> str:
    text: str = known[name]["greedy"]["target-llama"]["text"]
    return text


def run_json(*args: str, stdin: bytes | None = None) -> dict[str, Any]:
    words = ("run", "--json", *args)
    run = outrider_here(*words) if stdin is None else outrider(*words, stdin=stdin)
    assert run.stderr == b"", run.stderr
    assert run.stdout.count(b"\n") == 1
    made: dict[str, Any] = json.loads(run.stdout)
    return made


def test_stdout_is_the_answer_and_stderr_is_empty(
    model: tuple[str, ...], known: dict[str, Any]
) -> None:
    run = outrider("run", *model, stdin=b"What is 3 plus 4?\n")
    assert run.returncode == 0
    assert run.stdout.decode() == answer(known, "plus") + "\n"
    assert run.stderr == b""


@pytest.mark.parametrize("args", [["Write the 7 times table."], ["-p", "Write the 7 times table."]])
def test_a_prompt_on_the_command_line(
    model: tuple[str, ...], known: dict[str, Any], args: list[str]
) -> None:
    run = outrider("run", *model, *args)
    assert run.stdout.decode() == answer(known, "table") + "\n"


def test_argument_file_and_stdin_are_one_prompt(model: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("b\n")
    parts = run_json(*model, "-n", "1", "a", "-f", str(tmp_path / "more.txt"), stdin=b"c\n")
    whole = run_json(*model, "-n", "1", "a\nb\nc")
    alone = run_json(*model, "-n", "1", "a", "--no-stdin", stdin=b"c\n")
    assert parts["usage"] == whole["usage"]
    assert parts["usage"]["prompt_tokens"] > alone["usage"]["prompt_tokens"]


def test_a_prompt_that_begins_with_a_dash(model: tuple[str, ...]) -> None:
    assert outrider("run", *model, "-n", "2", "--", "-n is a flag").returncode == 0


def test_raw_takes_the_prompt_as_it_is(model: tuple[str, ...], known: dict[str, Any]) -> None:
    prompt = known["raw-table"]["text"]
    made = run_json(*model, "--raw", stdin=prompt.encode())
    assert made["text"] == answer(known, "raw-table")
    assert (
        made["usage"]["prompt_tokens"] == known["raw-table"]["greedy"]["target-llama"]["n_prompt"]
    )


def test_the_json_object(model: tuple[str, ...], known: dict[str, Any]) -> None:
    greedy = known["count"]["greedy"]["target-llama"]
    made = run_json(*model, "Count from 5 to 16.", "-s", "5")
    assert made["text"] == greedy["text"]
    assert made["token_ids"] == greedy["tokens"][:-1]  # the end token is in llama-server's list
    assert made["usage"] == {
        "prompt_tokens": greedy["n_prompt"],
        "cached_tokens": 0,
        "completion_tokens": len(greedy["tokens"]) - 1,
    }
    assert (made["finish_reason"], made["error"], made["seed"]) == ("stop", None, 5)
    assert (made["profile"], made["model"]) == ("base", "zoo target-llama")
    assert made["timings"]["load_s"] > 0
    assert made["speculation"]["drafters"] == []


def test_speculation_is_counted_and_changes_no_token(model: tuple[str, ...], zoo: Path) -> None:
    prompt = "Count from 5 to 16."
    drafter = ("-md", str(zoo / "draft-simple.gguf"))
    length = ("--no-spec-adaptive", "--spec-draft-n-max", "4")
    made = run_json(*model, *drafter, *length, prompt)
    plain = run_json(*model, prompt)
    speculation = made["speculation"]
    assert made["token_ids"] == plain["token_ids"]
    assert (speculation["drafters"], speculation["n_max"]) == (["draft-simple"], 4)
    assert speculation["accepted"] + speculation["own"] == len(made["token_ids"])
    assert speculation["verification"]["greedy"] == speculation["drafts"] > 0
    assert 0 < speculation["accepted"] <= speculation["drafted"]
    none = run_json(*model, *drafter, "--spec-type", "none", prompt)
    assert none["speculation"]["drafts"] == 0


def test_the_token_limit(model: tuple[str, ...], known: dict[str, Any]) -> None:
    made = run_json(*model, "Count from 5 to 16.", "-n", "3")
    assert made["finish_reason"] == "length"
    assert made["token_ids"] == known["count"]["greedy"]["target-llama"]["tokens"][:3]


def test_the_system_message_and_the_template_are_used(
    model: tuple[str, ...], tmp_path: Path, known: dict[str, Any]
) -> None:
    template = tmp_path / "template.jinja"
    template.write_text("{{ messages[-1]['content'] }}{{ tail }}")
    made = run_json(
        *model, "--chat-template-file", str(template), "--chat-template-kwargs",
        '{"tail": " 6, 7,"}', "4, 5,",
    )  # fmt: skip
    assert made["text"] == answer(known, "raw-count")
    without = run_json(*model, "-n", "1", "hi")
    system = run_json(*model, "-n", "1", "hi", "-sys", "Be brief.")
    assert system["usage"]["prompt_tokens"] > without["usage"]["prompt_tokens"]


def test_a_system_message_has_no_place_in_a_raw_prompt(model: tuple[str, ...]) -> None:
    run = outrider("run", *model, "--raw", "-sys", "Be brief.", "hi")
    assert run.returncode == 2
    assert run.stdout == b""
    assert run.stderr.startswith(b"outrider: error: --raw: there is no place for a system message")


def test_a_prompt_that_does_not_fit(model: tuple[str, ...]) -> None:
    long = "hello " * 300
    run = outrider("run", *model, "-c", "64", long)
    assert (run.returncode, run.stdout) == (2, b"")
    assert re.fullmatch(
        rb"outrider: error: the prompt does not fit the context: needs \d+ tokens, has 64;.*\n",
        run.stderr,
    )
    made = json.loads(outrider_here("run", *model, "-c", "64", "--json", long).stdout)
    assert (made["finish_reason"], made["error"]["code"]) == ("error", "prompt_too_long")
    assert made["error"]["message"] in run.stderr.decode()
    assert (made["model"], made["usage"]["prompt_tokens"] > 64) == ("zoo target-llama", True)


def test_a_full_context_is_a_normal_end(model: tuple[str, ...]) -> None:
    made = run_json(*model, "-c", "32", "--ignore-eos", "Count from 5 to 16.")
    assert made["finish_reason"] == "context"


def test_statistics_go_to_stderr(model: tuple[str, ...], known: dict[str, Any]) -> None:
    run = outrider("run", *model, "--stats", "What is 3 plus 4?")
    assert run.stdout.decode() == answer(known, "plus") + "\n"
    summary, prompt = run.stderr.decode().splitlines()
    assert re.fullmatch(r"9 tokens · [\d.,]+ tok/s · no drafts · first \d+\.\d+ s", summary)
    assert re.fullmatch(r"prompt 18 tokens · [\d.,]+ tok/s · loaded in \d+\.\d+ s", prompt)
    limited = outrider_here("run", *model, "--stats", "-n", "2", "What is 3 plus 4?")
    assert limited.stderr.startswith("2 tokens ·".encode())
    ascii_only = outrider("run", *model, "--stats", "hi", env={"PYTHONIOENCODING": "ascii"})
    assert b" | first " in ascii_only.stderr


def test_v_explains_and_shows_native_log_lines(model: tuple[str, ...]) -> None:
    run = outrider("run", *model, "-v", "-n", "1", "hi")
    assert run.returncode == 0
    assert b"outrider: note: context 4,096: the model was trained on 1,024 tokens" in run.stderr
    assert b"llama_model_loader" in run.stderr


def test_a_flag_that_this_build_cannot_follow_is_said(model: tuple[str, ...]) -> None:
    from outrider.speculative.llama import supports_gpu

    run = outrider("run", *model, "-ngl", "3", "-n", "1", "hi")
    assert run.returncode == 0
    note = b"outrider: note: --gpu-layers 3: this build of llama.cpp runs on the CPU only"
    assert run.stderr.startswith(note) != supports_gpu()


def test_an_encoding_that_lacks_a_character_is_no_crash(model: tuple[str, ...]) -> None:
    flat = ("--temp", "5", "--top-k", "0", "--top-p", "1", "--min-p", "0", "--ignore-eos")
    args = ("run", *model, *flat, "-s", "1", "-n", "60", "hi")
    run = outrider(*args, env={"PYTHONIOENCODING": "ascii"})
    assert (run.returncode, run.stderr) == (0, b"")
    assert run.stdout.isascii()
    assert not outrider(*args).stdout.isascii()


def test_a_closed_pipe_is_quiet(model: tuple[str, ...]) -> None:
    process = subprocess.Popen(
        [*COMMAND, "run", *model, *ENDLESS, "hi"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.read(1)
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert (process.wait(), errors) == (0, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is full")
@pytest.mark.parametrize("extra", [[], ["--json"]])
def test_a_full_disk_is_one_line(model: tuple[str, ...], extra: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        run = outrider("run", *model, *extra, "hi", stdout=full)
    assert run.returncode == 1
    assert run.stderr == b"outrider: error: stdout: No space left on device\n"


@pytest.fixture
def endless(model: tuple[str, ...]) -> Iterator[Any]:
    """Start runs that go on until they are told to stop."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(*args: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [*COMMAND, "run", *model, *ENDLESS, *args, "hi"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_the_answer_and_keeps_the_text(
    endless: Any, number: signal.Signals, code: int
) -> None:
    process = endless()
    first = process.stdout.read(1)  # the answer has begun
    process.send_signal(number)
    rest, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (code, b"")
    assert (first + rest).endswith(b"\n")
    assert (first + rest).strip()


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_a_signal_leaves_the_json_object(endless: Any) -> None:
    process = endless("--json", "-v")
    for line in process.stderr:
        if line.startswith(b"outrider: note: context"):  # loaded, the answer is next
            break
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    made = json.loads(out)
    assert (process.returncode, made["finish_reason"]) == (130, "cancelled")
    assert made["error"] is None
    assert len(made["token_ids"]) == made["usage"]["completion_tokens"]


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_a_signal_before_the_models_are_loaded(zoo: Path) -> None:
    read, write = os.pipe()
    process = subprocess.Popen(
        [*COMMAND, "run", "-m", str(zoo / "target-llama.gguf"), "--json"],
        stdin=read,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    os.close(read)
    assert process.stderr is not None
    assert process.stderr.readline().startswith(b"outrider: waiting for stdin")
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    os.close(write)
    assert (process.returncode, out, errors) == (130, b"", b"")
