"""Terminals with little: few columns, no colour, no cursor, an encoding without the glyphs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import pytest
from tools.program import outrider
from tools.scripted_chat import scripted_chat
from tools.terminal import CTRL_C, CTRL_D, ENTER, Terminal
from tools.zoo_chat import ENDLESS, saved_turns, zoo_chat

from outrider.cli.chat.running_models import RunningModels
from outrider.cli.glyphs import ASCII, UNICODE
from outrider.cli.screen.status_lines import banner, toolbar

COUNT = "Count from 5 to 16."
COUNTED = "5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16."
DRAFTING = ("--spec-type", "ngram-simple")
CP1252 = {"PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}
NO_UNICODE = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
TEXT = "na\u00efve \u2013 \u65e5\u672c \U0001f642."
GRAMMAR = f'root ::= "{TEXT}"'


def wait_rows(terminal: Terminal, patterns: list[str]) -> None:
    """Wait until the rows that are not blank, from the banner on, match the patterns in turn."""

    def are_there() -> bool:
        rows = [line for line in terminal.lines() if line]
        return len(rows) == len(patterns) and all(map(re.fullmatch, patterns, rows))

    terminal.wait(are_there, "\n".join(patterns))


def wait_row(terminal: Terminal, form: re.Pattern[str]) -> None:
    """Wait until a row of the screen has the form."""
    terminal.wait(lambda: any(map(form.fullmatch, terminal.screen())), form.pattern)


def answer(terminal: Terminal, prompt: str) -> None:
    """Ask, and wait for the summary and the next prompt."""
    terminal.wait_for(prompt)
    terminal.send(COUNT + ENTER)
    terminal.wait_for(f"\n{prompt} {COUNT}")
    terminal.wait(lambda: terminal.text().count(f"\n{prompt}") >= 2, "the next prompt")


def test_forty_columns(zoo: Path) -> None:
    with zoo_chat(zoo, *DRAFTING, columns=40, rows=12) as terminal:
        answer(terminal, "›")
        wait_rows(
            terminal,
            [
                r"outrider \S+  zoo target-llama",
                r"ngram-simple  greedy  context 4,096",
                r"/help  ctrl-c stop  ctrl-d leave",
                f"› {re.escape(COUNT)}",
                r"5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,",
                r"16\.",
                r"42 tok · [\d,.]+ tok/s( · acc (\d?\.\d\d|–) len [\d.–]+| · no drafts)?",
                "›",
                r"ngram-simple greedy +\d+/4,096",
            ],
        )


def long_names() -> RunningModels:
    models = scripted_chat(model=Path(__file__)).chat.models
    engine = cast(Any, models.engine)
    engine.model_name = "A-Model-With-A-Very-Long-Name-For-This-Terminal Q4_1"
    engine.drafter_names = ("ngram-mod", "draft-eagle3")
    return models


@pytest.mark.parametrize("columns", [36, 40, 59])
def test_a_narrow_banner_shortens_names_and_keeps_the_rest(columns: int) -> None:
    program, drafting, leaving = banner(long_names(), columns, UNICODE)
    assert re.fullmatch(r"outrider [\d.]+  A-Model-\S+…", program)
    assert re.fullmatch(r"ngram-mod, d(raft-eagle3|\S*…)  match  context 4,096", drafting)
    assert leaving == "/help  ctrl-c stop  ctrl-d leave"
    assert all(len(row) < columns for row in (program, drafting, leaving))
    assert "\n".join(banner(long_names(), columns, ASCII)).isascii()


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_banner_keeps_the_context_of_a_model_with_a_long_name(columns: int) -> None:
    program = banner(long_names(), columns, UNICODE)[0]
    assert re.match(r"outrider [\d.]+   A-Model-.*   context 4,096(   |$)", program)
    assert len(program) < columns
    assert ("Q4_1" in program) is (columns > 80)
    assert ("…" in program) is (columns < 120)


@pytest.mark.parametrize("width", [29, 39, 58, 70])
def test_a_toolbar_keeps_the_context(width: int) -> None:
    row = "".join(text for text, _ in toolbar(long_names(), "", width, UNICODE))
    assert len(row) == width
    assert re.search(r"\S +0 ?/ ?4,096(  0 %)?$", row)


@pytest.mark.parametrize("width", [39, 79])
@pytest.mark.parametrize(
    ("used", "typed", "num_attached", "words", "role"),
    [
        (3276, "", 0, "3,276", "dim"),
        (3277, "", 0, "3,277", "warn"),
        (0, "abcdabcd", 0, "~2", "dim"),
        (100, "abcd", 1102, "~1,203", "dim"),
        (0, "", 1102, "~1,102", "dim"),
        (0, "abcd" * 3277, 0, "~3,277", "warn"),
        (0, "", 5000, "~5,000", "warn"),
    ],
)
def test_a_toolbar_counts_what_will_be_sent_and_warns(
    width: int, used: int, typed: str, num_attached: int, words: str, role: str
) -> None:
    scripted = scripted_chat(model=Path(__file__), n_ctx=4096)
    scripted.session.context_used = used
    row = toolbar(scripted.chat.models, typed, width, UNICODE, num_attached=num_attached)
    right = next(text for text, its_role in row[1:] if its_role == role)
    assert re.match(rf"{words} ?/ ?4,096", right)
    assert row[0][1] == "dim"


@pytest.mark.parametrize(("columns", "leaves"), [(65, "ctrl-d leaves"), (64, "ctrl-d leave")])
def test_a_banner_always_says_how_to_leave(columns: int, leaves: str) -> None:
    assert banner(long_names(), columns, UNICODE)[2].endswith(f" {leaves}")


def test_a_banner_of_few_columns_keeps_the_drafter_before_the_context() -> None:
    assert banner(long_names(), 36, UNICODE)[1].endswith("match  context 4,096")
    assert banner(long_names(), 27, UNICODE)[1] == "ngram-mod, draft-e…  match"


@pytest.mark.parametrize("width", [39, 79])
def test_a_toolbar_says_that_acceptance_is_synthetic(width: int) -> None:
    models = long_names()
    cast(Any, models.engine).resolve_rule = lambda sampling: "synthetic"
    row = toolbar(models, "", width, UNICODE)
    words, role = row[0]
    assert (words.startswith("SYNTHETIC, not the model's text"), role) == (True, "warn")
    assert len("".join(text for text, _ in row)) <= width


def test_the_panel_in_forty_columns(zoo: Path) -> None:
    with zoo_chat(zoo, *DRAFTING, *ENDLESS, columns=40, rows=12) as terminal:
        terminal.wait_for("›")
        terminal.send("Tell me a story about a fox." + ENTER)
        form = re.compile(r" +[\d.]+ tok/s( acc +(1?\.\d+|–) len +[\d.–]+ +ctx \d+%|   .+)")
        wait_row(terminal, form)
        terminal.send(CTRL_C)
        terminal.wait_for("stopped ")
        assert not any(map(form.fullmatch, terminal.lines()))


def test_linux_console_gets_ascii_glyphs(zoo: Path) -> None:
    with zoo_chat(zoo, *DRAFTING, *ENDLESS, env={"TERM": "linux"}, columns=80, rows=24) as terminal:
        terminal.wait_for(">")
        terminal.send("Tell me a story about a fox." + ENTER)
        speed = re.compile(r" +[\d.]+ tok/s  mean +[\d.]+  [_.:=+*#-]{3,} .*")
        context = re.compile(r" ngram-simple \| greedy +context [\d,]+/65,536 \[#*-*\] \d+ % .*")
        for form in (speed, context):
            wait_row(terminal, form)
        terminal.send(CTRL_C)
        terminal.wait_for("stopped at ")
        terminal.wait_for("base | ngram-simple")
        assert terminal.raw.isascii()


def is_after_the_help(terminal: Terminal) -> bool:
    """Whether the third prompt is there, down to the last column of its toolbar."""
    return terminal.text().count("\n›") == 3 and terminal.text().endswith(" %")


def test_without_colour_the_text_is_the_same(zoo: Path) -> None:
    screens = []
    for flags, env in ((), {}), ((), {"NO_COLOR": "1"}), (("--no-color",), {}):
        with zoo_chat(zoo, *flags, env=env) as terminal:
            answer(terminal, "›")
            terminal.send("/help" + ENTER)
            terminal.wait(lambda: is_after_the_help(terminal), "the prompt after the help")
            screens.append(re.sub(r"[\d.,]+ (tok/)?s\b", "N", terminal.text()))
            assert bool(re.search(r"\x1b\[(\d+;)*[34]8;", terminal.raw)) is (len(screens) == 1)
    assert screens[0] == screens[1] == screens[2]


def test_a_dumb_terminal_gets_a_banner_and_plain_text(zoo: Path) -> None:
    with zoo_chat(zoo, *DRAFTING, env={"TERM": "dumb"}) as terminal:
        answer(terminal, ">")
        terminal.send(CTRL_D)
        assert terminal.wait_exit() == 0
        wait_rows(
            terminal,
            [
                r"outrider \S+   zoo target-llama   context 4,096   1 thread, CPU   loaded in .* s",
                r"drafter ngram-simple.*",
                r"/help .*",
                f"> {re.escape(COUNT)}",
                re.escape(COUNTED),
                r">.*",
            ],
        )
        assert "\x1b" not in terminal.raw


@pytest.mark.parametrize("env", [CP1252, NO_UNICODE], ids=["cp1252", "ascii"])
def test_an_encoding_that_lacks_the_glyphs_in_chat(
    zoo: Path, user_folders: Path, env: dict[str, str]
) -> None:
    with zoo_chat(zoo, *DRAFTING, "--grammar", GRAMMAR, env=env) as terminal:
        terminal.wait_for(">")
        terminal.send(COUNT + ENTER)
        terminal.wait_for("tok/s |")
        for command in ("/stats", "/spec", "/help"):
            terminal.send(command + ENTER)
        terminal.wait_for("//text")
        terminal.send("/s\t")
        terminal.send(CTRL_C + CTRL_D)
        assert terminal.wait_exit() == 0
        [turn] = saved_turns(user_folders)
        assert (turn["message"], turn["answer"]) == (COUNT, TEXT)
        shown = "na\ufffdve \ufffd ?? ?." if env is CP1252 else "na?ve ? ?? ?."
        assert shown in terminal.lines()
        # no glyph of the program's own is beyond ASCII: only the answer and the message are
        others = [line for line in terminal.lines() if line != shown and not line.startswith(">")]
        assert "\n".join(others).isascii()


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "utf-8"])
def test_an_encoding_that_lacks_the_glyphs_in_run(zoo: Path, encoding: str) -> None:
    model = str(zoo / "target-llama.gguf")
    done = outrider(
        *("run", "-m", model, "--stats", "--grammar", GRAMMAR, "--no-stdin", "Hello!"),
        env={"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"},
    )
    assert done.returncode == 0
    assert done.stdout == TEXT.encode(encoding, "replace") + b"\n"
    separator = b"|" if encoding != "utf-8" else "·".encode()
    assert separator in done.stderr
