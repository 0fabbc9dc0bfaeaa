"""What a benchmark shows: one live row while it runs, a table or JSON when it is done."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from outrider.cli.bench.result import BenchResult
from outrider.cli.glyphs import Glyphs, glyphs_for
from outrider.cli.lines import print_lines

Tell = Callable[[str], None]


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


def finish(
    result: BenchResult,
    table: Callable[[Glyphs], Sequence[str]],
    as_json: bool,
    output: str | None,
) -> int:
    """Save the result, then print it as a table or as JSON."""
    if output is not None:
        result.save(Path(output))
    if as_json:
        print_lines(json.dumps(result.as_json()))
    else:
        print_lines(*table(glyphs_for(sys.stdout.encoding)))
    return 0
