"""One option for each field of a profile, and what was given as overrides."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.main import get_command

from outrider.profiles.fields import FIELDS, KIND_FIELDS, Field, check
from outrider.profiles.search import BARE_PROFILE, DEFAULT_PROFILE

ProfileOption = Annotated[
    str | None,
    typer.Option(
        "-P",
        "--profile",
        metavar="NAME|PATH",
        rich_help_panel="Profile",
        help=f"what to run; flags win over it (default {DEFAULT_PROFILE}, with -m {BARE_PROFILE})",
    ),
]
VerboseOption = Annotated[
    bool,
    typer.Option("-v", "--verbose", help="notes, native log lines and tracebacks on stderr"),
]


def _take_colour_away(is_wanted: bool) -> None:
    if is_wanted:
        os.environ["NO_COLOR"] = "1"  # what every console and theme goes by


def _no_colour(
    no_color: Annotated[
        bool,
        typer.Option(
            "--no-color",
            callback=_take_colour_away,
            is_eager=True,
            expose_value=False,
            help="bold and underline only, as with NO_COLOR=1",
        ),
    ] = False,
) -> None:
    """Has the option that :class:`StrictCommand` gives to every command."""


def no_colour_option() -> Any:
    """``--no-color``, as typer makes it of a function."""
    app = typer.Typer(add_completion=False)
    app.command()(_no_colour)
    return get_command(app).params[0]


SCREEN_FIELDS = ("chat.markdown", "chat.theme", "chat.glyphs")
"""For the chat alone: what the screen looks like."""

_METAVARS: Mapping[type, str] = {int: "N", float: "X"}
_SHOWN_CHOICES = 4  # more of them move from the name column into the text


def takes_fields(
    leave_out: Collection[str] = (),
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Give a command an option for each field that has flags, but for those in ``leave_out``.

    The command gets what was given as ``overrides``, a dict from field path to checked value.
    """
    chosen = {
        field.path.replace(".", "_"): field
        for field in (*FIELDS, *KIND_FIELDS)
        if field.flags and field.path not in leave_out
    }

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(command)
        def with_fields(**values: Any) -> int:
            given = {field.path: values.pop(name) for name, field in chosen.items()}
            return command(**values, overrides=overrides(given))

        own = inspect.signature(command, eval_str=True).parameters.values()
        parameters = [parameter for parameter in own if parameter.name != "overrides"]
        parameters += [_parameter(name, field) for name, field in chosen.items()]
        with_fields.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return with_fields

    return decorate


def overrides(given: Mapping[str, Any]) -> dict[str, object]:
    """Check the option values by the fields' limits; what was not given is left out."""
    return {
        path: _checked(path, value) for path, value in given.items() if value not in (None, [], ())
    }


def path_of(text: str | None) -> Path | None:
    """The path that an option names, if it was given."""
    return None if text is None else Path(text)


def flag_names(path: str) -> str:
    """The flags of the field at ``path`` as errors name them: ``-c/--ctx-size``."""
    return "/".join(_FLAGS[path][:2])


def all_flags(path: str) -> tuple[str, ...]:
    """All flags of the field at ``path``."""
    return _FLAGS[path]


_FLAGS = {field.path: field.flags for field in (*FIELDS, *KIND_FIELDS)}


def _checked(path: str, value: Any) -> object:
    if isinstance(value, bool):
        return value
    texts = value if isinstance(value, list) else [value]
    return check(path, *texts, name=flag_names(path))


def _parameter(name: str, field: Field) -> inspect.Parameter:
    option = typer.Option(
        None,
        *_declarations(field),
        help=_help(field),
        metavar=_metavar(field),
        rich_help_panel=field.panel,
        show_default=False,
    )
    kind = bool if field.type is bool else list[str] if field.multiple else str
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=kind | None
    )


def _declarations(field: Field) -> list[str]:
    if field.type is not bool:
        return list(field.flags)
    on = [flag for flag in field.flags if not flag.startswith("--no-")]
    off = [flag for flag in field.flags if flag.startswith("--no-")]
    return [f"{on[0]}/{off[0]}" if off else on[0]]


def _metavar(field: Field) -> str | None:
    if field.metavar or field.type is bool:
        return field.metavar
    if field.choices:
        return "|".join(field.choices) if len(field.choices) <= _SHOWN_CHOICES else "TYPE"
    return _METAVARS.get(field.type, "TEXT")


def _help(field: Field) -> str:
    notes = []
    if field.choices and len(field.choices) > _SHOWN_CHOICES:
        notes.append(", ".join(field.choices))
    if field.type in (int, float) and field.minimum is not None and field.maximum is not None:
        notes.append(f"{field.minimum:g} to {field.maximum:.10g}")
    if isinstance(field.default, int | float | str) and field.type is not bool:
        notes.append(f"default {field.default}")
    return f"{field.help} ({'; '.join(notes)})" if notes else field.help
