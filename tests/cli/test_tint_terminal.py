"""Tint and raw answers in the real program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tools.terminal import CTRL_C, CTRL_D, ENTER, Terminal
from tools.zoo_chat import ENDLESS, saved_turns, zoo_chat

COUNT = "Count from 5 to 16."
COUNTED = "5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16."
FOX = "Tell me a story about a fox."
CTRL_O = "\x0f"
DRAFT = "draft-simple.gguf"
LEGEND = "drafted and accepted"
# an answer of short blocks
BLOCKS = 'root ::= ([a-z ]{9} "\\n\\n")+'


def wait_prompts(terminal: Terminal, count: int) -> None:
    terminal.wait(
        lambda: sum(line.startswith("›") for line in terminal.lines()) >= count,
        f"{count} prompts",
    )


def underlined(terminal: Terminal) -> str:
    """What was written with an underline, escape sequences left out."""
    parts = terminal.raw.split("\x1b[4m")[1:]
    return " ".join(part.split("\x1b")[0] for part in parts)


def stats_json(terminal: Terminal) -> dict[str, Any]:
    """What ``/stats json`` printed last."""
    text = terminal.text()
    data: dict[str, Any] = json.loads(text[text.rindex("\n{") : text.rindex("\n}") + 2])
    return data


def test_ctrl_o_at_the_prompt_tints_the_next_answer(zoo: Path) -> None:
    with zoo_chat(
        zoo, "-md", str(zoo / DRAFT), "--no-spec-adaptive", env={"NO_COLOR": "1"}
    ) as terminal:
        terminal.wait_for("›")
        terminal.send(CTRL_O)
        terminal.wait_for("tint on from the next answer on")
        terminal.send(COUNT + ENTER)
        terminal.wait_for("tok/s")
        wait_prompts(terminal, 2)
        assert COUNTED in terminal.lines()
        assert LEGEND not in terminal.text()  # it was live
        assert f" tint: underlined = {LEGEND}, plain = the target's own" in terminal.raw
        assert any(character.isdigit() for character in underlined(terminal))
        terminal.send(CTRL_O)
        terminal.wait_for("tint off from the next answer on")


def test_ctrl_o_during_an_answer_and_stats_of_a_stopped_one(zoo: Path, user_folders: Path) -> None:
    flags = ("-md", str(zoo / DRAFT), "--no-spec-adaptive", "--grammar", BLOCKS, *ENDLESS)
    with zoo_chat(zoo, *flags) as terminal:
        terminal.wait_for("›")
        terminal.send(FOX + ENTER)
        terminal.wait_for("mean accepted")
        terminal.send(CTRL_O)
        terminal.wait_for(LEGEND)
        terminal.wait_match(r"accepted [1-9]")
        terminal.send(CTRL_C)
        terminal.wait_for("stopped at ")
        wait_prompts(terminal, 2)
        assert LEGEND not in terminal.text()
        terminal.send("/stats json" + ENTER)
        terminal.wait_for('"schema": 1')
        wait_prompts(terminal, 3)
        terminal.send(CTRL_D)
        assert terminal.wait_exit() == 0
        data, text = stats_json(terminal), terminal.text()
    [turn] = saved_turns(user_folders)
    for name in ("tokens", "drafted", "accepted"):
        assert data["session"][name] == turn[name]
        assert sum(kind[name] for kind in data["text"].values()) == turn[name]
    assert data["session"]["accepted"] > 0
    words = "".join(str(turn["answer"]).split())
    assert words[:3000] in "".join(text.split())


@pytest.mark.parametrize("columns", [40, 100])
def test_no_markdown_shows_what_the_model_wrote(
    zoo: Path, user_folders: Path, columns: int
) -> None:
    with zoo_chat(zoo, "--no-markdown", columns=columns) as terminal:
        terminal.wait_for("›")
        terminal.send(FOX + ENTER)
        terminal.wait_for("tok/s")
        wait_prompts(terminal, 2)
        terminal.send(CTRL_D)
        assert terminal.wait_exit() == 0
        [turn] = saved_turns(user_folders)
        # the terminal wraps: rows are full, and words may stand on two of them
        shown = "".join("".join(terminal.lines()).split())
        assert "".join(str(turn["answer"]).split()) in shown


def test_a_dumb_terminal_has_no_tint_and_goes_on(zoo: Path) -> None:
    with zoo_chat(zoo, env={"TERM": "dumb"}) as terminal:
        terminal.wait_for(">")
        terminal.send("/tint" + ENTER)
        terminal.wait_for("error: /tint: this terminal has no look for accepted text")
        terminal.send(COUNT + ENTER)
        terminal.wait_for(COUNTED)
        assert "\x1b" not in terminal.raw
