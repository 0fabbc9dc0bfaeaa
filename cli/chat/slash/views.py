"""Commands that show something and change nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from outrider.cli.chat.slash.registry import COMMANDS
from outrider.cli.errors import UsageError
from outrider.cli.screen.stats_table import stats_json, stats_rows

if TYPE_CHECKING:
    from outrider.cli.chat.chat import Chat


@COMMANDS.command("/help", "list the commands and keys")
def show_help(chat: Chat, argument: str) -> None:
    width, _ = chat.renderer.size()
    if argument:
        command = COMMANDS.find(argument if argument.startswith("/") else f"/{argument}")
        chat.renderer.show([f"{command.name} {command.usage}".rstrip(), f"  {command.help}"])
        return
    rows = COMMANDS.help_rows(width)
    rows += [
        "//text sends a message that begins with /",
        "ctrl-j new line, ctrl-r searches the history, ctrl-g opens the editor,",
        "ctrl-o tints what was drafted, ctrl-t opens a thought,",
        "ctrl-c stops an answer, ctrl-d leaves",
    ]
    chat.renderer.show(rows)


@COMMANDS.command("/exit", "leave")
def leave(chat: Chat, argument: str) -> None:
    chat.is_over = True


def _stats_choices(chat: Chat, typed: str) -> Iterable[tuple[str, str]]:
    yield "all", "every turn, not only the last"
    yield "json", "the same as one JSON object"


@COMMANDS.command(
    "/stats", "speed and acceptance of this chat", usage="[all|json]", choices=_stats_choices
)
def stats(chat: Chat, argument: str) -> None:
    if argument not in ("", "all", "json"):
        raise UsageError(f"/stats {argument}: allowed: all, json")
    if argument == "json":
        rows = json.dumps(stats_json(chat.records), indent=1).split("\n")
    elif chat.records:
        width, _ = chat.renderer.size()
        rows = stats_rows(
            chat.records, width=width, glyphs=chat.glyphs, all_turns=argument == "all"
        )
    else:
        rows = ["no answers yet"]
    chat.renderer.show(rows)
