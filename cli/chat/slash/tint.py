"""/tint: show which words of an answer were drafted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from outrider.cli.chat.slash.registry import COMMANDS
from outrider.cli.errors import UsageError

if TYPE_CHECKING:
    from outrider.cli.chat.chat import Chat


def _tint_choices(chat: Chat, typed: str) -> Iterable[tuple[str, str]]:
    yield "on", "raw text, accepted draft tokens tinted"
    yield "off", "as usual"


@COMMANDS.command(
    "/tint", "tint accepted draft tokens (ctrl-o)", usage="[on|off]", choices=_tint_choices
)
def tint(chat: Chat, argument: str) -> None:
    if argument not in ("", "on", "off"):
        raise UsageError(f"/tint {argument}: allowed: on, off")
    chat.note(chat.tint(None if not argument else argument == "on"))
