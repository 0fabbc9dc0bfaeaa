"""The commands ``outrider profiles``: list, show, check, new, schema."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outrider.cli.errors import printable, say
from outrider.cli.lines import print_lines

if TYPE_CHECKING:
    from outrider.profiles.model_source import ModelSource
    from outrider.profiles.schema import Profile

app = typer.Typer(help="List, show, check and make profiles.", no_args_is_help=True)

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME|PATH", show_default=False, help="profile or its file")
]


@app.command("list")
def list_command() -> int:
    """List the profiles, and where each comes from."""
    from outrider.profiles.load import list_profiles
    from outrider.profiles.search import DEFAULT_PROFILE

    rows = []
    for entry in list_profiles():
        about = f"broken: {entry.fault}" if entry.fault else entry.description
        default = " (default)" if entry.name == DEFAULT_PROFILE else ""
        rows.append((entry.name, entry.origin, about + default))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    print_lines(
        *(f"{name:{widths[0]}}  {place:{widths[1]}}  {about}" for name, place, about in rows)
    )
    return 0


@app.command()
def show(profile: NameArgument) -> int:
    """Show every value in force, what the profile extends included."""
    from outrider.profiles.load import load_profile
    from outrider.profiles.text import effective_yaml

    print_lines(effective_yaml(load_profile(profile)).rstrip("\n"))
    return 0


@app.command()
def check(
    profiles: Annotated[
        list[str], typer.Argument(metavar="NAME|PATH...", show_default=False, help="what to check")
    ],
) -> int:
    """Check profiles and whether their models are here; nothing is downloaded."""
    return max(_check(name) for name in profiles)


@app.command()
def new(
    name: Annotated[str, typer.Argument(show_default=False, help="name of the new profile")],
    parent: Annotated[
        str | None, typer.Option("--from", metavar="NAME|PATH", help="profile that it extends")
    ] = None,
) -> int:
    """Write a profile to edit into your own folder; print its path."""
    from outrider.profiles.search import DEFAULT_PROFILE
    from outrider.profiles.text import new_profile

    print_lines(str(new_profile(name, parent or DEFAULT_PROFILE)))
    return 0


@app.command()
def schema() -> int:
    """Print the JSON Schema of profiles, for editors."""
    import json

    from outrider.profiles.json_schema import json_schema

    print_lines(json.dumps(json_schema(), indent=2))
    return 0


def _check(name: str) -> int:
    """Check one profile; return the exit code."""
    from outrider.profiles.errors import ProfileError
    from outrider.profiles.load import load_profile

    try:
        profile = load_profile(name)
    except ProfileError as error:
        for line in error.lines:
            say(f"outrider: error: {printable(line)}")
        return 2
    faults = [*_model_faults(profile), *_template_faults(profile)]
    for fault in faults:
        say(f"outrider: error: {printable(f'{name}: {fault}')}")
    if not faults:
        print_lines(f"{name}: ok", *(f"  {line}" for line in _model_lines(profile)))
    return 2 if faults else 0


def _models(profile: Profile) -> list[tuple[str, ModelSource]]:
    """Return the models of a profile under their key paths."""
    found = [("target.model", profile.target.model)]
    found += [(f"drafters[{i}].model", each.model) for i, each in enumerate(profile.drafters)]
    return [(path, model) for path, model in found if model is not None]


def _model_faults(profile: Profile) -> list[str]:
    from outrider.profiles.model_source import LocalPart

    return [
        f"{path}: {part.path}: no such file"
        for path, model in _models(profile)
        for part in model.parts
        if isinstance(part, LocalPart) and not part.path.is_file()
    ]


def _template_faults(profile: Profile) -> list[str]:
    template = profile.chat.template_file
    if template is None or Path(template).is_file():
        return []
    return [f"chat.template_file: {template}: no such file"]


def _model_lines(profile: Profile) -> list[str]:
    from outrider.profiles.sources import locate, origin

    lines = [] if profile.target.model else ["target.model: none; give one with -m"]
    for path, model in _models(profile):
        found = locate(model)
        where = found or f"not fetched yet, from {', '.join(map(origin, model.parts))}"
        lines.append(f"{path}: {where}")
    return lines
