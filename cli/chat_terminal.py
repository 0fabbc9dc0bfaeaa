"""The terminal of a chat: who reads keys, who draws, and how it is given back."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from prompt_toolkit.input import Input, create_input
from prompt_toolkit.output import Output, create_output
from rich.console import Console

from outrider.cli.chat_commands import COMMANDS
from outrider.cli.commands import CommandCompleter
from outrider.cli.glyphs import ASCII, Glyphs, glyphs_for
from outrider.cli.history import MessageHistory, history_path
from outrider.cli.keyboard import Keyboard
from outrider.cli.line_terminal import LineKeyboard, LinePrompt
from outrider.cli.load_view import LoadView
from outrider.cli.prompt import Prompt, PromptLine
from outrider.cli.render import PlainRenderer, Renderer, TerminalRenderer, write_terminal
from outrider.cli.running_models import Progress

if TYPE_CHECKING:
    from outrider.cli.chat import Chat


class ReadsLines(Protocol):
    """What the loop needs of a prompt."""

    def read(self, default: str = "", *, send: bool = False) -> PromptLine: ...
    def stopped(self) -> None: ...


class ChatTerminal:
    """Keyboard, renderer and prompt that fit this terminal; entered for the whole chat."""

    keyboard: Keyboard | LineKeyboard
    renderer: Renderer

    def __init__(self) -> None:
        self.is_dumb = os.environ.get("TERM", "").lower() in ("", "dumb", "unknown")
        self.glyphs: Glyphs = glyphs_for()
        if self.is_dumb:
            self.keyboard = LineKeyboard()
            self.renderer = PlainRenderer(write_terminal, terminal_size)
            return
        self._input: Input = create_input()
        self._output = _output()
        self._console = Console(file=sys.stdout, highlight=False)
        self.keyboard = Keyboard(self._input, write_terminal)
        self.renderer = TerminalRenderer(
            self._console,
            write_terminal,
            terminal_size,
            self.glyphs,
            self.keyboard.cursor_column,
        )

    def __enter__(self) -> ChatTerminal:
        self.keyboard.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self.keyboard.__exit__(*exception)

    @contextlib.contextmanager
    def loading(self) -> Iterator[Progress]:
        """While entered, keys are kept, Ctrl-C interrupts, and progress is shown."""
        with self.keyboard.listening():
            if self.is_dumb:
                yield lambda stage, share: None
                return
            view = LoadView(write_terminal, terminal_size, self.glyphs)
            try:
                yield view
            finally:
                view.close()

    def prompt(
        self, chat: Chat, toolbar: Callable[[str, int], str], tell: Callable[[str], None]
    ) -> ReadsLines:
        """The prompt of this terminal."""
        if isinstance(self.keyboard, LineKeyboard):
            return LinePrompt(ASCII)
        return Prompt(
            keys=self._input,
            output=self._output,
            history=MessageHistory(history_path(), tell),
            completer=CommandCompleter(COMMANDS, lambda: chat),
            toolbar=toolbar,
            suspend=self.keyboard.suspend,
            glyphs=self.glyphs,
            colour=not self._console.no_color,
        )


def terminal_size() -> tuple[int, int]:
    """Columns and rows of stdout, now."""
    try:
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        return 80, 24
    return (columns, rows) if columns and rows else (80, 24)


def _output() -> Output:
    """An output that leaves bracketed paste on and never asks where the cursor is."""
    if sys.platform == "win32":
        return create_output()
    from prompt_toolkit.output.vt100 import Vt100_Output

    class ChatOutput(Vt100_Output):
        def disable_bracketed_paste(self) -> None:
            """The keyboard does, at the end of the chat."""

        @property
        def responds_to_cpr(self) -> bool:
            return False

    return ChatOutput.from_pty(sys.stdout, term=os.environ.get("TERM"))
