"""Constrained answers, log-probabilities and reasoning, as a user asks for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tools.program import outrider_here as outrider

TOM = "Give me JSON for a user named Tom."
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"name": {"enum": ["Ann", "Bob"]}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
)
# a template that opens the thought itself, as those of many models do
THINKING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking %}<think>\n{% endif %}{% endif %}"
    "{# <think> </think> #}"
)


@pytest.fixture
def model(zoo: Path) -> tuple[str, ...]:
    return ("-m", str(zoo / "target-llama.gguf"), "--temp", "0", "-t", "1", "-s", "3")


@pytest.fixture
def thinking(model: tuple[str, ...], tmp_path: Path) -> tuple[str, ...]:
    template = tmp_path / "thinking.jinja"
    template.write_text(THINKING)
    # the model never learned to think: it would end its answer at once
    return (*model, "--ignore-eos", "--chat-template-file", str(template))


def _json(*args: str) -> dict[str, Any]:
    run = outrider("run", "--json", *args)
    assert run.returncode == 0, run.stderr
    made: dict[str, Any] = json.loads(run.stdout)
    return made


@pytest.mark.parametrize("drafters", [("none",), ("grammar",), ("ngram-simple", "grammar")])
def test_a_schema_is_kept_whatever_drafts(model: tuple[str, ...], drafters: tuple[str]) -> None:
    kinds = ("--spec-type", ",".join(drafters), "--no-spec-adaptive")
    made = _json(*model, *kinds, "-j", SCHEMA, TOM)
    value = json.loads(made["text"])
    assert value["name"] in ("Ann", "Bob")
    assert isinstance(value["age"], int)
    assert made["finish_reason"] == "stop"
    plain = _json(*model, "-j", SCHEMA, TOM)
    assert made["token_ids"] == plain["token_ids"]
    assert (made["speculation"]["drafted"] > 0) == ("grammar" in drafters)


def test_every_way_to_say_a_grammar(model: tuple[str, ...], tmp_path: Path) -> None:
    schema, gbnf = tmp_path / "s.json", tmp_path / "g.gbnf"
    schema.write_text(SCHEMA)
    gbnf.write_text('root ::= "yes" | "no"\n')
    assert json.loads(_json(*model, "-jf", str(schema), TOM)["text"])["name"] in ("Ann", "Bob")
    assert _json(*model, "--grammar-file", str(gbnf), TOM)["text"] in ("yes", "no")
    assert _json(*model, "--grammar", 'root ::= "no"', TOM)["text"] == "no"
    assert _json(*model, "--grammar", 'start: "a" "b"', TOM)["text"] == "ab"
    assert _json(*model, "--regex", "[xy]{3}", TOM)["text"] in {
        a + b + c for a in "xy" for b in "xy" for c in "xy"
    }


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--grammar", 'root ::= "a'), "--grammar: line 1, column "),
        (("--grammar", "root ::= thing"), "thing"),
        (("--regex", "(a"), "--regex: "),
        (("-j", '{"type": '), "--json-schema: line 1, column "),
        (("-j", '{"not": {"type": "string"}}'), "'not'"),
        (("-j", "{}", "--regex", "a"), "an answer follows one of them"),
        (("--grammar-file", "no-such.gbnf"), "no-such.gbnf"),
        (("--samplers", "top_k;nope"), "'top_k;nope': allowed: penalties;"),
        (("--mirostat", "3"), "'3': allowed: a whole number from 0 to 2"),
        (("--logprobs", "3"), "add --json"),
    ],
)
def test_what_is_wrong_is_one_line_before_anything_is_loaded(
    flags: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    run = outrider("run", "-m", str(tmp_path / "no-model.gguf"), *flags, "hi")
    line = run.stderr.decode()
    assert run.returncode == 2
    assert run.stdout == b""
    assert line.startswith("outrider: error: ")
    assert line.count("\n") == 1
    assert told in line


def test_mirostat_cannot_be_verified_by_the_ratio(model: tuple[str, ...]) -> None:
    flags = ("--temp", "1", "--mirostat", "2", "--spec-verify", "rejection")
    run = outrider("run", *model, *flags, "hi")
    assert run.returncode == 2
    assert b"--spec-verify rejection: not with --mirostat 2" in run.stderr


@pytest.mark.parametrize("after", [(), ("--post-sampling-probs",)])
def test_log_probabilities_are_true_while_speculating(
    model: tuple[str, ...], zoo: Path, after: tuple[str, ...]
) -> None:
    flags = ("--logprobs", "3", *after, "--temp", "0.9", "Count from 5 to 16.")
    plain = _json(*model, *flags)
    drafter = ("-md", str(zoo / "draft-simple.gguf"), "--no-spec-adaptive")
    drafted = _json(*model, *drafter, *flags)
    assert drafted["speculation"]["accepted"] > 0
    assert drafted["token_ids"] == plain["token_ids"]
    rows = list(zip(plain["logprobs"], drafted["logprobs"], strict=True))
    assert len(rows) == len(plain["token_ids"])
    for token_id, (a, b) in zip(plain["token_ids"], rows, strict=True):
        assert a["token_id"] == b["token_id"] == token_id
        assert bytes(a["bytes"]).decode("utf-8", "replace") == a["text"]
        assert b["logprob"] == pytest.approx(a["logprob"], abs=0.01)
        assert len(a["top"]) <= 3
        assert a["top"] == sorted(a["top"], key=lambda one: -one["logprob"])
        assert a["logprob"] <= a["top"][0]["logprob"]
    assert bytes(byte for a, _ in rows for byte in a["bytes"]).decode() == plain["text"]
    assert _json(*model, "Count from 5 to 16.")["logprobs"] is None


def test_thinking_is_hidden_and_can_be_shown(thinking: tuple[str, ...]) -> None:
    budget = ("--reasoning-budget", "6", "--reasoning-budget-message", " enough")
    flags = (*thinking, *budget, "-n", "30", TOM)
    made = _json(*flags)
    assert made["reasoning"].endswith(" enough")
    assert "think" not in made["text"]
    hidden = outrider("run", *flags)
    assert hidden.stdout.decode() == made["text"].rstrip("\n") + "\n"
    assert hidden.stderr == b""
    shown = outrider("run", "--show-thinking", *flags)
    assert shown.stdout == hidden.stdout
    assert shown.stderr.decode() == made["reasoning"] + "\n"


def test_a_grammar_begins_after_the_thought(thinking: tuple[str, ...]) -> None:
    made = _json(*thinking, "--reasoning-budget", "5", "-j", SCHEMA, "--spec-type", "grammar", TOM)
    assert made["reasoning"]
    assert json.loads(made["text"])["name"] in ("Ann", "Bob")


def test_thinking_can_be_off(thinking: tuple[str, ...]) -> None:
    made = _json(*thinking, "--reasoning", "off", "-n", "8", TOM)
    assert made["reasoning"] == ""
    assert made["text"]


def test_a_thought_that_takes_all_tokens_is_explained(thinking: tuple[str, ...]) -> None:
    run = outrider("run", *thinking, "-n", "4", TOM)
    assert run.stdout == b"\n"
    assert run.stderr.startswith(b"outrider: note: all 4 tokens went into thinking; -n allows more")
