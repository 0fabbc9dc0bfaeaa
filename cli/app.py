"""The command line: which commands there are and which options they take.

Only parsing happens here. What a command does is imported when it runs, so that help stays
light.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.main import get_command

from outrider.cli.errors import UsageError
from outrider.cli.options import (
    SCREEN_FIELDS,
    ProfileOption,
    VerboseOption,
    path_of,
    takes_fields,
)
from outrider.cli.prompt_source import read_prompt, read_text
from outrider.cli.strict_parser import StrictCommand, StrictGroup
from outrider.profiles.search import default_profile

if TYPE_CHECKING:
    from outrider.profiles.schema import Profile


class RootGroup(StrictGroup):
    """The program: without a command it is the chat."""

    default_command = "chat"


PromptOption = Annotated[
    str | None,
    typer.Option("-p", "--prompt", metavar="TEXT", rich_help_panel="Prompt", help="the prompt"),
]
FileOption = Annotated[
    str | None,
    typer.Option(
        "-f", "--file", metavar="FILE", rich_help_panel="Prompt", help="a prompt, or more of it"
    ),
]
SystemFileOption = Annotated[
    str | None,
    typer.Option(
        "-sysf",
        "--system-prompt-file",
        metavar="FILE",
        rich_help_panel="Prompt",
        help="system message from a file",
    ),
]
app = typer.Typer(
    name="outrider",
    cls=RootGroup,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Without a command, or with options only, it is the chat: outrider -m model.gguf",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"outrider {version('outrider')}")
        raise typer.Exit


@app.callback()
def outrider(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Chat with local language models, with speculative decoding you can watch and trust."""


@app.command(cls=StrictCommand)
@takes_fields(leave_out=("sampling.logprobs", "sampling.post_sampling_probs"))
def chat(
    *,
    prompt: PromptOption = None,
    file: FileOption = None,
    profile: ProfileOption = None,
    system_file: SystemFileOption = None,
    is_continued: Annotated[
        bool,
        typer.Option(
            "--continue", rich_help_panel="Saved chats", help="go on with the newest saved chat"
        ),
    ] = False,
    session: Annotated[
        str | None,
        typer.Option(
            "--session",
            metavar="NAME|PATH",
            rich_help_panel="Saved chats",
            help="go on with this saved chat, or begin one of that name",
        ),
    ] = None,
    verbose: VerboseOption = False,
    overrides: dict[str, object],
) -> int:
    """Chat in the terminal."""
    if is_continued and session is not None:
        raise UsageError("--continue and --session: give one of them, both name the chat to go on")
    chosen = _profile(profile, overrides, system_file)
    given = prompt is not None or file is not None
    first = read_prompt(None, prompt, path_of(file), use_stdin=False) if given else None

    from outrider.cli.chat.chat import chat as run_chat

    return run_chat(
        chosen,
        overrides,
        first_prompt=first,
        verbose=verbose,
        session=session,
        is_continued=is_continued,
    )


@app.command(cls=StrictCommand)
@takes_fields(leave_out=("chat.context_policy", *SCREEN_FIELDS))
def run(
    argument: Annotated[
        str | None, typer.Argument(metavar="PROMPT", show_default=False, help="the prompt")
    ] = None,
    *,
    prompt: PromptOption = None,
    file: FileOption = None,
    no_stdin: Annotated[
        bool,
        typer.Option("--no-stdin", rich_help_panel="Prompt", help="do not read stdin"),
    ] = False,
    raw: Annotated[
        bool,
        typer.Option("--raw", rich_help_panel="Prompt", help="no chat template, no system message"),
    ] = False,
    system_file: SystemFileOption = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", rich_help_panel="Output", help="print one JSON object instead"),
    ] = False,
    stats: Annotated[
        bool,
        typer.Option("--stats", rich_help_panel="Output", help="speed and acceptance on stderr"),
    ] = False,
    show_thinking: Annotated[
        bool,
        typer.Option(
            "--show-thinking", rich_help_panel="Output", help="what the model thinks, on stderr"
        ),
    ] = False,
    profile: ProfileOption = None,
    verbose: VerboseOption = False,
    overrides: dict[str, object],
) -> int:
    """Answer one prompt: the answer on stdout, nothing else.

    The prompt is PROMPT or -p, then -f, then stdin if that is a pipe or a file, with a newline
    between. Text that begins with a dash goes after --.
    """
    chosen = _profile(profile, overrides, system_file)
    text = read_prompt(argument, prompt, path_of(file), use_stdin=not no_stdin, verbatim=raw)

    from outrider.cli.run import OneShot, run_once

    return run_once(
        chosen,
        overrides,
        OneShot(
            prompt=text,
            raw=raw,
            as_json=as_json,
            stats=stats,
            show_thinking=show_thinking,
            verbose=verbose,
        ),
    )


@app.command(cls=StrictCommand)
@takes_fields(leave_out=("chat.context_policy", *SCREEN_FIELDS))
def batch(
    source: Annotated[
        str, typer.Argument(metavar="FILE.jsonl", help="one request a line; - is stdin")
    ],
    *,
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            rich_help_panel="Output",
            help="results, one a line; what is in it is not asked again; default stdout",
        ),
    ] = None,
    parallel: Annotated[
        int,
        typer.Option(
            "-np", "--parallel", metavar="N", min=1, max=256, help="answers written together"
        ),
    ] = 4,
    in_order: Annotated[
        bool,
        typer.Option(
            "--in-order", rich_help_panel="Output", help="results in the order of the requests"
        ),
    ] = False,
    raw: Annotated[
        bool,
        typer.Option("--raw", help="no chat template, no system message"),
    ] = False,
    profile: ProfileOption = None,
    system_file: SystemFileOption = None,
    verbose: VerboseOption = False,
    overrides: dict[str, object],
) -> int:
    """Answer many prompts over several slots.

    A line is {"id", "prompt" or "messages", settings...}; a result is the object of run --json
    with the id. The same command again goes on where it was stopped.
    """
    chosen = _profile(profile, overrides, system_file)

    from outrider.cli.batch.command import BatchPlan, run_batch

    return run_batch(
        chosen,
        overrides,
        BatchPlan(
            source=None if source == "-" else Path(source),
            target=path_of(output),
            num_slots=parallel,
            in_order=in_order,
            raw=raw,
            verbose=verbose,
        ),
    )


@app.command(cls=StrictCommand)
@takes_fields(
    leave_out=(
        "speculation.synth_rates",
        "speculation.synth_len",
        "sampling.logprobs",
        "sampling.post_sampling_probs",
        "chat.context_policy",
        *SCREEN_FIELDS,
    )
)
def doctor(
    *,
    profile: ProfileOption = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", rich_help_panel="Output", help="print one JSON object instead"),
    ] = False,
    verbose: VerboseOption = False,
    overrides: dict[str, object],
) -> int:
    """Say whether speculation pays on this machine.

    Which features the build uses, whether the model fits into the memory, what a decode of
    several rows costs, which acceptance each draft length needs, and what to run.
    """
    from outrider.cli.bench.arm import arm_of
    from outrider.cli.doctor.command import run_doctor

    return run_doctor(arm_of(profile, overrides), as_json=as_json)


@functools.cache
def command() -> Any:
    """The whole command tree."""
    from outrider.cli import model_commands, profile_commands
    from outrider.cli.bench import commands as bench_commands

    for name, part in (
        ("bench", bench_commands.app),
        ("profiles", profile_commands.app),
        ("models", model_commands.app),
    ):
        for info in part.registered_commands:
            info.cls = StrictCommand
        app.add_typer(part, name=name, cls=StrictGroup)
    return get_command(app)


def _profile(name: str | None, overrides: dict[str, object], system_file: str | None) -> Profile:
    """The profile to run; a system message file is one more override."""
    from outrider.profiles.load import load_profile

    if system_file is not None:
        if "chat.system" in overrides:
            raise UsageError("the system message is given twice: with -sys and with -sysf")
        overrides["chat.system"] = read_text(Path(system_file), "-sysf/--system-prompt-file")
    return load_profile(name or default_profile(overrides), overrides)
