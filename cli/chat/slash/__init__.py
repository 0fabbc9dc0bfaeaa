"""The slash commands of the chat, in the order in which help lists them."""

from outrider.cli.chat.slash import views, conversation, speculation, settings  # noqa: F401, I001
from outrider.cli.chat.slash import tint, sessions  # noqa: F401
from outrider.cli.chat.slash import files, text, context  # noqa: F401
from outrider.cli.chat.slash.registry import COMMANDS

__all__ = ["COMMANDS"]
