from __future__ import annotations

import pytest

from outrider.cli.glyphs import ASCII
from outrider.cli.stats_view import (
    TurnRecord,
    fraction,
    pause_words,
    short_fraction,
    stats_rows,
    summary_line,
    three_digits,
)
from outrider.speculative.events import FinishReason
from outrider.speculative.statistics import Pause, SpeculationStats, StepRecord, Timings


def record(
    drafts: list[tuple[int, int]],
    *,
    plain: int = 0,
    tokens_per_s: float = 24.6,
    reason: FinishReason = "stop",
    first: float | None = 0.38,
    drafter: str = "draft-simple",
) -> TurnRecord:
    """An answer with these (drafted, accepted) drafts, then ``plain`` steps without one."""
    stats, timings = SpeculationStats(), Timings()
    for drafted, accepted in drafts:
        stats.observe(StepRecord(drafted, accepted, 1, "match", drafter))
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


def test_paused_steps_and_synthetic_answers_are_named() -> None:
    turn = record([(3, 1)] * 4)
    turn.stats.paused_steps = 2
    assert summary_line(turn, predict=-1, width=90).endswith(" · paused 2 of 4")
    turn.stats.verification["synthetic"] = 4
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


def test_the_session_line_is_the_sum_of_its_turns() -> None:
    turns = [
        record([(3, 3), (3, 1)], plain=2, tokens_per_s=10.0),
        record([(4, 2)], plain=1, tokens_per_s=30.0, drafter="ngram-simple"),
    ]
    rows = stats_rows(turns, width=80)
    # 8 + 4 tokens; 6 of 10 accepted in 3 drafts; (7 + 3) tokens in 0.7 + 0.1 s
    assert rows[0] == "session  2 turns  12 tokens  12.5 tok/s  acceptance 0.60  mean length 3.00"
    assert rows[2].split() == ["1", "8", "10.0", "6", "4", "0.67", "3.00", "0.38", "s", "–"]
    assert rows[3].split() == ["2", "4", "30.0", "4", "2", "0.50", "3.00", "0.38", "s", "–"]
    drafters = {row.split()[0]: row.split()[1:4] for row in rows[5:]}
    assert drafters == {"draft-simple": ["2", "6", "4"], "ngram-simple": ["1", "4", "2"]}


def test_only_the_last_eight_turns_are_listed_but_all_are_counted() -> None:
    rows = stats_rows([record([(3, 1)])] * 11, width=80)
    assert "11 turns" in rows[0]
    assert [row.split()[0] for row in rows[2:10]] == [str(n) for n in range(4, 12)]


def test_no_row_is_wider_than_a_narrow_terminal() -> None:
    assert all(len(row) < 40 for row in stats_rows([record([(3, 1)] * 9)] * 3, width=40))
