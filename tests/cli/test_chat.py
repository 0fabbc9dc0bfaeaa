"""The chat as a user sees it: a real pseudo-terminal, a tiny trained model."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tools.program import COMMAND, outrider
from tools.terminal import CTRL_C, CTRL_D, ENTER, UP, Terminal, paste

FOX = "Tell me a story about a fox."
COUNT = "Count from 5 to 16."
COUNTED = "5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16."
# an answer that goes on until it is stopped
ENDLESS = ("--ignore-eos", "-c", "65536")

Start = Callable[..., Terminal]


@pytest.fixture
def start(zoo: Path) -> Iterator[Start]:
    """Start a chat with the tiny target in a terminal, and wait for its prompt."""
    with ExitStack() as stack:

        def start(*flags: str, ready: str = "›", **terminal: object) -> Terminal:
            model = str(zoo / "target-llama.gguf")
            command = [*COMMAND, "chat", "-m", model, "-t", "1", "--temp", "0", *flags]
            opened = stack.enter_context(Terminal(command, **terminal))  # type: ignore[arg-type]
            if ready:
                opened.wait_for(ready)
            return opened

        yield start


def saved(folders: Path) -> dict[str, list[dict[str, object]]]:
    """The one saved conversation."""
    [path] = (folders / "data" / "outrider" / "sessions").glob("*.json")
    conversation: dict[str, list[dict[str, object]]] = json.loads(path.read_text())
    return conversation


def wait_prompt(terminal: Terminal, number: int) -> None:
    """Wait until the prompt has come ``number`` times."""
    wait = terminal.wait
    wait(
        lambda: sum(line.startswith("›") for line in terminal.lines()) >= number,
        f"prompt number {number}",
    )


def wait_output(terminal: Terminal, size: int) -> None:
    """Wait until the program has written ``size`` characters more."""
    before = len(terminal.raw)
    terminal.wait(lambda: len(terminal.raw) > before + size, "more output")


def test_a_chat_from_banner_to_a_silent_exit(start: Start, user_folders: Path) -> None:
    terminal = start("--spec-type", "ngram-simple", columns=100, rows=30)
    terminal.send(COUNT + ENTER)
    terminal.wait_for("tok/s")
    wait_prompt(terminal, 2)
    toolbar = "base · ngram-simple adaptive · greedy"
    terminal.wait(lambda: terminal.text().splitlines()[-1].startswith(toolbar), "the toolbar")
    lines = [line for line in terminal.lines() if line]
    assert re.fullmatch(
        r"outrider \S+   zoo target-llama   context 4,096   1 thread, CPU   loaded in .* s",
        lines[0],
    )
    assert lines[1].startswith(
        "drafter ngram-simple, length adaptive up to 48   verification greedy"
    )
    assert lines[2].startswith("/help   ctrl-j new line")
    assert lines[3:5] == [f"› {COUNT}", COUNTED]
    assert re.fullmatch(r"42 tokens · [\d,.]+ tok/s · .*first [\d.]+ s · context \d %", lines[5])
    assert terminal.bracketed_paste
    assert not terminal.echo
    terminal.send(CTRL_D)
    assert terminal.wait_exit() == 0
    assert [line for line in terminal.lines() if line][:6] == lines[:6]
    assert len([line for line in terminal.lines() if line]) == 6, terminal.text()
    assert (terminal.echo, terminal.cursor_visible, terminal.bracketed_paste) == (True, True, False)
    [turn] = saved(user_folders)["turns"]
    assert (turn["message"], turn["answer"]) == (COUNT, COUNTED)


def test_drafts_of_a_draft_model_are_counted(start: Start, zoo: Path) -> None:
    draft = str(zoo / "draft-simple.gguf")
    terminal = start("-md", draft, "--no-spec-adaptive", columns=100, rows=30)
    terminal.send(FOX + ENTER)
    terminal.wait_for("mean length")
    text = terminal.text()
    counted = re.search(r"acceptance (0\.\d\d) \((\d+) of (\d+)\)", text)
    assert counted, text
    rate, accepted, drafted = float(counted[1]), int(counted[2]), int(counted[3])
    assert 10 < accepted <= drafted
    assert rate == pytest.approx(accepted / drafted, abs=0.005)


def test_the_same_text_as_without_a_terminal(start: Start, zoo: Path, user_folders: Path) -> None:
    flags = ("-m", str(zoo / "target-llama.gguf"), "-t", "1", "--temp", "0")
    alone = outrider("run", *flags, FOX, "--no-stdin")
    terminal = start("-p", FOX, ready="tok/s")
    wait_prompt(terminal, 2)
    assert f"› {FOX}" in terminal.text()
    assert saved(user_folders)["turns"][0]["answer"] == alone.stdout.decode().rstrip("\n")


def test_ctrl_c_stops_an_answer_and_keeps_it(start: Start, user_folders: Path) -> None:
    terminal = start(*ENDLESS)
    terminal.send(FOX + ENTER)
    terminal.wait_for("Once upon a time")
    assert not terminal.echo
    terminal.send(CTRL_C + CTRL_C + CTRL_C)
    terminal.wait_for("stopped at ")
    wait_prompt(terminal, 2)
    terminal.send("/help" + ENTER)
    terminal.wait_for("//text")
    terminal.send(CTRL_D)
    assert terminal.wait_exit() == 0
    [turn] = saved(user_folders)["turns"]
    assert turn["finish_reason"] == "cancelled"
    words = " ".join(str(turn["answer"]).split())
    shown = " ".join(" ".join(terminal.lines()).split())
    assert words.startswith("Once upon a time")
    assert words[:2000] in shown


def test_a_signal_stops_an_answer_too(start: Start) -> None:
    terminal = start(*ENDLESS)
    terminal.send(FOX + ENTER)
    terminal.wait_for("Once upon a time")
    os.kill(terminal.pid, signal.SIGINT)
    terminal.wait_for("stopped at ")


def test_keys_typed_during_an_answer_wait_for_the_prompt(start: Start, user_folders: Path) -> None:
    terminal = start(*ENDLESS, columns=100, rows=30)
    terminal.send(FOX + ENTER)
    terminal.wait_for("Once upon a time")
    terminal.send("typed " + paste("/exit\nahead") + ENTER)
    terminal.wait_for("next › typed /exit ahead, sent when this answer ends")
    terminal.send(CTRL_C)
    terminal.wait_for("stopped at ")
    terminal.wait_for("› typed /exit")
    assert "next ›" not in terminal.text()
    assert len(saved(user_folders)["turns"]) == 1  # stopped: nothing was sent
    terminal.send(ENTER)
    terminal.wait_for("first token 0.")  # before it a stop would give the message back
    terminal.send(CTRL_C)
    terminal.wait_for("stopped at ", count=2)
    wait_prompt(terminal, 3)
    assert saved(user_folders)["turns"][1]["message"] == "typed /exit\nahead"


def test_a_message_queued_during_an_answer_is_sent_when_it_ends(
    start: Start, user_folders: Path
) -> None:
    terminal = start("--ignore-eos", "-n", "3000", "-c", "65536")
    terminal.send(FOX + ENTER)
    terminal.wait_for("Once upon a time")
    terminal.send("/system be brief" + ENTER + "/stats" + ENTER)
    terminal.wait_for("note: system message set")
    terminal.wait_for("session  1 turn  3,000 tokens")


def test_a_paste_of_several_lines_is_one_message(start: Start, user_folders: Path) -> None:
    terminal = start()
    terminal.send(paste("/exit\r\nHello!\rList three colours.\n"))
    terminal.wait_for("List three colours.")
    terminal.send(ENTER)
    wait_prompt(terminal, 2)
    [turn] = saved(user_folders)["turns"]
    assert turn["message"] == "/exit\nHello!\nList three colours.\n"


def test_killed_at_once_only_the_turn_in_progress_is_lost(start: Start, user_folders: Path) -> None:
    terminal = start("-n", "9000", "-c", "65536")
    terminal.send(COUNT + ENTER)
    terminal.wait_for("tok/s")
    terminal.send("/set ignore_eos=true" + ENTER)
    terminal.wait_for("ignore_eos=true", count=2)
    terminal.send(FOX + ENTER)
    terminal.wait_for("Once upon a time")
    os.kill(terminal.pid, signal.SIGKILL)
    assert terminal.wait_exit() == -signal.SIGKILL
    [turn] = saved(user_folders)["turns"]
    assert turn["answer"] == COUNTED
    history = (user_folders / "state" / "outrider" / "history").read_text()
    assert f"+{FOX}" in history


def test_terminated_it_gives_the_terminal_back(start: Start) -> None:
    for when in ("at the prompt", "in an answer"):
        terminal = start(*ENDLESS)
        if when == "in an answer":
            terminal.send(FOX + ENTER)
            terminal.wait_for("Once upon a time")
        os.kill(terminal.pid, signal.SIGTERM)
        assert terminal.wait_exit() == 143
        modes = (terminal.echo, terminal.cursor_visible, terminal.bracketed_paste)
        assert modes == (True, True, False), when


def test_history_comes_back_in_the_next_chat(start: Start) -> None:
    first = start()
    first.send("precious" + CTRL_C)
    first.wait_for("line cleared, up brings it back")
    first.send(CTRL_D)
    first.wait_exit()
    second = start()
    second.send(UP)
    second.wait_for("› precious")


def test_the_menu_describes_commands(start: Start) -> None:
    terminal = start()
    terminal.send("/sa")
    terminal.wait_for("save under a name")
    terminal.send("\t" + " holiday" + ENTER)
    terminal.wait_for("note: saved to")
    terminal.wait(lambda: "holiday.json" in "".join(terminal.lines()), "the file")


def test_a_full_context_is_said_and_the_next_turn_makes_room(
    start: Start, user_folders: Path
) -> None:
    terminal = start("-c", "256")
    terminal.send("/set ignore_eos=true" + ENTER + FOX + ENTER)
    terminal.wait_for("context full after")
    terminal.send("/set ignore_eos=false" + ENTER + COUNT + ENTER)
    terminal.wait_for("note: the oldest 1 turn left the context to make room")
    terminal.wait_for(COUNTED)
    wait_prompt(terminal, 5)
    assert len(saved(user_folders)["turns"]) == 2


def test_a_message_that_does_not_fit_is_one_line_and_back_in_the_input(start: Start) -> None:
    terminal = start("-c", "256")
    terminal.send("word " * 200 + "end" + ENTER)
    terminal.wait_for("error: the prompt does not fit the context: needs ")
    terminal.wait_for("word end", count=2)


def test_another_profile_without_leaving(start: Start, zoo: Path, tmp_path: Path) -> None:
    good, bad = tmp_path / "other.yaml", tmp_path / "bad.yaml"
    good.write_text(
        f"schema: 1\nextends: base\ntarget:\n  model: {{source: {zoo}/target-llama.gguf}}\n"
        "  ctx_size: 512\n  threads: 1\ndrafters:\n- {kind: ngram-simple}\nsampling: {temp: 0}\n"
    )
    bad.write_text(good.read_text().replace("target-llama", "missing"))
    terminal = start(columns=200)
    terminal.send(COUNT + ENTER)
    terminal.wait_for(COUNTED)
    terminal.send(f"/profile {bad}" + ENTER)
    terminal.wait_for("error: ")
    terminal.send(f"/profile {good}" + ENTER)
    terminal.wait_for("context 512")
    terminal.wait_for("drafter ngram-simple")
    terminal.send("/clear" + ENTER + COUNT + ENTER)
    terminal.wait_for(COUNTED, count=2)


def test_a_folder_that_cannot_be_written_is_one_note(start: Start, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    nowhere = str(tmp_path / "file")
    terminal = start(env={"XDG_DATA_HOME": nowhere, "XDG_STATE_HOME": nowhere}, columns=200)
    for count in (1, 2):
        terminal.send(COUNT + ENTER)
        wait_prompt(terminal, count + 1)
    terminal.send(CTRL_D)
    terminal.wait_exit()
    assert terminal.text().count("note: not saved") == 1
    assert terminal.text().count("note: history not kept") == 1


def test_every_letter_is_there_once_when_the_terminal_grows(
    start: Start, user_folders: Path
) -> None:
    # growing only: the emulator cuts what no longer fits
    terminal = start(*ENDLESS, columns=44, rows=14)
    terminal.send(FOX + ENTER)
    terminal.wait_for("Once upon a time")
    for columns, rows in ((60, 18), (80, 24), (100, 30)):
        terminal.resize(columns, rows)
        wait_output(terminal, 2000)
    terminal.send(CTRL_C)
    terminal.wait_for("stopped at ")
    wait_prompt(terminal, 2)
    shown = terminal.text().partition(FOX)[2].partition("stopped at ")[0]
    answer = str(saved(user_folders)["turns"][0]["answer"])
    assert len(answer) > 44 * 14  # more than a screen of it
    assert re.findall("[A-Za-z]", shown) == re.findall("[A-Za-z]", answer)


def test_a_dumb_terminal_gets_plain_text(start: Start) -> None:
    terminal = start(env={"TERM": "dumb"}, ready=">")
    terminal.send(COUNT + ENTER)
    terminal.wait_for(COUNTED)
    terminal.send("/stats" + ENTER)
    terminal.wait_for("session  1 turn")
    terminal.send(CTRL_D)
    assert terminal.wait_exit() == 0
    assert "\x1b" not in terminal.raw
    assert terminal.echo


def test_a_dumb_terminal_does_not_echo_into_an_answer(start: Start) -> None:
    terminal = start(*ENDLESS, env={"TERM": "dumb"}, ready=">")
    terminal.send(FOX + ENTER)
    terminal.wait_for("Once upon a time")
    terminal.send("/help" + ENTER)
    terminal.send(CTRL_C)
    terminal.wait_for("//text sends")  # the line typed ahead was read afterwards
    assert "/help" not in terminal.text().partition("Once upon")[2].partition("> ")[0]


def test_no_color_means_no_colour(start: Start) -> None:
    terminal = start("--spec-type", "ngram-simple", env={"NO_COLOR": "1"}, columns=100, rows=30)
    terminal.send(COUNT + ENTER)
    terminal.wait_for(COUNTED)
    terminal.send("/nonsense" + ENTER)
    terminal.wait_for("error: ")
    codes = {c for found in re.findall(r"\x1b\[([\d;]*)m", terminal.raw) for c in found.split(";")}
    assert codes <= {"", "0", "1", "2", "7"}, codes


def test_ascii_terminals_get_ascii(start: Start) -> None:
    terminal = start(env={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}, ready=">")
    terminal.send(COUNT + ENTER)
    terminal.wait_for("tok/s")
    assert terminal.raw.isascii()


def test_ctrl_c_while_loading_leaves_with_130(zoo: Path) -> None:
    # a pipe nobody writes to keeps the load waiting, whatever the machine's speed
    os.mkfifo("template.jinja")
    model = str(zoo / "target-llama.gguf")
    command = [*COMMAND, "chat", "-m", model, "--chat-template-file", "template.jinja"]
    with Terminal(command) as terminal:
        terminal.wait(lambda: terminal.bracketed_paste, "the chat took the terminal")
        terminal.send(CTRL_C)
        assert terminal.wait_exit() == 130
        assert terminal.echo
        assert terminal.text() == ""


def test_without_a_terminal_it_points_to_run(zoo: Path) -> None:
    done = outrider("chat", "-m", str(zoo / "target-llama.gguf"), stdin=b"Hello!\n")
    assert done.returncode == 2
    assert done.stdout == b""
    [line] = done.stderr.decode().splitlines()
    assert "outrider run" in line


def test_a_model_without_a_chat_template_names_the_flag(zoo: Path, tmp_path: Path) -> None:
    model = tmp_path / "bare.gguf"
    name = b"tokenizer.chat_template"
    model.write_bytes((zoo / "target-llama.gguf").read_bytes().replace(name, name[:-1] + b"x"))
    template = tmp_path / "template.jinja"
    template.write_text("{% for m in messages %}{{ m.content }}\n{% endfor %}")
    with Terminal([*COMMAND, "chat", "-m", str(model)], columns=200) as terminal:
        assert terminal.wait_exit() == 2
        [line] = [line for line in terminal.lines() if line]
        assert line.startswith("outrider: error: ")
        assert "--chat-template-file" in line
    command = [*COMMAND, "chat", "-m", str(model), "-t", "1", "--chat-template-file", str(template)]
    with Terminal(command, columns=200) as terminal:
        terminal.wait_for("›")


def test_help_needs_none_of_the_chat() -> None:
    code = "import outrider.cli.app, sys; print([m for m in sys.modules if 'prompt_toolkit' in m])"
    done = os.popen(f'{sys.executable} -c "{code}"').read()
    assert done.strip() == "[]"


THINKING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}{# </think> #}"
)


def test_a_thought_is_folded_and_ctrl_t_opens_it(start: Start, tmp_path: Path) -> None:
    template = tmp_path / "thinking.jinja"
    template.write_text(THINKING)
    terminal = start(
        *("--chat-template-file", str(template), "--reasoning-budget", "3000"), *ENDLESS
    )
    terminal.send(FOX + ENTER)
    terminal.wait_for("ctrl-t opens")
    assert "── thinking ──" not in terminal.text()
    terminal.send("\x14")
    terminal.wait_for("ctrl-t folds")
    terminal.send(CTRL_C)
    terminal.wait_for("stopped while thinking, the message is in the input")
    terminal.wait_for(f"› {FOX}", count=2)


def test_a_synthetic_chat_says_so_all_the_time(start: Start) -> None:
    flags = ("--spec-type", "filler", "--spec-synth-len", "2.5", "-n", "2000", *ENDLESS)
    terminal = start(*flags)
    terminal.wait_for("SYNTHETIC acceptance: coins decide, the text is not the model's")
    terminal.wait_for("not the model's text")  # the toolbar
    terminal.send(FOX + ENTER)
    terminal.wait_for("SYNTHETIC mean length 2.50: this is not the model's text")
    terminal.send(CTRL_C)
    wait_prompt(terminal, 2)
