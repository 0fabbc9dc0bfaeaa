"""The colours: that they can be read, and that a terminal gets those it can show."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.styles import Style
from rich.color import Color
from rich.console import Console
from tools.terminal import ENTER
from tools.zoo_chat import zoo_chat

from outrider.cli.screen.theme import NO_COLOUR, Theme, ThemeSetting, theme_for

DARK_GROUNDS = ("#000000", "#1E1E1E", "#002B36", "#282A36")
LIGHT_GROUNDS = ("#FFFFFF", "#FDF6E3", "#F0F0F0")


def console(system: str | None = "truecolor", *, no_color: bool = False) -> Console:
    return Console(force_terminal=True, color_system=system, no_color=no_color)  # type: ignore[arg-type]


def luminance(colour: str) -> float:
    """Relative luminance, as the WCAG defines it."""
    shares = [value / 255 for value in Color.parse(colour).get_truecolor()]
    linear = [s / 12.92 if s <= 0.03928 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted([luminance(one), luminance(other)])
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize(("setting", "grounds"), [("dark", DARK_GROUNDS), ("light", LIGHT_GROUNDS)])
def test_every_colour_can_be_read_on_the_usual_backgrounds(
    setting: ThemeSetting, grounds: tuple[str, ...]
) -> None:
    colours = {style for style in theme_for(console(), setting).styles.values() if "#" in style}
    assert len(colours) == 4
    assert min(contrast(colour, ground) for colour in colours for ground in grounds) >= 5.3


def test_the_background_decides_only_where_nobody_else_does() -> None:
    for setting in ("auto", "dark", "light"):
        light = theme_for(console(), setting, has_light_ground=True)
        dark = theme_for(console(), setting, has_light_ground=False)
        assert (light == dark) is (setting != "auto")


def test_sixteen_colours_come_by_name() -> None:
    dark, light = (theme_for(console("standard"), setting) for setting in ("dark", "light"))
    roles = ("dim", "accepted", "tint", "warn", "error")
    assert [dark.styles[role] for role in roles] == ["dim", "cyan", "cyan", "yellow", "red"]
    assert [light.styles[role] for role in roles] == ["dim", "blue", "blue", "magenta", "red"]


@pytest.mark.parametrize("system", ["standard", "256", "truecolor"])
def test_no_style_has_a_background_and_both_libraries_read_it(system: str) -> None:
    for setting in ("dark", "light", "none"):
        theme = theme_for(console(system), setting)
        for role, style in theme.styles.items():
            assert console().get_style(style or "none").bgcolor is None
            Style([("role", theme.in_prompt(role))])


@pytest.mark.parametrize(
    "theme",
    [
        theme_for(console("truecolor", no_color=True), "light"),
        theme_for(console(None)),
        theme_for(console(), "none"),
        NO_COLOUR,
    ],
)
def test_without_colour_bold_and_underline_are_left(theme: Theme) -> None:
    assert not theme.has_colour
    assert set(theme.styles.values()) == {"", "bold", "underline"}
    assert (theme.styles["tint"], theme.styles["accepted"]) == ("underline", "")


def test_text_of_a_role_gets_its_colour_or_bold() -> None:
    assert theme_for(console(), "dark").escaped("x", "accepted") == "\x1b[38;2;86;180;233mx\x1b[0m"
    assert [NO_COLOUR.escaped("x", role) for role in ("accepted", "warn")] == [
        "x",
        "\x1b[1mx\x1b[0m",
    ]


def test_a_terminal_of_one_colour_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "vt220")
    assert theme_for(console("standard")).depth is ColorDepth.DEPTH_1_BIT


def test_the_prompt_warns_of_a_full_context_and_sets_no_background(zoo: Path) -> None:
    background = re.compile(r"\x1b\[(?:\d+;)*(?:4[0-8]|10[0-7]|7)[;m]")
    warning = "38;2;230;159;0"
    flags = ("--theme", "dark", "-c", "512", "-n", "8")
    with zoo_chat(zoo, *flags, env={"COLORTERM": "truecolor"}) as terminal:
        terminal.wait_for("0 / 512  0 %")
        terminal.send("sky" + ENTER)
        terminal.wait_for("tok/s")
        terminal.wait_match(r"\n›\s+base")
        terminal.send("\x12sky")
        terminal.wait_for("search: sky   1 of 1")
        terminal.send("\x07" + "word " * 40)
        terminal.wait_match(r"~\d+ / 512")
        assert warning not in terminal.raw
        terminal.send("word " * 320)
        terminal.wait_match(r"~\d+ / 512  (8[1-9]|9\d|1\d\d) %")
        assert warning in terminal.raw
        assert not background.search(terminal.raw)


def test_a_theme_takes_effect_at_once(zoo: Path) -> None:
    truecolour = {"COLORTERM": "truecolor"}
    dark, light = "38;2;154;165;173", "38;2;90;100;107"
    with zoo_chat(zoo, "--theme", "dark", env=truecolour) as terminal:
        terminal.wait_for("›")
        terminal.wait_for("base")
        starts = [0]
        for number, theme in enumerate(("light", "none"), 1):
            starts.append(len(terminal.raw))
            terminal.send(f"/set theme={theme}" + ENTER)
            terminal.wait_for(f"\ntheme={theme}")
            # the toolbar of the next prompt, not that which stood under the command
            terminal.wait_for("\n›", count=number + 1)
            terminal.send("x")
            terminal.wait_for("› x")
            terminal.send("\x7f")
        shown = [terminal.raw[a:b] for a, b in pairwise([*starts, len(terminal.raw)])]
    afterwards = [text.rpartition("theme=")[2] for text in shown]
    assert dark in shown[0]
    assert light not in shown[0]
    assert light in afterwards[1]
    assert dark not in afterwards[1]
    assert not re.search(r"\x1b\[[\d;]*\b38;", afterwards[2])
    assert not re.search(r"\x1b\[[\d;]*\b48;", terminal.raw)
