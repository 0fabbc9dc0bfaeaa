"""The prompt: a line or more of input, its history, its completions, the toolbar below it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from prompt_toolkit.application import Application
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
    Window,
)
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.processors import (
    HighlightIncrementalSearchProcessor,
    HighlightSelectionProcessor,
)
from prompt_toolkit.output import ColorDepth, Output
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar

from outrider.cli.glyphs import Glyphs
from outrider.cli.prompt_keys import prompt_keys

_MENU_ROWS = 6
_HINT_S = 2.0
_QUIET_AFTER_STOP_S = 1.0

_STYLE = Style.from_dict(
    {
        "accepted": "bold",
        "prompt": "",
        "toolbar": "dim noreverse",
        "search-toolbar": "dim",
        "completion-menu": "noreverse bg:default fg:default",
        "completion-menu.completion": "bg:default fg:default",
        "completion-menu.completion.current": "bold reverse",
        "completion-menu.meta.completion": "dim bg:default fg:default",
        "completion-menu.meta.completion.current": "bold bg:default fg:default",
        "scrollbar.background": "bg:default",
        "scrollbar.button": "bg:default",
    }
)


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
        completer: Completer,
        toolbar: Callable[[str, int], str],
        suspend: Callable[[], None],
        glyphs: Glyphs,
        colour: bool = True,
    ) -> None:
        self._output = output
        self._toolbar = toolbar
        self._hint: tuple[str, float] | None = None
        self._leave_asked = 0.0
        self._quiet_until = 0.0
        self._pasted = ""
        self.buffer = Buffer(
            multiline=True,
            history=history,
            completer=completer,
            complete_while_typing=Condition(self._is_command),
            accept_handler=self._accept,
        )
        self._search = SearchToolbar(
            forward_search_prompt="search: ", backward_search_prompt="search: "
        )
        self._app: Application[PromptLine] = Application(
            layout=self._layout(glyphs),
            key_bindings=prompt_keys(self, suspend),
            style=_STYLE,
            color_depth=None if colour else ColorDepth.DEPTH_1_BIT,
            input=keys,
            output=output,
        )

    def read(self, default: str = "", *, send: bool = False) -> PromptLine:
        """Return the next message; ``default`` is text that waits, or that is sent at once."""
        self._pasted = default
        self._leave_asked = 0.0
        self.buffer.reset(Document(default))
        return self._app.run(pre_run=self._send_soon if send else None)

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
        if self.buffer.cursor_position == 0:
            self._pasted = text
        self.buffer.insert_text(text)

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
        self._app.erase_when_done = True
        self._app.exit(exception=EOFError())

    def _accept(self, buffer: Buffer) -> bool:
        is_pasted = bool(self._pasted) and buffer.text.startswith(self._pasted)
        # bytes that were no UTF-8 come in as lone surrogates, which no tokenizer takes
        text = buffer.text.encode("utf-8", "replace").decode()
        self._app.exit(result=PromptLine(text, is_pasted), style="class:accepted")
        return True

    def _is_command(self) -> bool:
        text = self.buffer.text
        return text.startswith("/") and not (self._pasted and text.startswith(self._pasted))

    def _layout(self, glyphs: Glyphs) -> Layout:
        window = Window(
            BufferControl(
                buffer=self.buffer,
                search_buffer_control=self._search.control,
                input_processors=[
                    HighlightIncrementalSearchProcessor(),
                    HighlightSelectionProcessor(),
                ],
                preview_search=True,
            ),
            wrap_lines=True,
            dont_extend_height=True,
            get_line_prefix=lambda line, wraps: (
                [("class:prompt", f"{glyphs.prompt} ")] if line == wraps == 0 else []
            ),
        )
        toolbar = ConditionalContainer(
            Window(FormattedTextControl(self._toolbar_text), height=1, style="class:toolbar"),
            filter=~is_done & ~is_searching & ~has_completions,
        )
        menu = CompletionsMenu(max_height=_MENU_ROWS, scroll_offset=1)
        return Layout(HSplit([window, self._search, menu, toolbar]), focused_element=window)

    def _toolbar_text(self) -> StyleAndTextTuples:
        columns = self._output.get_size().columns
        if self._hint and time.monotonic() < self._hint[1]:
            return [("class:toolbar", self._hint[0][: columns - 1])]
        return [("class:toolbar", self._toolbar(self.buffer.text, columns - 1))]
