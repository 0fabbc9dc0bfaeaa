"""Makes the pictures of the README and of these documents from real runs.

    PYTHONPATH=tests python docs/make_pictures.py [NAME ...]

Each picture is what a terminal shows while the program runs with the default model and a fixed
seed; the figures in it are those of the machine that made it. ``make docs`` runs this.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from pyte.screens import Char
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text
from tools.program import COMMAND
from tools.terminal import CTRL_C, CTRL_D, ENTER, Terminal

FOLDER = Path(__file__).parent
CHAT = ("chat", "-P", "smollm2", "-s", "7", "--temp", "0")
CODE = "Write a Python class for a stack with push, pop and peek, then explain each method."
AGAIN = "Show the same class again, with a docstring in every method."
SPEC = "drafters    "  # begins a row of /spec and no other
FAINT = "#9aa5ad"  # rich would blend it too far into the background to be read
FRAME_END = "\x1b[?2026l"
_DEADLINE_S = 600.0
# rich's own, but for the fonts: nothing is fetched to look at a picture
SVG = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
    font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
    font-size: {char_height}px;
    line-height: {line_height}px;
    font-variant-east-asian: full-width;
}}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


class Scene(Terminal):
    """A run of the program without history or saved chats, and a picture of its screen."""

    def __init__(self, *arguments: str, columns: int, rows: int) -> None:
        self._folder = tempfile.TemporaryDirectory()
        folders = {f"XDG_{name}_HOME": self._folder.name for name in ("DATA", "STATE")}
        super().__init__(
            [*COMMAND, *arguments],
            columns=columns,
            rows=rows,
            env={**folders, "COLORTERM": "truecolor"},
            deadline_s=_DEADLINE_S,
        )

    def wait_context(self, number: int) -> None:
        """Wait until the panel of an answer counts ``number`` tokens, and a frame is whole."""

        def is_there() -> bool:
            counted = re.search(r"context ([\d,]+) / .*ctrl-c stop", "\n".join(self.screen()))
            if counted is None or not self.raw.endswith(FRAME_END):
                return False
            return int(counted[1].replace(",", "")) >= number

        self.wait(is_there, f"{number} tokens in the context")

    def save(self, name: str) -> None:
        """Write the rows in view, without the blank ones at the end, as ``name``.svg."""
        rows = [self._row(number) for number in range(self._screen.lines)]
        while rows and not rows[-1].plain.strip():
            rows.pop()
        console = Console(
            record=True,
            file=io.StringIO(),
            width=self._screen.columns,
            force_terminal=True,
            color_system="truecolor",
        )
        for row in rows:
            console.print(row, no_wrap=True, crop=True)
        svg = console.export_svg(
            title="outrider", theme=SVG_EXPORT_THEME, code_format=SVG, unique_id=name
        )
        (FOLDER / f"{name}.svg").write_text(svg, encoding="utf-8")

    def _row(self, number: int) -> Text:
        line, row = self._screen.buffer[number], Text()
        for column in range(self._screen.columns):
            row.append(line[column].data, _style(line[column]))
        row.rstrip()
        return row


def _style(cell: Char) -> Style:
    is_faint = cell.blink  # where the emulated screen keeps it
    return Style(
        color=_colour(cell.fg) or (FAINT if is_faint else None),
        bgcolor=_colour(cell.bg),
        bold=cell.bold,
        underline=cell.underscore,
        reverse=cell.reverse,
    )


def _colour(name: str) -> str | None:
    """An emulator's name of a colour in rich's words."""
    if name == "default":
        return None
    if re.fullmatch("[0-9a-f]{6}", name):
        return f"#{name}"
    return name.replace("brown", "yellow").replace("bright", "bright_")


def screen() -> None:
    """The full panel under an answer that repeats much of the one before: drafts pay."""
    with Scene(*CHAT, columns=100, rows=30) as scene:
        scene.wait_for("›")
        scene.send(CODE + ENTER)
        scene.wait_for("tok/s ·")
        scene.send(AGAIN + ENTER)
        scene.wait_context(430)
        scene.save("screen")
        scene.send(CTRL_C)


def stats() -> None:
    """What /stats and /spec say after two answers."""
    with Scene(*CHAT, columns=100, rows=30) as scene:
        scene.wait_for("›")
        for number, message in enumerate((CODE, AGAIN), start=1):
            scene.send(message + ENTER)
            scene.wait_for("tok/s ·", count=number)
        scene.send("\x0c/stats" + ENTER)
        scene.wait_for("session  2 turns")
        scene.send("/spec" + ENTER)
        scene.wait_for(SPEC)
        scene.wait(lambda: "\nsmollm2 ·" in scene.text().split(SPEC)[-1], "the toolbar")
        scene.save("stats")
        scene.send(CTRL_D)


def narrow() -> None:
    """The chat in forty columns."""
    with Scene(*CHAT, columns=40, rows=18) as scene:
        scene.wait_for("›")
        scene.send("Why is the sky blue?" + ENTER)
        scene.wait(lambda: len("".join(scene.screen())) > 420, "an answer of some rows")
        scene.wait(lambda: scene.raw.endswith(FRAME_END), "a whole frame")
        scene.save("narrow")
        scene.send(CTRL_C)


def doctor() -> None:
    """What the doctor says of this machine."""
    with Scene("doctor", "-P", "smollm2", columns=100, rows=40) as scene:
        scene.wait_exit()
        scene.save("doctor")


PICTURES: dict[str, Callable[[], None]] = {
    made.__name__: made for made in (screen, stats, narrow, doctor)
}


def main(names: Sequence[str]) -> None:
    for name in names or PICTURES:
        PICTURES[name]()
        print(f"docs/{name}.svg")


if __name__ == "__main__":
    main(sys.argv[1:])
