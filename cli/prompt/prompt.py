"""The prompt: a line or more of input, its history, its completions, the toolbar below it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, has_completions, is_done, is_searching
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import History
from prompt_toolkit.input import Input
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    FormattedTextControl,
    HSplit,
    Layout,
    VSplit,
    Window,
)
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.processors import (
    HighlightIncrementalSearchProcessor,
    HighlightSelectionProcessor,
    TabsProcessor,
)
from prompt_toolkit.output import Output
from prompt_toolkit.renderer import print_formatted_text
from prompt_toolkit.styles import DynamicStyle, Style

from outrider.cli.chat.session_list import shorten
from outrider.cli.errors import UsageError, message, printable
from outrider.cli.glyphs import Glyphs
from outrider.cli.prompt.application import PromptApplication
from outrider.cli.prompt.history_search import HistorySearch, MessageBuffer
from outrider.cli.prompt.keys import clean_paste, prompt_keys
from outrider.cli.prompt.paste_chips import PasteChips, ShowChips
from outrider.cli.screen.panel import Row
from outrider.cli.screen.theme import NO_COLOUR, Theme

_MENU_ROWS = 6
_HINT_S = 2.0
_QUIET_AFTER_STOP_S = 1.0

_ROLES = {
    "sent": "strong",
    "chip": "dim",
    "toolbar": "dim",
    "warn": "warn",
    "search": "dim",
    "completion-menu.completion.current": "strong",
    "completion-menu.meta.completion": "dim",
    "completion-menu.meta.completion.current": "strong",
}
_DEFAULTS = "noreverse bg:default fg:default"
_STYLE = {
    "search": _DEFAULTS,
    "incsearch.current": "noreverse underline",
    "selected": "noreverse underline",
    "completion-menu": _DEFAULTS,
    "completion-menu.completion": _DEFAULTS,
    "completion-menu.completion.current": f"{_DEFAULTS} underline",
    "completion-menu.meta.completion": _DEFAULTS,
    "completion-menu.meta.completion.current": _DEFAULTS,
    "scrollbar.background": "bg:default",
    "scrollbar.button": "bg:default",
}


def _style(theme: Theme) -> Style:
    roles = {name: theme.in_prompt(role) for name, role in _ROLES.items()}
    return Style([*_STYLE.items(), *roles.items()])


@dataclass(frozen=True, slots=True)
class PromptLine:
    """What was entered. Text pasted at the front is never a command."""

    text: str
    is_pasted: bool = False


class Prompt:
    """Reads one message at a time; EOFError when the user leaves."""

    def __init__(
        self,
        *,
        keys: Input,
        output: Output,
        history: History,
        chips: PasteChips,
        completer: Completer,
        toolbar: Callable[[str, int], Row],
        suspend: Callable[[], None],
        edit: Callable[[str], str],
        tint: Callable[[], str] = lambda: "",
        glyphs: Glyphs,
        theme: Theme = NO_COLOUR,
    ) -> None:
        self.chips = chips
        self.tint = tint
        self._output = output
        self._toolbar = toolbar
        self._edit = edit
        self._suspend = suspend
        self._depth = theme.depth
        self.dress(theme, glyphs)
        self._hint: tuple[str, float] | None = None
        self._leave_asked = 0.0
        self._quiet_until = 0.0
        self._pasted = ""
        self.buffer = MessageBuffer(
            chips,
            multiline=True,
            history=history,
            completer=completer,
            complete_while_typing=Condition(self.is_command),
            accept_handler=self._accept,
        )
        self.search = HistorySearch(self.buffer, chips)
        self._app: PromptApplication[PromptLine] = PromptApplication(
            layout=self._layout(),
            key_bindings=prompt_keys(self),
            style=DynamicStyle(lambda: self._style),
            color_depth=self._depth,
            input=keys,
            output=output,
        )

    def dress(self, theme: Theme, glyphs: Glyphs) -> None:
        """Look like this from the next message on."""
        self._style, self._glyphs = _style(theme), glyphs

    def read(self, default: str = "", *, send: bool = False) -> PromptLine:
        """Return the next message; ``default`` is text that waits, or that is sent at once."""
        self._pasted = self.chips.refold(default)
        self._leave_asked = 0.0
        self.buffer.reset(Document(self._pasted))
        line = self._app.run(pre_run=self._send_soon if send else None)
        self._print_sent()
        return line

    def _send_soon(self) -> None:
        asyncio.get_running_loop().call_soon(self.buffer.validate_and_handle)

    def hint(self, text: str) -> None:
        """Show ``text`` in place of the toolbar for two seconds."""
        self._hint = (text, time.monotonic() + _HINT_S)
        if self._app.loop:
            self._app.loop.call_later(_HINT_S, self._app.invalidate)

    def stopped(self) -> None:
        """An answer was stopped just now: more of the same key does not mean to leave."""
        self._quiet_until = time.monotonic() + _QUIET_AFTER_STOP_S

    def pasted(self, text: str) -> None:
        """Text came by bracketed paste; remembered if it stands at the front."""
        line = self.chips.fold(clean_paste(text))
        if self.buffer.cursor_position == 0:
            self._pasted = line
        self.buffer.insert_text(line)

    def edit(self) -> None:
        """Let the user's editor have the whole text; large pastes are folded again after."""
        self._app.give_way(self._edit_now)

    def _edit_now(self) -> None:
        try:
            text = self._edit(self.chips.unfold(self.buffer.text))
        except UsageError as error:
            self.hint(message(error))
        else:
            self.buffer.document = Document(self.chips.refold(text))

    def suspend(self) -> None:
        """Give the terminal back to the shell until the program is continued."""
        self._app.give_way(self._suspend)

    def clear_screen(self) -> None:
        """Go on at the top of the screen; nothing above is lost."""
        self._app.scroll_away()

    def interrupt(self) -> None:
        """Ctrl-C: clear the line, or on an empty one leave at the second time."""
        now = time.monotonic()
        if self.buffer.text:
            self.buffer.append_to_history()
            self.buffer.reset()
            self._leave_asked = 0.0
            self.hint("line cleared, up brings it back")
        elif now < self._quiet_until:
            return
        elif now < self._leave_asked:
            self.leave()
        else:
            self._leave_asked = now + _HINT_S
            self.hint("ctrl-c again or ctrl-d leaves")

    def leave(self) -> None:
        """End the chat and take the prompt away."""
        self._app.exit(exception=EOFError())

    def is_command(self) -> bool:
        """Whether a slash command is typed."""
        text = self.buffer.text
        return text.startswith("/") and "\n" not in text and not self._is_pasted(text)

    def _is_pasted(self, line: str) -> bool:
        starts_with_paste = bool(self._pasted) and line.startswith(self._pasted)
        return starts_with_paste or bool(self.chips.spans(line[:1]))

    def _accept(self, buffer: Buffer) -> bool:
        # bytes that were no UTF-8 come in as lone surrogates, which no tokenizer takes
        text = self.chips.unfold(buffer.text).encode("utf-8", "replace").decode()
        self._app.exit(result=PromptLine(text, self._is_pasted(buffer.text)))
        return True

    def _print_sent(self) -> None:
        """Leave the message in the scrollback, wrapped by the terminal, pastes as chips."""
        shown = printable(self.chips.show(self.buffer.text))
        text: StyleAndTextTuples = [
            ("class:prompt class:sent", f"{self._glyphs.prompt} "),
            ("class:sent", shown.encode("utf-8", "replace").decode()),
            ("", "\n"),
        ]
        print_formatted_text(self._output, text, self._style, color_depth=self._depth)

    def _layout(self) -> Layout:
        window = Window(
            BufferControl(
                buffer=self.buffer,
                search_buffer_control=self.search.control,
                input_processors=[
                    HighlightIncrementalSearchProcessor(),
                    HighlightSelectionProcessor(),
                    TabsProcessor(char1=" ", char2=" "),
                    ShowChips(self.chips),
                ],
                preview_search=True,
            ),
            wrap_lines=True,
            dont_extend_height=True,
            get_line_prefix=lambda line, wraps: (
                [("class:prompt", f"{self._glyphs.prompt} ")] if line == wraps == 0 else []
            ),
        )
        toolbar = ConditionalContainer(
            Window(FormattedTextControl(self._toolbar_text), height=1, style="class:toolbar"),
            filter=~is_done & ~is_searching & ~has_completions,
        )
        indent = Window(width=1, dont_extend_width=True, dont_extend_height=True)
        menu = ConditionalContainer(
            VSplit([indent, CompletionsMenu(max_height=_MENU_ROWS, scroll_offset=1)]),
            filter=has_completions & ~is_done,
        )
        return Layout(HSplit([window, self.search.row, menu, toolbar]), focused_element=window)

    def _toolbar_text(self) -> StyleAndTextTuples:
        columns = self._output.get_size().columns
        if self._hint and time.monotonic() < self._hint[1]:
            return [("class:toolbar", shorten(self._hint[0], columns - 1, self._glyphs))]
        row = self._toolbar(self.chips.unfold(self.buffer.text), columns - 1)
        return [("class:warn" if role == "warn" else "class:toolbar", text) for text, role in row]
