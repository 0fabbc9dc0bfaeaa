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

from outrider.cli.chat.editor import edit_text
from outrider.cli.chat.running_models import Progress
from outrider.cli.chat.slash import COMMANDS
from outrider.cli.chat.slash.completer import CommandCompleter
from outrider.cli.glyphs import ASCII, Glyphs, glyphs_for
from outrider.cli.prompt.history import MessageHistory, history_path
from outrider.cli.prompt.keyboard import Keyboard
from outrider.cli.prompt.line_terminal import LineKeyboard, LinePrompt
from outrider.cli.prompt.paste_chips import PasteChips
from outrider.cli.prompt.paste_parser import read_large_pastes
from outrider.cli.prompt.prompt import Prompt, PromptLine
from outrider.cli.screen.frame import ERASE_DOWN
from outrider.cli.screen.load_view import LoadView
from outrider.cli.screen.panel import Row
from outrider.cli.screen.render import PlainRenderer, Renderer, TerminalRenderer, write_terminal
from outrider.cli.screen.terminal_probe import TerminalTraits, probe
from outrider.cli.screen.theme import Theme, theme_for
from outrider.profiles import schema

if TYPE_CHECKING:
    from outrider.cli.chat.chat import Chat


class ReadsLines(Protocol):
    """What the loop needs of a prompt."""

    def read(self, default: str = "", *, send: bool = False) -> PromptLine: ...
    def stopped(self) -> None: ...


def is_dumb() -> bool:
    """True if there is no cursor to move. A console of Windows has one and sets no ``TERM``."""
    term = os.environ.get("TERM", "").lower()
    return term in ("dumb", "unknown") or (not term and sys.platform != "win32")


class ChatTerminal:
    """Keyboard, renderer and prompt that fit this terminal; entered for the whole chat."""

    keyboard: Keyboard | LineKeyboard
    renderer: Renderer

    def __init__(self, settings: schema.Chat) -> None:
        self.is_dumb = is_dumb()
        self._settings = settings
        self._traits: TerminalTraits | None = None  # unknown until the terminal was asked
        self._prompt: Prompt | None = None
        if self.is_dumb:
            self.keyboard = LineKeyboard()
            self.renderer = PlainRenderer(write_terminal, terminal_size)
            return
        self._input: Input = create_input()
        read_large_pastes(self._input)
        self._console = Console(file=sys.stdout, highlight=False)
        self.keyboard = Keyboard(self._input, write_terminal)
        self._output = _output(self.keyboard)
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

    @property
    def glyphs(self) -> Glyphs:
        setting = self._settings.glyphs
        if setting == "auto" and self._traits and self._traits.has_wide_blocks:
            return ASCII
        return glyphs_for(setting=setting)

    @property
    def _theme(self) -> Theme:
        is_light = self._traits is not None and self._traits.has_light_ground
        return theme_for(self._console, self._settings.theme, has_light_ground=is_light)

    def dress(self, settings: schema.Chat) -> Glyphs:
        """Look as ``settings`` say from now on; returns the glyphs in use."""
        self._settings = settings
        if isinstance(self.renderer, TerminalRenderer):
            self.renderer.dress(self._theme, self.glyphs)
        if self._prompt:
            self._prompt.dress(self._theme, self.glyphs)
        return self.glyphs

    def _ask_terminal(self) -> None:
        """Ask it once what it looks like, where it is one that answers."""
        if self._traits or not isinstance(self.keyboard, Keyboard):
            return
        self._traits = TerminalTraits()
        if sys.platform != "win32" and os.environ.get("TERM") != "linux":
            self._traits = probe(self.keyboard, asks_width=self.glyphs != ASCII)
        self.dress(self._settings)

    @contextlib.contextmanager
    def loading(self) -> Iterator[Progress]:
        """While entered, keys are kept, Ctrl-C interrupts, and progress is shown."""
        with self.keyboard.listening():
            self._ask_terminal()
            if self.is_dumb:
                yield lambda stage, share: None
                return
            view = LoadView(write_terminal, terminal_size, self.glyphs, self._theme)
            try:
                yield view
            finally:
                view.close()

    def prompt(
        self, chat: Chat, toolbar: Callable[[str, int], Row], tell: Callable[[str], None]
    ) -> ReadsLines:
        """The prompt of this terminal."""
        if isinstance(self.keyboard, LineKeyboard):
            return LinePrompt(ASCII)
        chips = PasteChips()
        self._prompt = Prompt(
            keys=self._input,
            output=self._output,
            history=MessageHistory(history_path(), tell, chips),
            chips=chips,
            completer=CommandCompleter(COMMANDS, lambda: chat),
            toolbar=toolbar,
            suspend=self.keyboard.suspend,
            edit=self._edit,
            tint=chat.tint,
            glyphs=self.glyphs,
            theme=self._theme,
        )
        return self._prompt

    def _edit(self, text: str) -> str:
        """``text`` as the user's editor leaves it."""
        with self.keyboard.released():
            return edit_text(text)


def terminal_size() -> tuple[int, int]:
    """Columns and rows of stdout, now."""
    try:
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        return 80, 24
    return (columns, rows) if columns and rows else (80, 24)


def _output(keyboard: Keyboard) -> Output:
    """An output that leaves bracketed paste on and asks where the cursor is only when told to."""
    if sys.platform == "win32":
        return create_output()
    from prompt_toolkit.output.vt100 import Vt100_Output

    class ChatOutput(Vt100_Output):
        def disable_bracketed_paste(self) -> None:
            """The keyboard does, at the end of the chat."""

        def erase_down(self) -> None:
            self.write_raw(ERASE_DOWN)

        def ask_for_cpr(self) -> None:
            keyboard.expect_answers(1)
            super().ask_for_cpr()

        @property
        def responds_to_cpr(self) -> bool:
            return False

    return ChatOutput.from_pty(sys.stdout, term=os.environ.get("TERM"))
