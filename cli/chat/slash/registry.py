"""The registry of slash commands: running them, help and completion come from the one table."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.cli.errors import UsageError

if TYPE_CHECKING:
    from outrider.cli.chat.chat import Chat

Action = Callable[["Chat", str], None]
Choices = Callable[["Chat", str], Iterable[tuple[str, str]]]


_LONGEST_CALL = 20  # that has its help on the same row


@dataclass(frozen=True, slots=True)
class Command:
    """A slash command. ``choices`` give (argument, description) for what was typed of one."""

    name: str
    usage: str
    help: str
    run: Action
    choices: Choices | None = None


class CommandRegistry:
    """Commands by name, in the order in which help lists them."""

    def __init__(self) -> None:
        self._commands: dict[str, Command] = {}

    def command(
        self, name: str, help: str, *, usage: str = "", choices: Choices | None = None
    ) -> Callable[[Action], Action]:
        """Register the decorated function as ``/name``."""

        def register(action: Action) -> Action:
            self._commands[name] = Command(name, usage, help, action, choices)
            return action

        return register

    def __iter__(self) -> Iterator[Command]:
        return iter(self._commands.values())

    def run(self, chat: Chat, line: str) -> None:
        """Run the command that ``line`` begins with; UsageError if there is none."""
        word, _, argument = line.partition(" ")
        self.find(word).run(chat, argument.strip())

    def find(self, word: str) -> Command:
        """The command named exactly ``word``; UsageError names the nearest one."""
        if word in self._commands:
            return self._commands[word]
        near = difflib.get_close_matches(word, self._commands, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else "/help lists them"
        raise UsageError(f"{word}: no such command; {hint} (a message with it: /{word})")

    def help_rows(self, width: int) -> list[str]:
        """One row for each command, or two where the terminal is narrow."""
        rows: list[str] = []
        calls = {c.name: f"{c.name} {c.usage}".rstrip() for c in self._commands.values()}
        column = max(len(call) for call in calls.values() if len(call) <= _LONGEST_CALL) + 2
        for command in self._commands.values():
            call = calls[command.name]
            if len(call) <= _LONGEST_CALL and column + len(command.help) < width:
                rows.append(f"{call:<{column}}{command.help}")
            else:
                rows += [call, f"  {command.help}"]
        return rows


COMMANDS = CommandRegistry()
