from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import types
from collections import defaultdict
from pathlib import Path

import pytest
from tools.program import environment, outrider, outrider_here

from outrider.cli.app import command
from outrider.cli.command_reference import reference
from outrider.cli.program import run_program
from outrider.profiles.fields import FIELDS
from outrider.profiles.schema import Profile

HEAVY = {"llama_cpp", "numpy", "jinja2", "huggingface_hub", "pydantic", "yaml", "rich"}
DOCS = Path(__file__).parents[2] / "docs" / "commands.md"
PATHS = [
    [],
    *([name] for name in command().commands),
    *([name, sub] for name in ("profiles", "models") for sub in command().commands[name].commands),
]

Chats = list[tuple[Profile, dict[str, object], str | None, bool]]


@pytest.fixture
def chats(monkeypatch: pytest.MonkeyPatch) -> Chats:
    """What the chat was started with; it ends at once with exit code 7."""
    started: Chats = []

    def chat(
        profile: Profile,
        overrides: dict[str, object],
        *,
        first_prompt: str | None,
        verbose: bool,
        session: str | None,
        is_continued: bool,
    ) -> int:
        started.append((profile, overrides, first_prompt, verbose))
        return 7

    module = types.ModuleType("outrider.cli.chat.chat")
    module.chat = chat  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "outrider.cli.chat.chat", module)
    return started


@pytest.mark.parametrize(
    ("args", "heavy"),
    [
        (["--help"], HEAVY),
        (["--version"], HEAVY),
        # typer checks the group's own options by pydantic before it comes to a command
        (["run", "-h"], HEAVY - {"pydantic"}),
        (["chat", "--help"], HEAVY - {"pydantic"}),
    ],
)
def test_help_imports_nothing_heavy(args: list[str], heavy: set[str]) -> None:
    code = (
        f"import sys; sys.argv[1:] = {args!r}; from outrider.cli.__main__ import main; main();"
        f" print('HEAVY', [name for name in {sorted(heavy)!r} if name in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True
    )
    assert run.stdout.splitlines()[-1] == "HEAVY []"


def test_version() -> None:
    run = outrider("--version")
    version = importlib.metadata.version("outrider")
    assert (run.returncode, run.stdout.decode()) == (0, f"outrider {version}\n")


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_every_command_has_help_for_80_columns(
    path: list[str], flag: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run_program([*path, flag]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"Usage: outrider {' '.join([*path, '['])}")
    assert max(len(line) for line in out.splitlines()) <= 80
    assert "…" not in out
    assert err == ""


def test_help_names_every_flag_under_its_panel(capsys: pytest.CaptureFixture[str]) -> None:
    sections: defaultdict[str, str] = defaultdict(str)
    for name in ("chat", "run"):
        run_program([name, "--help"])
        for section in capsys.readouterr().out.split("\n\n")[2:]:
            panel, _, rows = section.partition(":\n")
            sections[panel] += rows
    for field in FIELDS:
        for flag in field.flags:
            assert re.search(rf"(^|\s){flag}[\s,]", sections[field.panel]), flag


def test_every_command_can_be_told_to_use_no_colour() -> None:
    pages = reference().split("\n## ")[1:-1]
    commands = [page for page in pages if "COMMAND [ARGS]" not in page]
    assert len(commands) > 15
    for page in commands:
        assert len(re.findall(r"^  --no-color +bold", page, re.MULTILINE)) == 1, page


def test_no_color_is_no_color(monkeypatch: pytest.MonkeyPatch, zoo: Path) -> None:
    monkeypatch.setenv("NO_COLOR", "")  # so that it is put back
    model = str(zoo / "target-llama.gguf")
    assert run_program(["models", "inspect", model]) == 0
    assert os.environ["NO_COLOR"] == ""
    assert run_program(["models", "inspect", "--no-color", model]) == 0
    assert os.environ["NO_COLOR"] == "1"


def test_the_reference_in_the_docs_is_current() -> None:
    made = "python -m outrider.cli.command_reference > docs/commands.md"
    assert DOCS.read_text(encoding="utf-8") == reference(), f"make it again: {made}"


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["run", "-mm", "x", "hi"], "no option -mm; did you mean -m/--model or"),
        (["run", "-fit", "on"], "no option -fit; did you mean -f/--file or"),
        (["-fit", "on"], "no option -fit; did you mean -f/--file or"),
        (["run", "--tmep", "0", "hi"], "no option --tmep; did you mean --temp/--temperature"),
        (["rum", "hi"], "no command 'rum'; did you mean run?"),
        (["profiles", "lits"], "no command 'lits'; did you mean list?"),
        (["models"], "outrider models needs a command: list, pull,"),
        (["run", "--temp", "9", "hi"], "--temp/--temperature: '9': allowed: a number from 0 to 5"),
        (["run", "-n", "x", "hi"], "-n/--predict: 'x': allowed: a whole number from -1 to"),
        (["run", "-fa", "maybe", "hi"], "-fa/--flash-attn: 'maybe': allowed: auto, on, off"),
        (["run", "--spec-type", "ngram", "hi"], "--spec-type: 'ngram': allowed: none, "),
        (["run", "-P", "smolm2", "hi"], "no profile 'smolm2'; did you mean 'smollm2'?"),
        (["run", "-P", "base", "hi"], "profile base names no model: give one with -m/--model"),
        (["run", "-m", "none.gguf", "hi"], "none.gguf: no such file"),
        (["run", "-f", "none.txt"], "-f/--file none.txt: No such file or directory"),
        (["run", "-sysf", "none.txt", "hi"], "-sysf/--system-prompt-file none.txt: No such"),
        (["run", "-sys", "a", "-sysf", "b", "hi"], "the system message is given twice"),
        (["run", "say", "hi"], "unexpected 'hi'; a text of several words goes in quotes"),
        (["-m", "x.gguf", "run", "hi"], "options go after the command: outrider run ..."),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(args: list[str], line: str) -> None:
    run = outrider_here(*args)
    assert run.returncode == 2
    assert run.stdout == b""
    [error] = run.stderr.decode().splitlines()
    assert error.startswith(f"outrider: error: {line}")


def test_without_a_command_it_is_the_chat(chats: Chats) -> None:
    assert run_program([]) == 7
    assert run_program(["--temp", "0.5", "-v", "-p", "hi"]) == 7
    (default, none, no_prompt, quiet), (profile, overrides, prompt, verbose) = chats
    assert (default.name, none, no_prompt, quiet) == ("smollm2", {}, None, False)
    assert (overrides, prompt, verbose) == ({"sampling.temp": 0.5}, "hi", True)
    assert profile.sampling.temp == 0.5


def test_a_model_file_alone_runs_without_the_default_profiles_drafters(chats: Chats) -> None:
    run_program(["-m", "x.gguf"])
    run_program(["-m", "x.gguf", "-P", "smollm2"])
    bare, named = (start[0] for start in chats)
    assert bare.name == "base"
    assert bare.drafters == ()
    assert bare.target.model is not None
    assert bare.target.model.texts == ("x.gguf",)
    kinds = [drafter.kind for drafter in named.drafters]
    assert kinds == ["ngram-edit", "draft-eagle3"]


def test_every_flag_wins_over_the_profile(chats: Chats, tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("schema: 1\nextends: smollm2\nsampling: {temp: 0.1, seed: 5, top_k: 7}\n")
    (tmp_path / "system.txt").write_text("Be brief.\n")
    run_program(["-P", str(mine), "--temp", "0", "-s", "-1", "-sysf", str(tmp_path / "system.txt")])
    [(profile, overrides, _, _)] = chats
    assert (profile.sampling.temp, profile.sampling.seed, profile.sampling.top_k) == (0, None, 7)
    assert profile.chat.system == overrides["chat.system"] == "Be brief.\n"


def test_an_unexpected_failure_is_one_line_and_a_traceback_only_with_v(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_args: object) -> None:
        raise RuntimeError("boom\nand more")

    monkeypatch.setattr("outrider.profiles.load.load_profile", broken)
    assert run_program(["run", "hi"]) == 1
    line = "outrider: error: RuntimeError: boom and more; -v shows where (please report it)\n"
    assert capsys.readouterr().err == line
    assert run_program(["run", "hi", "-v"]) == 1
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.endswith(line)


def test_control_characters_in_errors_do_not_reach_the_terminal() -> None:
    run = outrider("run", "-m", "\x1b]0;owned\x07.gguf", "hi")
    assert run.returncode == 2
    assert b"\x1b" not in run.stderr
    assert b"\x07" not in run.stderr
    assert b"owned" in run.stderr


@pytest.mark.parametrize("args", [["--help"], ["profiles", "list"]])
def test_a_reader_that_has_had_enough_is_no_error(args: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as stdout:
        run = outrider(*args, stdout=stdout)
    assert (run.returncode, run.stderr) == (0, b"")
