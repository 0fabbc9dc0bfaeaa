"""Command and group classes that read options as llama.cpp does.

A single-dash option is one whole name: nothing is clustered or attached, so ``-mm FILE`` is
an unknown option and not ``-m`` with the value ``m``. Long options take ``--name value`` and
``--name=value``, and ``_`` for ``-``. Unknown names are refused with the nearest known one.
"""

from __future__ import annotations

import difflib
import itertools
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from typer.core import TyperCommand, TyperGroup

from outrider.cli.errors import UsageError
from outrider.cli.help_page import write_options
from outrider.cli.options import no_colour_option

_NO_COLOUR = no_colour_option()


class Parameter(Protocol):
    """The part of typer's parameters that parsing needs."""

    opts: list[str]
    secondary_opts: list[str]


class StrictCommand(TyperCommand):
    """A command whose options are whole names."""

    # surplus words are refused below, with advice
    allow_extra_args = True

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            args = whole_names(args, _options(self.get_params(ctx)))
        surplus = super().parse_args(ctx, args)
        if surplus and not ctx.resilient_parsing:
            raise UsageError(_surplus(surplus, ctx))
        return surplus

    def get_params(self, ctx: Any) -> list[Any]:
        *own, help_option = super().get_params(ctx)
        return [*own, _NO_COLOUR, help_option]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        write_options(self, ctx, formatter)


class StrictGroup(TyperGroup):
    """A group whose options are whole names and whose unknown commands are explained.

    ``default_command`` is run when the arguments name no command.
    """

    default_command: str | None = None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        options = _options(self.get_params(ctx))
        if self.default_command and self._names_no_command(args, options):
            args = [self.default_command, *args]
        if not args:
            names = ", ".join(self.list_commands(ctx))
            raise UsageError(f"{ctx.command_path} needs a command: {names}")
        return super().parse_args(ctx, whole_names(args, options, interspersed=False))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.commands and not ctx.resilient_parsing:
            raise UsageError(self._unknown(args[0], ctx))
        return super().resolve_command(ctx, args)

    @staticmethod
    def _names_no_command(args: Sequence[str], options: Mapping[str, Parameter]) -> bool:
        if not args:
            return True
        return args[0].startswith("-") and _split(args[0])[0] not in options

    def _unknown(self, name: str, ctx: Any) -> str:
        close = difflib.get_close_matches(name, self.commands, n=2)
        advice = f"did you mean {' or '.join(close)}?" if close else ", ".join(self.commands)
        if self.default_command:
            advice += f' (a prompt: {ctx.command_path} run "...")'
        return f"no command {name!r}; {advice}"


def whole_names(
    args: Sequence[str], options: Mapping[str, Parameter], *, interspersed: bool = True
) -> list[str]:
    """Check the option names in ``args`` and return what a clustering parser cannot misread.

    Without ``interspersed`` the first word that is no option ends the options.
    """
    checked: list[str] = []
    rest = deque(args)
    while rest:
        word = rest.popleft()
        is_text = word == "-" or not word.startswith("-")
        if word == "--" or (is_text and not interspersed):
            return [*checked, word, *rest]
        checked += [word] if is_text else _option(word, rest, options)
    return checked


def _option(word: str, rest: deque[str], options: Mapping[str, Parameter]) -> list[str]:
    """The words of the option that ``word`` begins; its value is taken from ``rest``."""
    name, value = _split(word)
    option = options.get(name)
    if option is None:
        raise UsageError(f"no option {word.partition('=')[0]}{_nearest(name, options)}")
    if not _takes_value(option):
        if value is not None:
            raise UsageError(f"option {name} takes no value, got {value!r}")
        return [name]
    if value is not None:
        return [f"{name}={value}"]
    if not rest:
        raise UsageError(f"option {name} needs a value")
    if rest[0] in options:
        raise UsageError(
            f"option {name} needs a value, but {rest[0]} follows, an option itself"
            f" ({_long(option)}={rest[0]} if it is meant)"
        )
    return [name, rest.popleft()]


def _split(word: str) -> tuple[str, str | None]:
    """Name and attached value of an option; only long options have one."""
    if not word.startswith("--"):
        return word, None
    name, equals, value = word.partition("=")
    return "--" + name[2:].replace("_", "-"), value if equals else None


def _options(parameters: Iterable[Any]) -> dict[str, Parameter]:
    return {
        name: parameter
        for parameter in parameters
        if parameter.param_type_name == "option"
        for name in (*parameter.opts, *parameter.secondary_opts)
    }


def _takes_value(option: Parameter) -> bool:
    return not (getattr(option, "is_flag", False) or getattr(option, "count", False))


def _long(option: Parameter) -> str:
    return max(option.opts, key=len)


def _nearest(name: str, options: Mapping[str, Parameter]) -> str:
    close = difflib.get_close_matches(name, options, n=4, cutoff=0.55)
    if not close:
        return "; --help lists them (text that begins with a dash goes after --)"
    # a name that begins alike is likelier meant: -fit is nearer to -f than to -t
    close.sort(key=lambda match: -_num_alike(name, match))
    names = dict.fromkeys("/".join(options[match].opts) for match in close)
    return f"; did you mean {' or '.join([*names][:2])}?"


def _num_alike(name: str, other: str) -> int:
    """How many characters at the beginning are the same, dashes left out."""
    pairs = zip(name.lstrip("-"), other.lstrip("-"), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _surplus(words: Sequence[str], ctx: Any) -> str:
    commands = getattr(ctx.parent and ctx.parent.command, "commands", {})
    if words[0] in commands:
        return f"options go after the command: {ctx.parent.command_path} {words[0]} ..."
    return f"unexpected {words[0]!r}; a text of several words goes in quotes"
