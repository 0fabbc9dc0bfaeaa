"""What fills the context."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.cli.chat.context_view import context_rows, context_use
from outrider.cli.chat.slash.registry import COMMANDS

if TYPE_CHECKING:
    from outrider.cli.chat.chat import Chat


@COMMANDS.command("/context", "what fills the context, and what is free")
def context(chat: Chat, argument: str) -> None:
    width, _ = chat.renderer.size()
    chat.renderer.show(context_rows(context_use(chat), width=width, glyphs=chat.glyphs))
