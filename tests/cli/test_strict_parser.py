from __future__ import annotations

from typing import Annotated, Any

import pytest
import typer
from typer.main import get_command

from outrider.cli.errors import UsageError
from outrider.cli.strict_parser import StrictCommand, StrictGroup

Seen = dict[str, Any]


class ChatGroup(StrictGroup):
    default_command = "chat"


@pytest.fixture
def seen() -> Seen:
    return {}


@pytest.fixture
def run(seen: Seen) -> Any:
    """Run a small app with the arguments given; the command puts what it got into ``seen``."""
    app = typer.Typer(cls=ChatGroup, add_completion=False)

    @app.callback()
    def root(version: Annotated[bool, typer.Option("--version")] = False) -> None:
        seen["version"] = version

    @app.command(cls=StrictCommand)
    def chat(
        model: Annotated[str | None, typer.Option("-m", "--model")] = None,
        adaptive: Annotated[bool | None, typer.Option("--adaptive/--no-adaptive")] = None,
    ) -> None:
        seen.update(command="chat", model=model, adaptive=adaptive)

    @app.command("run", cls=StrictCommand)
    def command(
        ctx: typer.Context,
        prompt: Annotated[str | None, typer.Argument()] = None,
        model: Annotated[str | None, typer.Option("-m", "--model")] = None,
        draft: Annotated[str | None, typer.Option("-md", "--model-draft")] = None,
        file: Annotated[str | None, typer.Option("-f", "--file")] = None,
        flash: Annotated[str | None, typer.Option("-fa", "--flash-attn")] = None,
        predict: Annotated[str | None, typer.Option("-n", "--predict")] = None,
        stop: Annotated[list[str] | None, typer.Option("-r", "--reverse-prompt")] = None,
        adaptive: Annotated[bool | None, typer.Option("--adaptive/--no-adaptive")] = None,
        verbose: Annotated[bool, typer.Option("-v", "--verbose")] = False,
    ) -> None:
        given = {name: value for name, value in ctx.params.items() if value not in (None, [], ())}
        seen.update(given, command=ctx.info_name)

    click_command = get_command(app)
    return lambda *args: click_command.main([*args], prog_name="prog", standalone_mode=False)


@pytest.mark.parametrize(
    ("args", "wanted"),
    [
        (["-m", "x.gguf", "hi"], {"model": "x.gguf", "prompt": "hi"}),
        (["-md", "x.gguf"], {"draft": "x.gguf"}),
        (["hi", "-fa", "on", "-f", "it"], {"prompt": "hi", "flash": "on", "file": "it"}),
        (["-n", "-1"], {"predict": "-1"}),
        (["--predict=-1"], {"predict": "-1"}),
        (["--model_draft", "a_b"], {"draft": "a_b"}),
        (["--model_draft=a_b"], {"draft": "a_b"}),
        (["-r", "a", "-r", "b"], {"stop": ["a", "b"]}),
        (["--no-adaptive"], {"adaptive": False}),
        (["--no_adaptive", "--adaptive"], {"adaptive": True}),
        (["--", "-n is a flag"], {"prompt": "-n is a flag"}),
        (["-m", "-", "-"], {"model": "-", "prompt": "-"}),
        (["--reverse-prompt=-n"], {"stop": ["-n"]}),
        (["-m", "- a b"], {"model": "- a b"}),
        (["--model="], {"model": ""}),
    ],
)
def test_what_is_given_arrives(run: Any, seen: Seen, args: list[str], wanted: Seen) -> None:
    run("run", *args)
    assert seen == {"version": False, "verbose": False, "command": "run", **wanted}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["-mm", "x", "hi"], "no option -mm; did you mean -m/--model or"),
        (["-fit", "on"], "no option -fit; did you mean -f/--file or"),
        (["-vv"], "no option -vv; did you mean -v/--verbose?"),
        (["-n5"], "no option -n5; did you mean -n/--predict?"),
        (["-fa=on"], "no option -fa; did you mean"),
        (["-model", "x"], "no option -model; did you mean -m/--model"),
        (["--modell", "x"], "no option --modell; did you mean -m/--model"),
        (["--mod", "x"], "no option --mod"),
        (["-5"], "no option -5; --help lists them (text that begins with a dash goes after --)"),
        (["-n"], "option -n needs a value"),
        (["-m", "-n", "5"], "option -m needs a value, but -n follows"),
        (["--verbose=1"], "option --verbose takes no value, got '1'"),
        (["say", "hi"], "unexpected 'hi'; a text of several words goes in quotes"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    run: Any, seen: Seen, args: list[str], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        run("run", *args)
    assert caught.value.exit_code == 2
    assert str(caught.value).startswith(message)
    assert "command" not in seen


def test_without_a_command_the_default_one_runs(run: Any, seen: Seen) -> None:
    run()
    assert seen["command"] == "chat"
    run("-m", "x", "--no-adaptive")
    assert (seen["command"], seen["model"], seen["adaptive"]) == ("chat", "x", False)


def test_the_groups_own_option_is_not_the_default_commands(run: Any, seen: Seen) -> None:
    run("--version", "run", "hi")
    assert (seen["command"], seen["version"]) == ("run", True)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["rum", "hi"], "no command 'rum'; did you mean run?"),
        (["hello there"], "no command 'hello there'; chat, run (a prompt: prog run \"...\")"),
        (["-m", "x", "run", "hi"], "options go after the command: prog run ..."),
        (["-mm", "x"], "no option -mm; did you mean -m/--model"),
    ],
)
def test_a_wrong_command_is_explained(run: Any, args: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        run(*args)
    assert str(caught.value).startswith(message)


def test_a_group_without_a_default_names_its_commands() -> None:
    app = typer.Typer(cls=StrictGroup, add_completion=False)
    app.command("list", cls=StrictCommand)(lambda: None)
    app.command("pull", cls=StrictCommand)(lambda: None)
    with pytest.raises(UsageError, match="prog needs a command: list, pull"):
        get_command(app).main([], prog_name="prog", standalone_mode=False)
