"""Ctrl-C at moments nobody chose: what is asked next is answered as if nothing had been."""

from __future__ import annotations

import itertools
import json
import random
import re
import shlex
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest
from tools.program import COMMAND
from tools.terminal import CTRL_C, CTRL_D, ENTER, Terminal, paste
from tools.ties import margins
from tools.toy_session import result_of

from outrider.speculative.chat_template import Message
from outrider.speculative.engine import Engine
from outrider.speculative.settings import (
    EngineSettings,
    GenerationSettings,
    ModelSettings,
    SamplingSettings,
    SpeculationSettings,
)

Same = Callable[[list[Message], str], bool]

FOX = "Tell me a story about a fox."
LONG = "The fox and the owl count the stars of the night. " * 160
KILL_LINE = "\x15"
PREDICT, CONTEXT = 100, 16384
TIE, NUM_ENDS = 0.1, 4  # a logarithm of probability; end tokens of the target, at most
FLAGS = ("-t", "1", "--temp", "0", "--ignore-eos", "-n", str(PREDICT), "-c", str(CONTEXT))
MOMENTS = ("generation",) * 7 + ("reading",) * 6 + ("profile",) * 3 + ("empty line",) * 4


def _flags(zoo: Path, *flags: str) -> list[str]:
    return [*COMMAND, "chat", "-m", str(zoo / "target-llama.gguf"), *FLAGS, *flags]


@pytest.fixture
def fresh(zoo: Path) -> Iterator[Same]:
    """Is it what a fresh process answers, or does it part from that at a tie?

    Nothing is cached of the messages there, so they are read in other parts.
    """
    model = ModelSettings(zoo / "target-llama.gguf", ctx_size=CONTEXT, threads=1)
    settings = GenerationSettings(
        SamplingSettings(temp=0, ignore_eos=True), predict=PREDICT, logprobs=NUM_ENDS + 2
    )
    with Engine.load(EngineSettings(model, (), SpeculationSettings())) as engine:
        session = engine.session()

        def is_same(messages: list[Message], answer: str) -> bool:
            session.reset()
            result = result_of(session.generate(engine.render(messages), settings))
            if answer == result.text:
                return True
            pairs = enumerate(zip(answer, result.text, strict=False))
            parts_at = next(place for place, (one, other) in pairs if one != other)
            ends = itertools.accumulate(map(len, engine.pieces(result.token_ids)))
            token = next(i for i, end in enumerate(ends) if end > parts_at)
            return margins(result, engine._target.vocabulary.is_end)[token] < TIE

        yield is_same


def _is_ready(terminal: Terminal) -> bool:
    """Whether the prompt is there: its toolbar, or the hint in its place."""
    return bool(re.search(r"^(base|other) · |ctrl-c again", "\n".join(terminal.screen()), re.M))


def _turns(folders: Path, message: str) -> list[dict[str, Any]]:
    """The saved conversation that ``message`` was asked in; empty while it is not answered."""
    for path in (folders / "data" / "outrider" / "sessions").glob("*.json"):
        turns: list[dict[str, Any]] = json.loads(path.read_text())["turns"]
        if any(turn["message"] == message and turn.get("answer") for turn in turns):
            return turns
    return []


def _num_outcomes(terminal: Terminal) -> int:
    """Lines that say what became of a message or a command."""
    said = ("stopped", "limit of", "note: cancelled", "note: new conversation", "outrider ")
    return sum(line.startswith(said) for line in terminal.lines())


def _send(terminal: Terminal, keys: str, *, interrupt_after_s: float | None = None) -> None:
    """Send a line, and Ctrl-C some time later; returns when the prompt is back."""
    terminal.wait(lambda: _is_ready(terminal), "the prompt")
    before = _num_outcomes(terminal)
    terminal.send(keys + ENTER)
    if interrupt_after_s is not None:
        time.sleep(interrupt_after_s)
        terminal.send(CTRL_C)
    terminal.wait(lambda: _num_outcomes(terminal) > before, f"what became of {keys[:20]!r}")
    terminal.wait(lambda: _is_ready(terminal), "the next prompt")


def _interrupt(terminal: Terminal, moment: str, chance: random.Random) -> None:
    """Press Ctrl-C at some time in a moment of that kind."""
    if moment == "generation":
        _send(terminal, FOX, interrupt_after_s=chance.uniform(0, 0.2))
    elif moment == "reading":
        _send(terminal, paste(LONG), interrupt_after_s=chance.uniform(0, 0.8))
    elif moment == "profile":
        _send(terminal, "/profile ./other.yaml", interrupt_after_s=chance.uniform(0, 0.1))
    else:
        time.sleep(chance.uniform(0, 0.1))
        terminal.send(CTRL_C)


def _check_next(
    terminal: Terminal, fresh: Same, folders: Path, number: int
) -> list[dict[str, Any]]:
    """Ask something, and check the answer; returns the turns of the conversation."""
    message = f"Count from {number} to 30."
    terminal.send(KILL_LINE)
    terminal.send(message + ENTER)
    terminal.wait(lambda: bool(_turns(folders, message)), f"the answer to {message!r}")
    turns = _turns(folders, message)
    messages: list[Message] = []
    for turn in turns:
        messages.append({"role": "user", "content": turn["message"]})
        messages.append({"role": "assistant", "content": turn["answer"]})
    assert turns[-1]["message"] == message
    assert fresh(messages[:-1], turns[-1]["answer"]), messages
    return turns


def test_ctrl_c_at_twenty_moments(zoo: Path, user_folders: Path, fresh: Same) -> None:
    chance = random.Random(7)
    moments = chance.sample(MOMENTS, len(MOMENTS))
    Path("other.yaml").write_text(
        f"schema: 1\nextends: base\ntarget:\n  model: {{source: {zoo}/target-llama.gguf}}\n"
    )
    with Terminal(_flags(zoo), columns=100, rows=30, deadline_s=30) as terminal:
        for number, moment in enumerate(moments):
            _interrupt(terminal, moment, chance)
            turns = _check_next(terminal, fresh, user_folders, number)
            assert len(turns) <= 2
            _send(terminal, "/clear")
        terminal.send(CTRL_D)
        assert terminal.wait_exit() == 0
        assert (terminal.echo, terminal.cursor_visible) == (True, True)
        assert "Traceback" not in terminal.raw
        assert "llama_" not in terminal.raw


@pytest.mark.parametrize("seed", range(3))
def test_ctrl_c_at_some_time_of_the_start(
    zoo: Path, user_folders: Path, fresh: Same, seed: int
) -> None:
    """The chat ends without a word, or it had begun and goes on."""
    flags = _flags(zoo, "-md", str(zoo / "draft-simple.gguf"), "--no-spec-adaptive")
    with Terminal(flags, columns=100, rows=30, deadline_s=30) as terminal:
        terminal.wait(lambda: terminal.bracketed_paste, "the chat took the terminal")
        time.sleep(random.Random(seed).uniform(0, 0.4))
        terminal.send(CTRL_C)
        terminal.wait(lambda: _is_ready(terminal) or not terminal.read(0.1), "prompt or end")
        if _is_ready(terminal):
            _check_next(terminal, fresh, user_folders, seed)
            terminal.send(CTRL_D)
            assert terminal.wait_exit() == 0
        else:
            assert terminal.wait_exit() == 130
            assert terminal.text() == ""
        assert (terminal.echo, terminal.cursor_visible) == (True, True)


@pytest.mark.parametrize(
    ("flags", "keys", "shown"),
    [
        # at the prompt, should the start be over, Ctrl-C says how to leave and Ctrl-D does
        pytest.param((), CTRL_C + CTRL_D, r"^left 130$|\nleft 0$", id="ctrl-c"),
        pytest.param(("-md", "no.gguf"), "", r"^outrider: error: no.gguf: .*\nleft 2$", id="error"),
    ],
)
def test_late_answers_of_the_terminal_are_not_left_to_the_shell(
    zoo: Path, user_folders: Path, flags: tuple[str, ...], keys: str, shown: str
) -> None:
    """They come 0.8 s after the questions, when the chat is on its way out or has gone."""
    script = f"{shlex.join(_flags(zoo, *flags))}; echo left $?; read line"
    with Terminal(["sh", "-c", script], deadline_s=60, answer_after_s=0.8) as terminal:
        terminal.wait(lambda: "\x1b[6n" in terminal.raw, "the question")
        terminal.send(keys)
        terminal.wait_for("left ")
        terminal.wait(lambda: not terminal.is_to_answer, "the last answer")
        terminal.read(0.2)  # what is echoed
        assert re.search(shown, terminal.text()), terminal.text()
        assert "^[" not in terminal.text()


def test_ctrl_c_while_run_reads_a_prompt_is_130_and_json(zoo: Path) -> None:
    """Though the prompt is far from read: -ub 1 makes reading slow."""
    Path("long.txt").write_text(LONG * 8)
    model = str(zoo / "target-llama.gguf")
    words = ("run", "-m", model, "-t", "1", "-c", "65536", "-ub", "1", "-f", "long.txt")
    child = pexpect.spawn(COMMAND[0], [*COMMAND[1:], *words, "--json", "-v"], encoding="utf-8")
    child.expect("reserve took", timeout=60)
    time.sleep(1)
    child.kill(signal.SIGINT)
    child.expect(pexpect.EOF, timeout=60)
    child.wait()
    assert child.exitstatus == 130
    [line] = [line for line in str(child.before).splitlines() if line.startswith("{")]
    answer = json.loads(line)
    assert (answer["finish_reason"], answer["token_ids"]) == ("cancelled", [])
