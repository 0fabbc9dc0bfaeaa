"""Synthetic acceptance from the command line: what is asked for comes, and nothing hides it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tools.program import outrider_here as outrider

SHORT = ("-t", "1", "-c", "1024", "--spec-draft-n-max", "4")


@pytest.fixture
def model(zoo: Path) -> tuple[str, ...]:
    return ("-m", str(zoo / "target-llama.gguf"), *SHORT)


def _measured(*args: str) -> dict[str, Any]:
    run = outrider("bench", "synthetic", "--json", *args)
    assert run.returncode == 0, run.stderr
    assert run.stderr == b""
    made: dict[str, Any] = json.loads(run.stdout)
    return made


def test_the_length_that_was_asked_for_comes(model: tuple[str, ...]) -> None:
    made = _measured(*model, "--len", "2.5", "--steps", "1500")
    summary = made["summary"]
    assert made["synthetic"] is True
    assert summary["steps"] == summary["drafts"] == 1500
    assert summary["drafted"] == 4 * 1500  # no draft was cut short
    # four standard deviations of a mean over 1,500 drafts
    assert summary["mean_accepted_length"] == pytest.approx(2.5, abs=0.16)
    # p + p^2 + p^3 + p^4 = 1.5, by hand
    p = 0.64447
    assert p + p**2 + p**3 + p**4 == pytest.approx(1.5, abs=1e-4)
    assert summary["wanted_rates"] == pytest.approx([p, p**2, p**3, p**4], abs=1e-4)
    assert sum(chunk["steps"] for chunk in made["rounds"]) == 1500


def test_the_rates_that_were_asked_for_come(model: tuple[str, ...]) -> None:
    rates = [0.9, 0.5, 0.5, 0.1]
    made = _measured(*model, "--rates", "0.9,0.5,0.5,0.1", "--steps", "1500")
    assert made["summary"]["rates"] == pytest.approx(rates, abs=0.06)
    assert made["summary"]["wanted_mean_accepted_length"] == pytest.approx(3.0)
    for fact in ("cpu", "cpu_features", "cores", "memory_bytes", "system", "load_average"):
        assert fact in made["machine"]
    assert made["library"]["llama_cpp_python"] == "0.3.36"
    assert len(made["arms"]["A"]["models"]["target"]["sha256"]) == 64


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--len", "2.5", "--rates", "0.5,0.4,0.3,0.2"), "give one of"),
        (("--rates", "0.5,0.4"), "2 values, needs one for each of 4 draft tokens"),
        (("--rates", "0.5,0.4,0.3,1.2"), "each must be from 0 to 1"),
        (("--rates", "0.2,0.4,0.3,0.2"), "must not increase"),
        (("--len", "5.5"), "allowed 1 to 5 with n_max 4"),
        (("--len", "nan"), "'nan': allowed: a number"),
        (("--rates", "0.5;0.4"), "allowed: numbers separated by commas"),
        ((), "needs --rates R,R,... or --len L"),
    ],
)
def test_what_is_impossible_is_one_line(
    model: tuple[str, ...], flags: tuple[str, ...], told: str
) -> None:
    run = outrider("bench", "synthetic", *model, *flags)
    line = run.stderr.decode()
    assert (run.returncode, run.stdout, line.count("\n")) == (2, b"", 1)
    assert told in line


def test_the_table_says_that_it_is_synthetic(model: tuple[str, ...], tmp_path: Path) -> None:
    saved = tmp_path / "result.json"
    run = outrider("bench", "synthetic", *model, "--len", "2", "--steps", "100", "-o", str(saved))
    lines = run.stdout.decode().splitlines()
    assert lines[0] == "SYNTHETIC acceptance: coins decide, the text is not the model's"
    assert "100 steps, drafts of 4" in lines[1]
    assert json.loads(saved.read_text())["synthetic"] is True


def test_a_synthetic_answer_is_marked(model: tuple[str, ...]) -> None:
    flags = (*model, "--spec-type", "filler", "--spec-synth-len", "3", "-n", "40", "hi")
    run = outrider("run", "--json", *flags)
    made = json.loads(run.stdout)
    assert run.stderr.startswith(b"outrider: SYNTHETIC acceptance")
    assert made["speculation"]["synthetic"] is True
    assert made["speculation"]["verification"]["synthetic"] == made["speculation"]["drafts"] > 0


def test_a_grammar_and_coins_do_not_go_together(model: tuple[str, ...]) -> None:
    run = outrider(
        *("run", *model, "--spec-type", "filler", "--spec-synth-len", "3", "--regex", "a+", "hi")
    )
    assert run.returncode == 2
    assert b"--regex: synthetic acceptance keeps tokens that a grammar forbids" in run.stderr
