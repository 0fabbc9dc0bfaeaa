"""Commands that change how the next answers are made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from outrider.cli.chat.setting_values import (
    GROUPS,
    SETTINGS,
    in_brackets,
    read_setting,
    setting,
    setting_choices,
    short,
    value_in,
    value_words,
)
from outrider.cli.chat.slash.registry import COMMANDS
from outrider.cli.errors import UsageError
from outrider.profiles.errors import ProfileError

if TYPE_CHECKING:
    from outrider.cli.chat.chat import Chat

_LABEL, _NARROW = 13, 60


@COMMANDS.command(
    "/set",
    "show or change a setting of the next answers",
    usage="[KEY[=VALUE|=default]]",
    choices=setting_choices,
)
def set_value(chat: Chat, argument: str) -> None:
    if not argument:
        chat.renderer.show(_setting_rows(chat))
        return
    key, equals, text = argument.partition("=")
    field, models = setting(key), chat.models
    if equals:
        path, value = read_setting(key, text, models.original)
        models.apply(models.with_values({path: value}))
    row = f"{field.path.partition('.')[2]}={value_words(value_in(models.profile, field.path))}"
    chat.renderer.show([row if equals else f"{row}{in_brackets(field)}   {field.help}"])


def _setting_rows(chat: Chat) -> list[str]:
    """All settings, a row for each group, or several where it does not fit."""
    width, _ = chat.renderer.size()
    indent = " " * (_LABEL if width >= _NARROW else 2)
    rows = list[str]()
    for group, keys in GROUPS.items():
        row = f"{group:<{_LABEL}}"
        for key in keys:
            field = SETTINGS[key]
            value = short(value_words(value_in(chat.models.profile, field.path)), chat.glyphs)
            part = f"{key}={value}{in_brackets(field)}"
            if len(row) + len(part) >= width or (key == keys[0] and width < _NARROW):
                rows.append(row.rstrip())
                row = indent
            row += f"{part}  "
        rows.append(row.rstrip())
    return rows


def _profile_choices(chat: Chat, typed: str) -> Iterable[tuple[str, str]]:
    from outrider.profiles.load import list_profiles

    try:
        return [(entry.name, entry.description) for entry in list_profiles()]
    except (ProfileError, OSError):
        return []


@COMMANDS.command(
    "/profile", "go on with another model", usage="[NAME|PATH]", choices=_profile_choices
)
def profile(chat: Chat, argument: str) -> None:
    if argument:
        chat.switch_profile(argument)
    else:
        chat.renderer.show(
            [f"{chat.models.profile.name}   {chat.models.profile.description}".rstrip()]
        )


@COMMANDS.command(
    "/think", "show the last thought; on and off: print the thoughts to come", usage="[show|on|off]"
)
def think(chat: Chat, argument: str) -> None:
    if argument in ("on", "off"):
        chat.shows_thinking = argument == "on"
        chat.note(f"thinking is {'shown' if chat.shows_thinking else 'folded'} from now on")
        return
    if argument not in ("", "show"):
        raise UsageError(f"/think {argument}: allowed: show, on, off")
    thoughts = (turn.details.get("reasoning") for turn in reversed(chat.transcript.turns))
    last = next((thought for thought in thoughts if isinstance(thought, str)), None)
    if last is None:
        raise UsageError("/think: there is no thought yet")
    chat.renderer.show(last.split("\n"), "dim")
