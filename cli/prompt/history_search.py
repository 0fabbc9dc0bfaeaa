"""Searching the history: the row for it, and a buffer that looks into large pastes too."""

from __future__ import annotations

from typing import Any

from prompt_toolkit.application import get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import is_searching
from prompt_toolkit.layout import ConditionalContainer, Window
from prompt_toolkit.layout.controls import SearchBufferControl
from prompt_toolkit.layout.processors import AfterInput, BeforeInput
from prompt_toolkit.search import SearchDirection, SearchState, start_search, stop_search

from outrider.cli.prompt.paste_chips import PasteChips
from outrider.cli.stats_view import fit

_LABEL = "search: "


class MessageBuffer(Buffer):
    """A buffer in which a search finds the words of a paste, though a chip stands for it."""

    def __init__(self, chips: PasteChips, **settings: Any) -> None:
        self._chips = chips
        super().__init__(**settings)

    def _search(
        self, search_state: SearchState, include_current_position: bool = False, count: int = 1
    ) -> tuple[int, int] | None:
        place: tuple[int, int] | None = self.working_index, self.cursor_position
        for _ in range(count):
            if place is not None:
                place = self._next_place(search_state, *place, at_cursor=include_current_position)
        return place

    def _next_place(
        self, search_state: SearchState, index: int, cursor: int, *, at_cursor: bool
    ) -> tuple[int, int] | None:
        """Entry and cursor of the next match; the entries are looked through in a ring."""
        wanted, lines = search_state.text, self._working_lines
        is_forward = search_state.direction is SearchDirection.FORWARD
        places = self._chips.find(lines[index], wanted)
        if is_forward:
            here = [at for at in places if at > cursor or (at_cursor and at == cursor)]
        else:
            here = [at for at in reversed(places) if at < cursor]
        if here:
            return index, here[0]
        for distance in range(1, len(lines) + 1):
            other = (index + (distance if is_forward else -distance)) % len(lines)
            places = self._chips.find(lines[other], wanted)
            if places:
                return other, places[0 if is_forward else -1]
        return None


class HistorySearch:
    """Says what is searched for, which of how many messages is shown, and how to go on."""

    def __init__(self, messages: Buffer, chips: PasteChips) -> None:
        self._messages = messages
        self._chips = chips
        self._came_from = (0, 0)  # entry and cursor
        self._typed = Buffer(multiline=False)
        self.control = SearchBufferControl(
            buffer=self._typed,
            input_processors=[BeforeInput(_LABEL), AfterInput(self._after)],
        )
        self.row = ConditionalContainer(
            Window(self.control, height=1, style="class:search"), filter=is_searching
        )

    def start(self, direction: SearchDirection) -> None:
        """Look for what is typed from now on."""
        self._came_from = self._messages.working_index, self._messages.cursor_position
        start_search(direction=direction)

    def leave(self) -> None:
        """Take nothing: the line is as it was."""
        stop_search()
        self._messages.working_index, self._messages.cursor_position = self._came_from

    def _after(self) -> str:
        room = get_app().output.get_size().columns - len(_LABEL) - len(self._typed.text) - 1
        parts = [self._found(), "enter takes it", "ctrl-g leaves"]
        return "   " + fit([part for part in parts if part], "   ", room - 3)

    def _found(self) -> str:
        if not self._typed.text or self.control not in get_app().layout.search_links:
            return ""
        wanted, entries = self._typed.text, self._messages.history.get_strings()
        # as they are found; the one shown may be edited, or not sent yet
        newest_first = dict.fromkeys(reversed(entries))
        found = [entry for entry in newest_first if self._chips.holds(entry, wanted)]
        direction = self.control.searcher_search_state.direction
        shown = self._messages.document_for_search(SearchState(wanted, direction)).text
        if self._chips.holds(shown, wanted) and shown not in found:
            found.insert(0, shown)
        if shown not in found:
            return "no match"
        return f"{found.index(shown) + 1} of {len(found)}"
