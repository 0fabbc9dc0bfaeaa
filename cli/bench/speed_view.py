"""The table of ``bench speed``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from outrider.cli.bench.machine import machine_line
from outrider.cli.bench.result import BenchResult
from outrider.cli.bench.speed import Row
from outrider.cli.glyphs import Glyphs
from outrider.cli.stats_view import SYNTHETIC, fraction, plural, three_digits

_CLOCKS = {
    "engine": "tok/s: tokens after the first, by the engine's clock",
    "timings": "tok/s: tokens after the first, by the server's timings; first token: its prompt_ms",
    "latency": "tok/s: all tokens over the whole request, prompt included: the server tells no"
    " timings; not comparable with other figures",
}


def speed_lines(result: BenchResult, clocks: Sequence[str], glyphs: Glyphs) -> list[str]:
    """A row a category, and what the figures are."""
    arm, settings = result.arms["A"], result.settings
    table: Any = result.summary
    head = [SYNTHETIC] if result.synthetic else []
    width = max(len("category"), *(len(str(row["category"])) for row in table))
    return [
        *head,
        f"{arm['text']}   {asked_words(settings)}",
        f"{'category':{width}}  prompts  tok/s  total  first token, s  acceptance  mean length",
        *(_row_line(row, width, glyphs) for row in table),
        *_notes(settings),
        f"machine: {machine_line(result.machine)}, load {_load(result.machine)}",
        *(_CLOCKS[clock] for clock in clocks),
        "tok/s is the mean over conversations, total all tokens over all time",
    ]


def asked_words(settings: Mapping[str, Any]) -> str:
    """What was asked and how, in a line."""
    rounds = plural(settings["rounds"], "round")
    parts = [
        plural(settings["prompts"]["samples"], "prompt"),
        f"up to {settings['osl']} tokens",
        f"temperature {settings['temp']:g}",
        rounds,
    ]
    if settings["concurrency"] > 1:
        parts.append(f"{settings['concurrency']} at once")
    return ", ".join([*parts, "warm-up left out"])


def _notes(settings: Mapping[str, Any]) -> list[str]:
    """What became of the prompts: rows left out, histories replayed."""
    skipped, replay = settings["prompts"]["skipped"], settings["replay"]
    notes = []
    if skipped:
        rows = plural(skipped, "row")
        notes.append(f"{rows} skipped: no question_id, category or turns")
    if replay:
        notes.append(f"histories from {replay['file']}, prompts by {replay['by']}")
    return notes


def _row_line(row: Row, width: int, glyphs: Glyphs) -> str:
    values: dict[str, Any] = row
    return (
        f"{values['category']:{width}}  {values['requests']:>7}"
        f"  {three_digits(values['avg_pred_t_s'], glyphs):>5}"
        f"  {three_digits(values['total_pred_t_s'], glyphs):>5}"
        f"  {three_digits(values['first_token_s'], glyphs):>14}"
        f"  {fraction(values['accept_rate'], glyphs):>10}"
        f"  {fraction(values['mean_accepted_length'], glyphs):>11}"
    )


def _load(machine: Mapping[str, Any]) -> str:
    load = machine.get("load_average")
    return f"{load[0]:.1f}" if load else "unknown"
