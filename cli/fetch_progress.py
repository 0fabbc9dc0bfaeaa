"""Fetching a model file with a bar on a terminal, or one line where there is none."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from outrider.cli.errors import printable, say
from outrider.profiles.model_source import ModelSource

if TYPE_CHECKING:
    from outrider.profiles.progress import FetchProgress

_WORDS = {"download": "fetching", "check": "checking", "join": "joining"}
_MEGABYTE = 1e6


def fetch_file(source: ModelSource) -> Path:
    """The file of ``source``; how far it has come is told on stderr.

    Nothing is told about a file that is here already.
    """
    from outrider.profiles.sources import fetch

    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    with _Bar() if is_terminal else _Line() as tell:
        return fetch(source, progress=tell)


class _Line:
    """One line when a download begins, or when another process does it."""

    def __init__(self) -> None:
        self._is_told = False

    def __enter__(self) -> _Line:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def __call__(self, at: FetchProgress) -> None:
        if at.phase == "wait":
            say(printable(f"waiting: another process fetches {at.name}"))
        elif at.phase == "download" and not self._is_told:
            self._is_told = True
            say(printable(f"fetching {at.name}, once, from {at.origin}"))


class _Bar(_Line):
    """That line, a live bar below it, and a last line in the bar's place."""

    def __init__(self) -> None:
        super().__init__()
        self._started = time.monotonic()
        self._num_bytes: dict[int, int] = {}
        self._progress: Any = None
        self._task: Any = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._progress is not None:
            self._progress.stop()
        if error is None and self._is_told:
            megabytes = sum(self._num_bytes.values()) / _MEGABYTE
            say(f"fetched {megabytes:,.1f} MB in {time.monotonic() - self._started:,.0f} s")

    def __call__(self, at: FetchProgress) -> None:
        super().__call__(at)
        if at.phase == "wait":
            return
        if at.phase == "download":
            self._num_bytes[at.part] = at.done
        if self._progress is None:
            self._progress = _bar()
            self._progress.start()
            self._task = self._progress.add_task("")
        part = f", part {at.part} of {at.parts}" if at.parts > 1 else ""
        self._progress.update(
            self._task,
            description=f" {_WORDS[at.phase]}{part}",
            completed=at.done,
            total=at.total,
        )


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    return Progress(
        TextColumn("{task.description}", markup=False),
        DownloadColumn(),
        BarColumn(bar_width=20),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        TextColumn("ctrl-c stops"),
        console=Console(stderr=True),
        transient=True,
        refresh_per_second=4,
    )
