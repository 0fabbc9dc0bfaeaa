"""The live panel under an answer: five rows, three, one or none, by the terminal's size.

Rows are lists of ``(text, role)``; what a role looks like is the renderer's matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from outrider.cli.glyphs import Glyphs
from outrider.cli.stats_view import (
    SHORT_SYNTHETIC,
    fit,
    fraction,
    percent,
    seconds,
    short_fraction,
    three_digits,
)

Form = Literal["full", "mid", "line", "none"]
Role = Literal["strong", "dim", "accepted", "warn"]
Row = list[tuple[str, Role]]

_CONTEXT_WARNING = 0.8
_BAR_CELLS = 20
_WORTH_A_WORD_S = 1.0  # saved by what is cached of a prompt


@dataclass(frozen=True, slots=True)
class PanelView:
    """The figures of one moment; None where a value does not exist yet.

    ``gain`` says how many times as fast as plain decoding that is, where ``is_drafting``; it is
    estimated as long as too few plain steps were timed.
    ``positions`` are the acceptance rates by position that enough drafts reached. ``state``
    says how drafts are made or why there are none, ``short_state`` the latter in few words.
    """

    now: float | None = None
    mean: float | None = None
    is_drafting: bool = False
    gain: float | None = None
    is_gain_estimated: bool = False
    speeds: tuple[float, ...] = ()
    first_token_s: float | None = None
    acceptance_rate: float | None = None
    mean_accepted_length: float | None = None
    drafts: int = 0
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    positions: tuple[float, ...] = ()
    state: str = ""
    short_state: str | None = None
    drafters: str = ""
    verification: str | None = None
    context_used: int = 0
    n_ctx: int = 0
    synthetic: str | None = None


def panel_form(columns: int, rows: int) -> Form:
    """The form that fits; it changes only when the terminal is resized."""
    if columns >= 90 and rows >= 26:
        return "full"
    if columns >= 60 and rows >= 16:
        return "mid"
    return "line" if columns >= 30 and rows >= 8 else "none"


def panel_rows(view: PanelView, columns: int, rows: int, glyphs: Glyphs) -> list[Row]:
    """The panel in the form for this size; no row is wider than ``columns - 1``."""
    form, width = panel_form(columns, rows), columns - 1
    body: list[Row] = []
    if form == "full":
        body = _full(view, width, glyphs)
    elif form == "mid":
        body = _mid(view, width, glyphs)
    elif form == "line":
        body = [_line(view, width, glyphs)]
    if view.synthetic and form != "none":
        body.insert(0, _synthetic(view.synthetic, width))
    return [cut(row, width) for row in body]


def _full(view: PanelView, width: int, glyphs: Glyphs) -> list[Row]:
    speed: Row = [
        *_speed(view, glyphs),
        (f"   mean {three_digits(view.mean, glyphs):>4}   ", "dim"),
        (sparkline(view.speeds, 20, glyphs), "accepted"),
    ]
    if view.is_drafting:
        about = "~" if view.is_gain_estimated else ""
        speed.append((f"  {about + fraction(view.gain, glyphs):>5} times plain", "dim"))
    counts = [
        f"acceptance {fraction(view.acceptance_rate, glyphs):>4}",
        f"mean accepted length {fraction(view.mean_accepted_length, glyphs):>4}",
        f"drafted {view.drafted:,}",
        f"accepted {view.accepted:,}",
        f"in {view.drafts:,} of {view.steps:,} steps",
    ]
    return [
        spread(speed, f"first token {seconds(view.first_token_s, glyphs):>6}", width),
        [(" " + fit(counts, "   ", width - 1), "dim")],
        _positions(view.positions, " by position", "   ", width, glyphs),
        _state(view, width, glyphs, verification=True),
        spread(_context(view, 10, glyphs), "ctrl-o tint   ctrl-c stop", width),
    ]


def _mid(view: PanelView, width: int, glyphs: Glyphs) -> list[Row]:
    speed: Row = [
        *_speed(view, glyphs),
        (f"  mean {three_digits(view.mean, glyphs):>4}  ", "dim"),
        (sparkline(view.speeds, 12, glyphs), "accepted"),
    ]
    rates = [
        f"acceptance {fraction(view.acceptance_rate, glyphs):>4}",
        f"mean length {fraction(view.mean_accepted_length, glyphs):>4}",
    ]
    speed.append(("   " + fit(rates, "  ", width - row_width(speed) - 3), "dim"))
    state = _state(view, width, glyphs, verification=False)
    if view.positions:
        state += _positions(view.positions, "  ", " ", width - row_width(state), glyphs)
    counts = f"   {view.accepted:,} of {view.drafted:,}"
    if view.drafted and row_width(state) + len(counts) <= width:
        state.append((counts, "dim"))
    return [speed, state, _mid_context(view, width, glyphs)]


def _mid_context(view: PanelView, width: int, glyphs: Glyphs) -> Row:
    names = [name for name in (view.drafters, view.verification) if name]
    lead = f" {fit(names, f' {glyphs.separator} ', 30)}  " if names else " "
    stop = "ctrl-c stop"
    right = f"first {seconds(view.first_token_s, glyphs)} {stop}"
    aired = f"{lead} " if names else lead
    for words, cells, end in ((aired, 6, right), (lead, 6, stop), (lead, 0, stop), (" ", 0, stop)):
        row: Row = [(words, "dim"), *_context(view, cells, glyphs, spaced=False)]
        if row_width(row) + len(end) < width:
            break
    return spread(row, right if row_width(row) + len(right) < width else stop, width)


def _line(view: PanelView, width: int, glyphs: Glyphs) -> Row:
    if view.short_state:
        room = width - row_width(_speed(view, glyphs)) - 3
        words = view.short_state if len(view.short_state) <= room else "no drafts"
        return [*_speed(view, glyphs), (f"   {words}", "warn")]
    rates = (
        f" acc {short_fraction(view.acceptance_rate, glyphs):>3}"
        f" len {fraction(view.mean_accepted_length, glyphs):>4}"
    )
    context = f"ctx {percent(view.context_used, view.n_ctx).replace(' ', '')}"
    role = context_role(view.context_used, view.n_ctx)
    return spread([*_speed(view, glyphs), (rates, "dim")], context, width, role)


def _speed(view: PanelView, glyphs: Glyphs) -> Row:
    return [(f" {three_digits(view.now, glyphs):>4} tok/s", "strong")]


def _state(view: PanelView, width: int, glyphs: Glyphs, *, verification: bool) -> Row:
    role: Role = "warn" if view.short_state else "dim"
    words = view.state
    if len(words) >= width:
        words = view.short_state or words[: width - 1 - len(glyphs.ellipsis)] + glyphs.ellipsis
    row: Row = [(f" {words}", role)]
    rule = f"   verification {view.verification}" if view.verification else ""
    if verification and rule and row_width(row) + len(rule) <= width:
        row.append((rule, "dim"))
    return row


def _positions(rates: Sequence[float], label: str, gap: str, width: int, glyphs: Glyphs) -> Row:
    row: Row = [(label, "dim")]
    if not rates:
        row.append((f"{gap}{glyphs.dash}", "dim"))
    wide = len(gap) > 1
    for position, rate in enumerate(rates, 1):
        bar = glyphs.bar(rate) if glyphs.position_bars else ""
        before, after = (" ", " ") if wide and bar else ("", " " if wide or not bar else "")
        figures: Row = [
            (f"{gap}{position}{before}", "dim"),
            (bar, "accepted"),
            (f"{after}{short_fraction(rate)}", "dim"),
        ]
        if row_width(row) + row_width(figures) > width:
            break
        row += figures
    return row


def _context(view: PanelView, cells: int, glyphs: Glyphs, *, spaced: bool = True) -> Row:
    share = view.context_used / view.n_ctx if view.n_ctx else 0.0
    full, empty = glyphs.gauge(share, cells) if cells else ("", "")
    role = context_role(view.context_used, view.n_ctx)
    slash, gap = (" / ", "   ") if spaced else ("/", " ")
    lead = " " if spaced else ""
    return [
        (f"{lead}context {view.context_used:,}{slash}{view.n_ctx:,}{gap}", "dim"),
        (full, "accepted" if role == "dim" else role),
        (f"{empty}{gap if cells else ''}", "dim"),
        (f"{percent(view.context_used, view.n_ctx):>4}", role),
    ]


def context_role(used: int, n_ctx: int) -> Role:
    """How the share of the context in use is written: a warning when little is left."""
    return "warn" if used > _CONTEXT_WARNING * n_ctx else "dim"


def _synthetic(words: str, width: int) -> Row:
    return [(f" {words if len(words) < width else SHORT_SYNTHETIC}", "warn")]


def sparkline(values: Sequence[float], cells: int, glyphs: Glyphs) -> str:
    """One cell a value, the newest at the right, scaled from 0 to the largest."""
    shown = list(values)[-cells:]
    top = max(shown, default=0.0)
    return "".join(glyphs.bar(value, top) for value in shown).ljust(cells)


def row_width(row: Row) -> int:
    return sum(len(text) for text, _ in row)


def spread(row: Row, right: str, width: int, role: Role = "dim") -> Row:
    """``right`` at the right end, or left out where it does not fit."""
    gap = width - row_width(row) - len(right)
    return [*row, (" " * gap + right, role)] if right and gap >= 1 else row


def cut(row: Row, width: int) -> Row:
    """What of the row fits."""
    kept: Row = []
    for text, role in row:
        room = width - row_width(kept)
        if room > 0:
            kept.append((text[:room], role))
    return kept


def reading_row(
    done: int, total: int, elapsed_s: float, columns: int, glyphs: Glyphs, *, reused: int = 0
) -> Row:
    """How far the prompt has been read; ``reused`` tokens need not be, that may be worth a word."""
    speed = done / elapsed_s if done > 0 < elapsed_s else None
    speed_words = f"{three_digits(speed, glyphs)} tok/s"
    left = [f"{(total - done) / speed:,.0f} s left"] if speed else []
    width, share = columns - 1, percent(done, total)
    if columns < 60:
        parts = [" prompt", share.replace(" ", ""), speed_words, *left]
        return [(fit(parts, " ", width), "dim")]
    head, figures = f" reading prompt  {done:,} of {total:,} ", [f"{share:>4}", speed_words, *left]
    row = progress_row(head, done / total if total else 0.0, figures, width, glyphs)
    words = f"  {reused:,} reused"
    if speed and reused > _WORTH_A_WORD_S * speed and row_width(row) + len(words) <= width:
        row.append((words, "dim"))
    return row


def progress_row(
    head: str, share: float, figures: Sequence[str], width: int, glyphs: Glyphs
) -> Row:
    """A bar between words; where there is little room it is shorter, then figures are left out."""
    room = width - len("".join([head, "  ".join(["", *figures]), *glyphs.gauge_ends]))
    full, empty = glyphs.gauge(share, min(_BAR_CELLS, room)) if room > 0 else ("", "")
    words = fit(figures, "  ", width - len(f"{head}{full}{empty}  "))
    return [(head, "dim"), (full, "accepted"), (f"{empty}  {words}", "dim")]


def type_ahead_row(text: str, *, is_sent: bool, columns: int, glyphs: Glyphs) -> Row:
    """What was typed while the answer is written; its end where it is too long."""
    lead = f" next {glyphs.prompt} "
    note = ""
    if is_sent:
        note = ", sent when this answer ends" if columns >= 60 else ", sent after"
    room = columns - 1 - len(lead) - len(note)
    if len(text) > room:
        text = glyphs.ellipsis + text[len(text) - room + len(glyphs.ellipsis) :]
    return [(f"{lead}{text}{note}", "dim")]
