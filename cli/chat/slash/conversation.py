"""Commands about the turns of the conversation."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from outrider.cli.chat.branch_view import beginning, branch_choices, branch_rows
from outrider.cli.chat.setting_values import read_setting, setting_choices
from outrider.cli.chat.slash.registry import COMMANDS
from outrider.cli.errors import UsageError
from outrider.cli.stats_view import plural

if TYPE_CHECKING:
    from outrider.cli.chat.chat import Chat
    from outrider.cli.chat.transcript import Turn

_SEEDS = 2**32


@COMMANDS.command("/clear", "begin a new conversation; the present one stays saved")
def clear(chat: Chat, argument: str) -> None:
    chat.begin_new()
    chat.note("new conversation")


def _once_choices(chat: Chat, typed: str) -> Iterable[tuple[str, str]]:
    *before, last = re.split(r"(?<=\s)", typed)
    for choice, meaning in setting_choices(chat, last):
        yield "".join(before) + choice, meaning


@COMMANDS.command(
    "/regen",
    "another answer to the last message, with other settings if given",
    usage="[KEY=VALUE ...]",
    choices=_once_choices,
)
def regenerate(chat: Chat, argument: str) -> None:
    values = _values(chat, argument, "/regen")
    last = _last_turn(chat, "/regen")
    fixed = chat.models.profile.sampling.seed
    if fixed is not None:  # the next seed: another answer, and the same one in the next chat
        former = last.details.get("seed")
        seed = (former if isinstance(former, int) else fixed) + 1
        values = {"sampling.seed": seed % _SEEDS} | values
    chat.ask_again(values, argument)


@COMMANDS.command(
    "/retry",
    "the last message with the same seed, to see what a setting changes",
    usage="[KEY=VALUE ...]",
    choices=_once_choices,
)
def retry(chat: Chat, argument: str) -> None:
    values = _values(chat, argument, "/retry")
    details = _last_turn(chat, "/retry").details
    seed, once = details.get("seed"), str(details.get("once", ""))
    same = _values(chat, once, "/retry")
    if isinstance(seed, int):
        same["sampling.seed"] = seed
    chat.ask_again(same | values, f"{once} {argument}".strip())


def _values(chat: Chat, settings: str, command: str) -> dict[str, object]:
    """The values, by path, that ``KEY=VALUE KEY=VALUE`` mean; a value may have blanks."""
    values: dict[str, object] = {}
    for part in re.split(r"\s+(?=[A-Za-z][\w-]*=)", settings) if settings else ():
        key, equals, text = part.partition("=")
        if not equals:
            raise UsageError(f"{command} {part}: allowed: KEY=VALUE with the names of /set")
        path, value = read_setting(key, text, chat.models.original, command=command)
        values[path] = value
    return values


def _last_turn(chat: Chat, command: str) -> Turn:
    if not chat.transcript.turns:
        raise UsageError(f"{command}: there is no message yet")
    return chat.transcript.turns[-1]


@COMMANDS.command("/undo", "take back the last message; /branch has it still")
def undo(chat: Chat, argument: str) -> None:
    turn = chat.transcript.undo()
    if turn is None:
        raise UsageError("there is nothing to take back")
    chat.save()
    chat.waiting = turn.message
    chat.note("taken back; the message is in the input")


def _message_choices(chat: Chat, typed: str) -> Iterable[tuple[str, str]]:
    for number, turn in enumerate(chat.transcript.turns, 1):
        yield str(number), beginning(turn.message)


@COMMANDS.command(
    "/edit",
    "change the last message, or message N, in your editor and ask it again",
    usage="[N]",
    choices=_message_choices,
)
def edit(chat: Chat, argument: str) -> None:
    turns = chat.transcript.turns
    if not turns:
        raise UsageError("/edit: there is no message yet")
    chat.edit(_number(argument, len(turns), "/edit") - 1 if argument else len(turns) - 1)


def _branch_choices(chat: Chat, typed: str) -> Iterable[tuple[str, str]]:
    return branch_choices(chat.transcript)


@COMMANDS.command(
    "/branch", "list the branches, go on with another", usage="[N]", choices=_branch_choices
)
def branch(chat: Chat, argument: str) -> None:
    transcript = chat.transcript
    if not argument:
        width, _ = chat.renderer.size()
        chat.renderer.show(branch_rows(transcript, width, chat.glyphs))
        if not transcript.others:
            chat.note("one branch; /regen, /retry, /edit and /undo begin others")
        return
    chosen = transcript.branches[_number(argument, len(transcript.branches), "/branch") - 1]
    transcript.switch(chosen)
    chat.save()
    chat.note(f"branch {transcript.number}: {plural(len(transcript.turns), 'turn')}")
    chat.show_last_turn()


def _number(argument: str, last: int, command: str) -> int:
    """One of the numbers from 1 to ``last``."""
    number = int(argument) if argument.isascii() and argument.isdecimal() else 0
    if not 1 <= number <= last:
        allowed = "1" if last == 1 else f"1 to {last}"
        raise UsageError(f"{command} {argument}: allowed: {allowed}")
    return number


@COMMANDS.command("/system", "show, set or remove the system message", usage="[TEXT|none]")
def system(chat: Chat, argument: str) -> None:
    if not argument:
        chat.renderer.show([chat.transcript.system or "no system message"])
        return
    chat.transcript.system = None if argument == "none" else argument
    chat.save()
    chat.note("system message removed" if argument == "none" else "system message set")
