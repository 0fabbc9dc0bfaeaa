"""Completion of slash commands and of what can follow them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from outrider.cli.chat.slash.registry import CommandRegistry
from outrider.cli.errors import UsageError

if TYPE_CHECKING:
    from outrider.cli.chat.chat import Chat


class CommandCompleter(Completer):
    """Completes a command's name, then what can follow it."""

    def __init__(self, registry: CommandRegistry, chat: Callable[[], Chat]) -> None:
        self._registry = registry
        self._chat = chat

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        text = document.text_before_cursor
        if not text.startswith("/") or "\n" in text:
            return
        word, space, argument = text.partition(" ")
        if not space:
            for command in sorted(self._registry, key=lambda command: command.name):
                if command.name.startswith(word):
                    yield _completion(command.name, command.help, word)
            return
        try:
            command = self._registry.find(word)
        except UsageError:
            return
        choices = command.choices(self._chat(), argument) if command.choices else ()
        for choice, meaning in choices:
            if choice.startswith(argument):
                yield _completion(choice, meaning, argument)


def _completion(text: str, meaning: str, typed: str) -> Completion:
    return Completion(text, start_position=-len(typed), display_meta=meaning)
