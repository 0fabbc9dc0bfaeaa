from __future__ import annotations

import pytest

from outrider.cli.glyphs import ASCII
from outrider.cli.stats_view import (
    TurnRecord,
    fraction,
    pause_words,
    short_fraction,
    summary_line,
    three_digits,
)
from outrider.speculative.events import FinishReason
from outrider.speculative.statistics import Pause, Rule, SpeculationStats, StepRecord, Timings


def record(
    drafts: list[tuple[int, int]],
    *,
    plain: int = 0,
    tokens_per_s: float = 24.6,
    reason: FinishReason = "stop",
    first: float | None = 0.38,
    drafter: str = "draft-simple",
    rule: Rule = "match",
) -> TurnRecord:
    """An answer with these (drafted, accepted) drafts, then ``plain`` steps without one."""
    stats, timings = SpeculationStats(), Timings()
    for drafted, accepted in drafts:
        stats.observe(StepRecord(drafted, accepted, 1, rule, drafter))
    for _ in range(plain):
        stats.observe(StepRecord(own=1))
    timings.observe(0.0, 1)
    timings.observe((stats.emitted - 1) / tokens_per_s, stats.emitted - 1)
    return TurnRecord(stats, timings, reason, first)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.384, "0.38"),
        (9.87, "9.87"),
        (9.996, "10.0"),
        (24.63, "24.6"),
        (99.97, "100"),
        (117.6, "118"),
        (2431.7, "2,432"),
    ],
)
def test_speeds_have_three_digits(value: float | None, text: str) -> None:
    assert three_digits(value) == text


@pytest.mark.parametrize(
    ("value", "long", "short"),
    [(None, "–", "–"), (0.634, "0.63", ".63"), (1.0, "1.00", "1.0"), (0.0, "0.00", ".00")],
)
def test_rates_are_fractions_with_two_decimals(value: float | None, long: str, short: str) -> None:
    assert fraction(value) == long
    assert short_fraction(value) == short
    assert len(short_fraction(value)) <= 3


def test_the_summary_says_tokens_speed_acceptance_length_first() -> None:
    # 6 drafts of 3 with 10 of 18 accepted: 10 + 6 own, then 4 plain steps
    turn = record([(3, 3), (3, 2), (3, 1), (3, 3), (3, 1), (3, 0)], plain=4)
    assert summary_line(turn, predict=-1, width=80) == (
        "20 tokens · 24.6 tok/s · acceptance 0.56 · mean length 2.67 · first 0.38 s"
    )
    wide = summary_line(turn, predict=-1, width=100)
    assert "acceptance 0.56 (10 of 18)" in wide
    assert summary_line(turn, predict=-1, width=40) == "20 tok · 24.6 tok/s · acc .56 len 2.67"
    assert "|" in summary_line(turn, predict=-1, width=80, glyphs=ASCII)


def test_without_drafts_the_summary_names_no_rate() -> None:
    assert summary_line(record([], plain=211, tokens_per_s=17.3), predict=-1, width=80) == (
        "211 tokens · 17.3 tok/s · no drafts · first 0.38 s"
    )


@pytest.mark.parametrize(
    ("reason", "start"),
    [
        ("cancelled", "stopped at 97 tokens · "),
        ("length", "limit of 512 tokens (/set predict=2048, /regen) · "),
        ("context", "context full after 97 tokens · "),
        ("error", "failed after 97 tokens · "),
    ],
)
def test_the_summary_says_how_the_answer_ended(reason: FinishReason, start: str) -> None:
    turn = record([], plain=97, reason=reason)
    assert summary_line(turn, predict=512, width=80).startswith(start)


def test_what_does_not_fit_is_left_out_from_the_right_but_never_the_speed() -> None:
    turn = record([(3, 2)] * 30, reason="length")
    for width in range(60, 120):
        line = summary_line(turn, predict=512, width=width)
        assert len(line) < width
        assert line.startswith("limit of 512 tokens")
        assert "24.6 tok/s" in line


@pytest.mark.parametrize(
    ("tokens", "width", "line"),
    [
        (97, 50, "stopped 97 tok · 24.6 tok/s · acc .33 len 2.00"),
        (97, 40, "stopped 97 tok · 24.6 tok/s · acc .33"),
        (1234, 40, "stopped 1,234 tok · 24.6 tok/s"),
        (1234, 30, "stopped 1,234 · 24.6 tok/s"),
        (1234, 20, "24.6 tok/s"),
    ],
)
def test_a_stopped_answer_in_few_columns(tokens: int, width: int, line: str) -> None:
    turn = record([(3, 1)], plain=tokens - 2, reason="cancelled")
    assert summary_line(turn, predict=-1, width=width) == line


def test_the_context_is_named_where_there_is_room() -> None:
    turn = record([(3, 1)])
    assert summary_line(turn, predict=-1, width=100, context="16 %").endswith(" · context 16 %")
    assert "context" not in summary_line(turn, predict=-1, width=99, context="16 %")


def test_paused_steps_and_synthetic_answers_are_named() -> None:
    turn = record([(3, 1)] * 4)
    turn.stats.paused_steps = 2
    assert summary_line(turn, predict=-1, width=90).endswith(" · paused 2 of 4")
    turn = record([(3, 1)] * 4, rule="synthetic")
    assert summary_line(turn, predict=-1, width=90).startswith("synthetic · 8 tokens")


@pytest.mark.parametrize(
    ("pause", "long", "short"),
    [
        (
            Pause("does not pay", 0.71, 0.38),
            "speculation paused: needs 0.71 to pay, has 0.38",
            "paused: needs .71 has .38",
        ),
        (
            Pause("does not pay", 1.7, 0.9),
            "speculation paused: here a draft costs more than it can bring",
            "paused: cannot pay here",
        ),
        (
            Pause("draft-eagle3 dropped: no hidden states from the target"),
            "draft-eagle3 dropped: no hidden states from the target; the answer goes on",
            "drafter dropped",
        ),
        (
            Pause("4 slots generate, limit 2"),
            "speculation paused: 4 slots generate, limit 2",
            "paused: 4 slots generate, limit 2",
        ),
    ],
)
def test_the_words_of_a_pause(pause: Pause, long: str, short: str) -> None:
    assert pause_words(pause) == long
    assert pause_words(pause, short=True) == short
