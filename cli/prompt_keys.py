"""What the keys do at the prompt."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.utils import suspend_to_background_supported

if TYPE_CHECKING:
    from outrider.cli.prompt import Prompt

_TAB_WIDTH = 4


def prompt_keys(prompt: Prompt, suspend: Callable[[], None]) -> KeyBindings:
    """The bindings that differ from the emacs ones."""
    keys = KeyBindings()
    editing = ~is_searching

    @keys.add("enter", filter=editing)
    def send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state and buffer.complete_state.current_completion:
            buffer.complete_state = None
        elif buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        elif buffer.text.strip():
            buffer.validate_and_handle()

    @keys.add("escape", "enter", filter=editing)
    @keys.add("c-j", filter=editing)
    def new_line(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    @keys.add(Keys.BracketedPaste)
    def paste(event: KeyPressEvent) -> None:
        prompt.pasted(clean_paste(event.data))

    @keys.add("c-c", filter=editing)
    @keys.add("<sigint>")
    def interrupt(event: KeyPressEvent) -> None:
        prompt.interrupt()

    @keys.add("c-\\")
    @keys.add("c-d", filter=editing & Condition(lambda: not prompt.buffer.text))
    def leave(event: KeyPressEvent) -> None:
        prompt.leave()

    @keys.add("tab", filter=editing & Condition(lambda: not prompt.buffer.text.startswith("/")))
    def indent(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        buffer.insert_text(" " * (_TAB_WIDTH - buffer.document.cursor_position_col % _TAB_WIDTH))

    @keys.add("c-z", filter=Condition(suspend_to_background_supported))
    def pause(event: KeyPressEvent) -> None:
        run_in_terminal(suspend)

    @keys.add("c-x", "c-e", filter=editing)
    @keys.add("c-g", filter=editing)
    def edit(event: KeyPressEvent) -> None:
        event.current_buffer.open_in_editor()

    return keys


def clean_paste(text: str) -> str:
    """CRLF and CR become LF; control characters but newline and tab go."""
    from outrider.cli.errors import printable

    return printable(text.replace("\r\n", "\n").replace("\r", "\n"))
