"""What each role of text looks like: the one place where colours are chosen.

A background is never set. The colours keep a contrast of 5.3 on the usual backgrounds, and no
two of them differ by red and green alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from prompt_toolkit.output import ColorDepth
from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style
from rich.theme import Theme as RichTheme

ThemeSetting = Literal["auto", "dark", "light", "none"]

# "tint" is what "accepted" is for words: without colour they need a line, bars do not
_PLAIN = {
    "strong": "bold",
    "dim": "",
    "accepted": "",
    "tint": "underline",
    "warn": "bold",
    "error": "bold",
}
_DARK = {
    "strong": "bold",
    "dim": "#9AA5AD",
    "accepted": "#56B4E9",
    "tint": "#56B4E9",
    "warn": "#E69F00",
    "error": "#FF9A7A",
}
_LIGHT = {
    "strong": "bold",
    "dim": "#5A646B",
    "accepted": "#005A9C",
    "tint": "#005A9C",
    "warn": "#8A5200",
    "error": "#A8320A",
}
_DARK_16 = {
    "strong": "bold",
    "dim": "dim",
    "accepted": "cyan",
    "tint": "cyan",
    "warn": "yellow",
    "error": "red",
}
_LIGHT_16 = {**_DARK_16, "accepted": "blue", "tint": "blue", "warn": "magenta"}

_SYSTEMS = {
    "standard": ColorSystem.STANDARD,
    "256": ColorSystem.EIGHT_BIT,
    "truecolor": ColorSystem.TRUECOLOR,
}
_DEPTHS = {
    None: ColorDepth.DEPTH_1_BIT,
    ColorSystem.STANDARD: ColorDepth.DEPTH_4_BIT,
    ColorSystem.EIGHT_BIT: ColorDepth.DEPTH_8_BIT,
    ColorSystem.TRUECOLOR: ColorDepth.DEPTH_24_BIT,
}
_ONE_COLOUR = ("vt100", "vt102", "vt220", "vt320", "xterm-mono", "ansi-mono")


@dataclass(frozen=True, slots=True)
class Theme:
    """Style by role, as rich writes it; ``system`` are the colours that the terminal has."""

    styles: Mapping[str, str]
    system: ColorSystem | None = None

    @property
    def has_colour(self) -> bool:
        return self.styles is not _PLAIN

    @property
    def depth(self) -> ColorDepth:
        """The same as ``system``, for prompt-toolkit."""
        return _DEPTHS[self.system]

    def escaped(self, text: str, role: str) -> str:
        """``text`` with the escape sequences of its role."""
        return self.rendered(text, Style.parse(self.styles[role]))

    def rendered(self, text: str, style: Style) -> str:
        """``text`` with the escape sequences of a style; without colour bold and underline stay."""
        if not self.has_colour:
            style = Style(bold=style.bold, underline=style.underline)
        return style.render(text, color_system=self.system or ColorSystem.STANDARD)

    def for_rich(self) -> RichTheme:
        """So that text which rich lays out, rules and the like, is dim in the same way."""
        return RichTheme({"dim": self.styles["dim"]}, inherit=False)

    def in_prompt(self, role: str) -> str:
        """The style of a role as prompt-toolkit writes it, where colour names are longer."""
        style = self.styles[role]
        is_name = style.isalpha() and style not in ("bold", "dim", "underline")
        return f"ansi{style}" if is_name else style


NO_COLOUR = Theme(_PLAIN)


def theme_for(
    console: Console, setting: ThemeSetting = "auto", *, has_light_ground: bool = False
) -> Theme:
    """What fits the terminal; with ``auto`` its background decides between dark and light."""
    system = _SYSTEMS.get(console.color_system or "")
    if system is None or console.no_color or os.environ.get("TERM") in _ONE_COLOUR:
        return NO_COLOUR
    if setting == "none":
        return Theme(_PLAIN, system)
    is_light = setting == "light" or (setting == "auto" and has_light_ground)
    if system is ColorSystem.STANDARD:
        return Theme(_LIGHT_16 if is_light else _DARK_16, system)
    return Theme(_LIGHT if is_light else _DARK, system)
