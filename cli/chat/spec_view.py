"""``/spec``: how drafts are made and verified, and what they cost and bring here."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from outrider.cli.bench.break_even import LengthCost
from outrider.cli.chat.running_models import RunningModels
from outrider.cli.glyphs import UNICODE, Glyphs
from outrider.cli.stats_view import fraction, pause_words, three_digits
from outrider.speculative.outlook import Outlook

_LENGTHS = (1, 2, 3, 4, 6, 8)
_LABELS = ("length", "step cost", "needs", "has", "gain")
_NARROW_LABELS = ("length", "cost", "needs", "has", "gain")
_NARROW = 60


def spec_rows(models: RunningModels, width: int, glyphs: Glyphs = UNICODE) -> list[str]:
    """Everything ``/spec`` shows."""
    rows = spec_head(models, width)
    pauses = {one.drafter: one.pause for one in models.session.decisions}
    in_force = {one.drafter: str(one.length) for one in models.session.decisions}
    outlooks = models.engine.outlooks(models.session.context_used)
    is_chain = len(outlooks) > 1
    for one in outlooks:
        now = in_force.get(one.drafter, glyphs.dash)
        if not models.engine.speculation.adaptive:
            now = str(one.longest)
        draw = _narrow_table if width < _NARROW else _table
        rows += draw(one, now, is_chain, glyphs)
        pause = pauses.get(one.drafter)
        if pause is not None:
            rows += _fitted([pause_words(pause)], width)
    return rows


def spec_head(models: RunningModels, width: int) -> list[str]:
    """What is in use, without the table."""
    names, speculation = models.engine.drafter_names, models.engine.speculation
    if not names:
        hint = "; /spec type=ngram-edit needs no second model"
        words = models.off_words()
        return _fitted([words + hint if words == "no drafter" else words], width)
    length = f"length {models.longest}, fixed"
    if speculation.adaptive:
        length = f"adaptive 0 to {models.longest}"
    rule = f"verification {models.rule}{_why(models)}"
    is_on = "on" if models.session.is_drafting else "off for the next message, then on"
    rows = [f"speculation {is_on}, {length}", rule]
    if len("   ".join(rows)) < width:
        rows = ["   ".join(rows)]
    rows.append(f"{'drafters':<12}{', then '.join(names)}")
    if models.once and models.session.is_drafting:
        rows.append(f"for the next message only: {models.once}")
    return _fitted(rows, width)


def _why(models: RunningModels) -> str:
    """Why that rule, where it was not the user who said so."""
    rule, sampling = models.rule, models.profile.sampling
    if rule == "synthetic":
        return " (coins decide)"
    if models.engine.speculation.verify != "auto":
        return ""
    if rule == "greedy":
        return " (auto: temperature 0)"
    if rule == "rejection":
        return " (auto: drafter has a law)"
    return " (auto: mirostat learns)" if sampling.mirostat else " (auto: drafter has no law)"


def _figures(one: Outlook, glyphs: Glyphs) -> list[list[str]]:
    """For each length the words under :data:`_LABELS`."""
    shown = [length for length in _LENGTHS if length <= one.longest]
    if not one.step_cost:
        return [[str(length), *[glyphs.dash] * (len(_LABELS) - 1)] for length in shown]
    costs = [
        LengthCost(length, one.step_cost[length - 1], one.has[length - 1] if one.has else None)
        for length in shown
    ]
    return [
        [
            str(cost.length),
            fraction(cost.step_cost),
            fraction(cost.needs),
            fraction(cost.has, glyphs),
            fraction(cost.gain, glyphs),
        ]
        for cost in costs
    ]


def _table(one: Outlook, in_force: str, is_chain: bool, glyphs: Glyphs) -> list[str]:
    """A column for each length; several drafters are named at the right."""
    notes = {"step cost": _plain_words(one), "gain": f"in force: {in_force}"}
    if is_chain:
        notes["length"] = one.drafter
    rows = []
    for label, words in zip(_LABELS, zip(*_figures(one, glyphs), strict=True), strict=True):
        row = f"{label:<10}" + "".join(f"{word:>6}" for word in words)
        rows.append(f"{row}     {notes.get(label, '')}".rstrip())
    return rows


def _narrow_table(one: Outlook, in_force: str, is_chain: bool, glyphs: Glyphs) -> list[str]:
    """A row for each length."""
    rows = [one.drafter] if is_chain else []
    table = (_NARROW_LABELS, *_figures(one, glyphs))
    rows += ["".join(f"{word:>6}" for word in words) for words in table]
    return [*rows, _plain_words(one), f"in force: {in_force}"]


def _plain_words(one: Outlook) -> str:
    if one.plain_s is None:
        return "not measured"
    return f"1.00 = plain step, {three_digits(1000 * one.plain_s)} ms"


def _fitted(rows: Sequence[str], width: int) -> list[str]:
    """Rows that are too long go on below."""
    fitted = list[str]()
    for row in rows:
        is_long = len(row) >= width
        fitted += textwrap.wrap(row, width - 1, subsequent_indent="  ") if is_long else [row]
    return fitted
