"""What a benchmark shows: one live row while it runs, a table or JSON when it is done."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from outrider.cli.bench.result import BenchResult
from outrider.cli.glyphs import Glyphs, glyphs_for
from outrider.cli.lines import print_lines

Tell = Callable[[str], None]
Table = Callable[[Glyphs], Sequence[str]]


@contextlib.contextmanager
def live_row() -> Iterator[Tell]:
    """A row on stderr that says how far it is, and vanishes; nothing if that is no terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda text: None
        return
    width = 0

    def tell(text: str) -> None:
        nonlocal width
        sys.stderr.write(f"\r {text}".ljust(width))
        sys.stderr.flush()
        width = len(text) + 2

    try:
        yield tell
    finally:
        sys.stderr.write("\r" + " " * width + "\r")
        sys.stderr.flush()


def duration(seconds: float) -> str:
    """How long something takes, for the live row."""
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def finish(result: BenchResult, table: Table, as_json: bool, output: str | None) -> int:
    """Save the result, then print it as a table or as JSON."""
    if output is not None:
        result.save(Path(output))
    return show(result.as_json(), table, as_json)


def show(value: Mapping[str, object], table: Table, as_json: bool) -> int:
    """Print ``value`` as JSON, or the table of it."""
    print_lines(*([json.dumps(value)] if as_json else table(glyphs_for(sys.stdout.encoding))))
    return 0
