"""What the keys do at the prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completion
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.search import SearchDirection
from prompt_toolkit.utils import suspend_to_background_supported

from outrider.cli.prompt.paste_parser import PASTE_END

if TYPE_CHECKING:
    from outrider.cli.prompt.prompt import Prompt

_PASTE_START = "\x1b[200~"
_TAB_WIDTH = 4


def prompt_keys(prompt: Prompt) -> KeyBindings:
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

    @keys.add(Keys.Any, save_before=lambda event: not event.is_repeat)
    def insert(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text(prompt.chips.escape(event.data) * event.arg)

    @keys.add(Keys.BracketedPaste, filter=editing)
    def paste(event: KeyPressEvent) -> None:
        prompt.pasted(event.data)

    @keys.add(Keys.BracketedPaste, filter=is_searching)
    def search_for(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text(clean_paste(event.data).partition("\n")[0])

    @keys.add("c-c", filter=editing)
    @keys.add("<sigint>")
    def interrupt(event: KeyPressEvent) -> None:
        prompt.interrupt()

    @keys.add("c-\\")
    @keys.add("c-d", filter=editing & Condition(lambda: not prompt.buffer.text))
    def leave(event: KeyPressEvent) -> None:
        prompt.leave()

    @keys.add("tab", filter=editing & ~Condition(prompt.is_command))
    def indent(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        buffer.insert_text(" " * (_TAB_WIDTH - buffer.document.cursor_position_col % _TAB_WIDTH))

    @keys.add("tab", filter=editing & Condition(prompt.is_command))
    def complete(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if (only := _only_completion(buffer)) is not None:
            buffer.apply_completion(only)
        elif buffer.complete_state:
            buffer.complete_next()
        else:
            buffer.start_completion(insert_common_part=True)

    @keys.add("c-p", filter=editing)
    def older(event: KeyPressEvent) -> None:
        event.current_buffer.history_backward(count=event.arg)

    @keys.add("c-n", filter=editing)
    def newer(event: KeyPressEvent) -> None:
        event.current_buffer.history_forward(count=event.arg)

    @keys.add("c-r", filter=editing)
    def search_back(event: KeyPressEvent) -> None:
        prompt.search.start(SearchDirection.BACKWARD)

    @keys.add("c-s", filter=editing)
    def search_forward(event: KeyPressEvent) -> None:
        prompt.search.start(SearchDirection.FORWARD)

    @keys.add("c-c", filter=is_searching)
    @keys.add("c-g", filter=is_searching)
    def leave_search(event: KeyPressEvent) -> None:
        prompt.search.leave()

    @keys.add("c-o", filter=editing)
    def tint(event: KeyPressEvent) -> None:
        prompt.hint(prompt.tint())

    @keys.add("c-l")
    def clear_screen(event: KeyPressEvent) -> None:
        prompt.clear_screen()

    @keys.add("c-z", filter=Condition(suspend_to_background_supported))
    def pause(event: KeyPressEvent) -> None:
        prompt.suspend()

    @keys.add("c-x", "c-e", filter=editing)
    @keys.add("c-g", filter=editing)
    def edit(event: KeyPressEvent) -> None:
        prompt.edit()

    return keys


def _only_completion(buffer: Buffer) -> Completion | None:
    """What the line can be completed to, if that is one thing; the menu may be under way."""
    state = buffer.complete_state
    choices = state.completions if state else []
    if not choices:
        asked = CompleteEvent(completion_requested=True)
        choices = list(buffer.completer.get_completions(buffer.document, asked))
    return choices[0] if len(choices) == 1 else None


def clean_paste(text: str) -> str:
    """CRLF and CR become LF; paste marks and control characters but newline and tab go."""
    from outrider.cli.errors import printable

    for mark in (_PASTE_START, PASTE_END):
        text = text.replace(mark, "")
    return printable(text.replace("\r\n", "\n").replace("\r", "\n"))
