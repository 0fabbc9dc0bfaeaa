"""A few rows at the cursor that survive a resize of their terminal."""

from __future__ import annotations

import os
import sys
from asyncio import TimerHandle
from collections.abc import Callable
from typing import TypeVar

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Point, Size
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent, merge_key_bindings
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import Layout
from prompt_toolkit.output import ColorDepth, Output
from prompt_toolkit.styles import BaseStyle

_REST_S = 0.3
_ANSWER_S = 0.2

Result = TypeVar("Result")


class PromptApplication(Application[Result]):
    """Paints nothing while the size changes, then erases the rows as they stand now.

    A terminal that became narrower may have wrapped the rows anew. Whether it does is seen from
    where the cursor went; tmux is known to. In doubt it did not: that may leave a copy of the
    rows, the other error would eat what stands above them.
    """

    def __init__(
        self,
        *,
        layout: Layout,
        key_bindings: KeyBindings,
        style: BaseStyle,
        color_depth: ColorDepth | None,
        input: Input,
        output: Output,
    ) -> None:
        self._rest: TimerHandle | None = None
        self._is_asking = False
        self._reflows = True if os.environ.get("TMUX") else None
        self._drawn_size: Size | None = None
        super().__init__(
            layout=layout,
            key_bindings=merge_key_bindings([key_bindings, self._reports()]),
            style=style,
            color_depth=color_depth,
            erase_when_done=True,
            # elsewhere a signal tells
            terminal_size_polling_interval=0.5 if sys.platform == "win32" else None,
            input=input,
            output=output,
        )

    def give_way(self, act: Callable[[], None]) -> None:
        """Call ``act``, which uses the terminal, with the rows taken away meanwhile."""
        self.renderer.erase()
        act()
        self.invalidate()

    def scroll_away(self) -> None:
        """Go on at the top of an empty screen; what stood above goes to the scrollback."""
        self.renderer.erase()
        self.output.write_raw("\n" * (self.output.get_size().rows - 1))
        self.output.cursor_goto(0, 0)
        self.output.flush()

    def _on_resize(self) -> None:
        self._stop_rest()
        if self.loop:
            self._rest = self.loop.call_later(_REST_S, self._size_is_stable)

    def _redraw(self, render_as_done: bool = False) -> None:
        size = self.output.get_size()
        if render_as_done:
            if self._rest:
                self._stop_rest()
                self._erase()
            self._drawn_size = None
        elif self._rest:
            return
        elif self._drawn_size not in (None, size):
            # the signal that says so is still under way
            self._on_resize()
            return
        else:
            self._drawn_size = size
        super()._redraw(render_as_done)

    def _size_is_stable(self) -> None:
        columns = self.output.get_size().columns
        if self._reflows is None and self._caret.x >= columns and self.loop:
            self._is_asking = True
            self.output.ask_for_cpr()
            self.output.flush()
            self._rest = self.loop.call_later(_ANSWER_S, self._repaint)
        else:
            self._repaint()

    def _reports(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add(Keys.CPRResponse, save_before=lambda event: False)
        def cursor_is_at(event: KeyPressEvent) -> None:
            if not self._is_asking:
                return
            column, columns = int(event.data[:-1].split(";")[1]) - 1, self.output.get_size().columns
            # a cursor that only was pushed left stands in the last column
            if column != columns - 1:
                self._reflows = column == self._caret.x % columns
            elif self._caret.x % columns != columns - 1:
                self._reflows = False
            self._repaint()

        return keys

    def _repaint(self) -> None:
        self._stop_rest()
        self._erase()
        self._drawn_size = None
        self._redraw()

    def _erase(self) -> None:
        rows = self._rows_above_caret()
        self.output.write_raw("\r")
        self.output.cursor_up(rows)
        self.output.erase_down()
        self.renderer.reset()

    def _stop_rest(self) -> None:
        if self._rest:
            self._rest.cancel()
        self._rest, self._is_asking = None, False

    @property
    def _caret(self) -> Point:
        screen = self.renderer.last_rendered_screen
        return screen.get_cursor_position(self.layout.current_window) if screen else Point(0, 0)

    def _rows_above_caret(self) -> int:
        """How many rows the painted ones take now, from the first to that of the caret."""
        screen, caret = self.renderer.last_rendered_screen, self._caret
        columns = self.output.get_size().columns
        if not screen or not self._drawn_size or columns >= self._drawn_size.columns:
            return caret.y
        if not self._reflows:
            return caret.y
        rows = caret.x // columns
        for y in range(caret.y):
            cells = screen.data_buffer[y].items()
            width = max((x + cell.width for x, cell in cells if cell.char != " "), default=1)
            rows += -(-width // columns)
        return rows
