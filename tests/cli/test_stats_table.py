"""``/stats``: the tables as they are drawn, and their sums."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tools.scripted_chat import Answer, Scripted, scripted_chat

from outrider.cli.glyphs import ASCII
from outrider.cli.screen.stats_table import stats_json, stats_rows
from outrider.cli.screen.text_kind import TextCounts, TextKind
from outrider.cli.stats_view import TurnRecord
from outrider.speculative.statistics import Rule, SpeculationStats, StepRecord, Timings

WIDE = """\
session  4 turns  1,279 tokens  24.7 tok/s  acceptance 0.61  mean length 2.73
turn  tokens  tok/s  drafted  accepted  rate  length   first   paused steps
   1     308   24.6      297       186  0.63    2.79  0.38 s   –
   2     378   32.5      366       281  0.77    3.99  0.21 s   –
   3     142   21.6      139        61  0.44    2.05  0.44 s   9 of 80
   4     451   21.4      421       212  0.50    2.24  0.30 s   31 of 238
drafter       drafts  drafted  accepted  rate  length  discarded  ms a draft
ngram-mod         96      402       289  0.72    4.01          0        0.02
draft-eagle3     331      821       451  0.55    2.36         38        4.10
text          tokens  drafted  accepted  rate
prose            604      541       296  0.55
code             394      402       309  0.77
list             127      118        63  0.53
reasoning        154      162        72  0.44"""

NARROW = """\
session 4 turns
tokens 1,279
tok/s 24.7
acceptance 0.61
mean length 2.73
turn 1
tokens 308
tok/s 24.6
drafted 297
accepted 186
rate 0.63
length 2.79
first 0.38 s
paused steps –
turn 2"""


def turn(
    tokens: int,
    speed: float,
    drafts: int,
    drafted: int,
    accepted: int,
    first: float | None = 0.3,
    *,
    steps: int = 0,
    paused: int = 0,
    ngram: tuple[int, int, int] = (0, 0, 0),
    text: Mapping[TextKind, TextCounts] | None = None,
    rule: Rule = "match",
) -> TurnRecord:
    """An answer with these counts; ``ngram`` is the part of the first drafter of two."""
    stats, timings = SpeculationStats(), Timings()
    rest = drafts - ngram[0], drafted - ngram[1], accepted - ngram[2]
    for drafter, counts in (("ngram-mod", ngram), ("draft-eagle3", rest)):
        for num_drafted, num_accepted in spread(*counts):
            stats.observe(StepRecord(num_drafted, num_accepted, 0, rule, drafter, is_step=False))
    stats.observe(StepRecord(own=tokens - accepted, is_step=False))
    for _ in range(steps):
        stats.observe(StepRecord())
    stats.paused_steps = paused
    timings.observe(0.0, 1)
    timings.observe((tokens - 1) / speed, tokens - 1)
    return TurnRecord(stats, timings, "stop", first, text or {})


def spread(drafts: int, drafted: int, accepted: int) -> list[tuple[int, int]]:
    """Drafted and accepted tokens of so many drafts that are much alike."""
    return [
        (drafted // drafts + (i < drafted % drafts), accepted // drafts + (i < accepted % drafts))
        for i in range(drafts)
    ]


TURNS = [
    turn(
        308,
        24.6,
        104,
        297,
        186,
        0.38,
        ngram=(48, 152, 89),
        text={"prose": TextCounts(604, 541, 296), "list": TextCounts(100, 100, 60)},
    ),
    turn(
        378,
        32.5,
        94,
        366,
        281,
        0.21,
        ngram=(48, 250, 200),
        text={"reasoning": TextCounts(154, 162, 72)},
    ),
    turn(142, 21.6, 58, 139, 61, 0.44, steps=80, paused=9, text={"list": TextCounts(27, 18, 3)}),
    turn(
        451,
        21.4,
        171,
        421,
        212,
        0.30,
        steps=238,
        paused=31,
        text={"code": TextCounts(394, 402, 309)},
    ),
]
TURNS[0].stats.spend("ngram-mod", 96 * 0.02e-3)
TURNS[3].stats.spend("draft-eagle3", 331 * 4.1e-3)
TURNS[3].stats.discard("draft-eagle3", 38)


def turn_rows(rows: list[str]) -> list[list[str]]:
    """The words of each row of the table of turns."""
    end = next(place for place, row in enumerate(rows) if row.startswith("drafter"))
    return [row.split() for row in rows[2:end]]


def test_the_tables_are_drawn_as_designed() -> None:
    assert stats_rows(TURNS, width=80) == WIDE.split("\n")
    ascii_rows = stats_rows(TURNS, width=80, glyphs=ASCII)
    assert "\n".join(ascii_rows) == WIDE.replace("–", "-")


@pytest.mark.parametrize("width", [30, 40, 59, 76])
def test_where_they_do_not_fit_each_value_has_a_line(width: int) -> None:
    rows = stats_rows(TURNS, width=width)
    assert rows[:15] == NARROW.split("\n")
    assert rows[-5:] == ["text reasoning", "tokens 154", "drafted 162", "accepted 72", "rate 0.44"]
    assert all(len(row) < width for row in rows)


def test_only_the_last_eight_turns_are_listed_unless_all_are_wanted() -> None:
    turns = [turn(2 + number, 20.0, 1, 3, 1) for number in range(11)]
    rows = stats_rows(turns, width=80)
    assert "11 turns" in rows[0]
    assert [row[0] for row in turn_rows(rows)] == [str(number) for number in range(4, 12)]
    listed = turn_rows(stats_rows(turns, width=80, all_turns=True))
    assert [row[0] for row in listed] == [str(number) for number in range(1, 12)]
    assert sum(int(row[1]) for row in listed) == sum(range(2, 13))


def test_values_that_do_not_exist_are_dashes() -> None:
    rows = stats_rows([turn(1, 20.0, 0, 0, 0, None)], width=80)
    assert rows[0] == "session  1 turn  1 token  – tok/s  acceptance –  mean length –"
    assert rows[2].split() == ["1", "1", "–", "0", "0", "–", "–", "–", "–"]
    assert len(rows) == 3  # no drafter, and no kind of text was counted


@pytest.mark.parametrize("width", [40, 80, 100])
def test_a_synthetic_chat_says_so_first(width: int) -> None:
    made_up = turn(9, 20.0, 1, 3, 1, rule="synthetic")
    first, *rest = stats_rows([made_up], width=width)
    assert first.startswith("SYNTHETIC")
    assert len(first) < width
    assert rest == stats_rows([turn(9, 20.0, 1, 3, 1)], width=width)
    assert stats_json([made_up])["synthetic"] is True


def test_the_speed_of_a_session_is_all_tokens_over_all_time() -> None:
    # 99 tokens in 9.9 s and 299 in 2.99 s, the first of each left out
    rows = stats_rows([turn(100, 10.0, 0, 0, 0), turn(300, 100.0, 0, 0, 0)], width=80)
    assert f"{(99 + 299) / (9.9 + 2.99):.1f} tok/s" in rows[0]


@pytest.fixture
def chat(zoo: Path) -> Scripted:
    """Three answers whose counts are known: a piece is a draft of 3, 1 accepted, 2 tokens."""
    answers: list[Answer | str] = [
        Answer(["Well", ":\n\n- ", "one\n", "- two\n\nSo"], thoughts=["hm", "hm."]),
        "Code:\n|```\n|x = 1\n|y = 2\n|```\n|Done.",
        "Short.",
    ]
    scripted = scripted_chat(*answers, model=zoo / "target-llama.gguf")
    for number in range(3):
        scripted.chat.submit(f"message {number}")
    return scripted


def test_a_chat_counts_by_kind_of_text(chat: Scripted) -> None:
    chat.screen.lines.clear()
    chat.chat.submit("/stats")
    rows = chat.screen.of("plain")
    assert rows[0].startswith("session  3 turns  24 tokens  ")
    assert rows[0].endswith("acceptance 0.33  mean length 2.00")
    assert [row.split()[:4] for row in rows[-5:]] == [
        ["text", "tokens", "drafted", "accepted"],
        ["prose", "12", "18", "6"],  # "Well", ":", "Code:", "```", "Done", "Short"
        ["code", "6", "9", "3"],  # what came after the opening fence, its end included
        ["list", "4", "6", "2"],
        ["reasoning", "2", "0", "0"],
    ]


def test_every_table_sums_to_the_session(chat: Scripted) -> None:
    chat.screen.lines.clear()
    chat.chat.submit("/stats json")
    data: dict[str, Any] = json.loads("\n".join(chat.screen.of("plain")))
    session, turns = data["session"], data["turns"]
    assert session["turns"] == len(turns) == 3
    for name in ("tokens", "drafted", "accepted"):
        assert sum(one[name] for one in turns) == session[name]
        assert sum(kind[name] for kind in data["text"].values()) == session[name]
        for one in turns:
            assert sum(kind[name] for kind in one["text"].values()) == one[name]
    for name in ("drafts", "drafted", "accepted"):
        assert sum(one[name] for one in session["per_drafter"].values()) == session[name]
    assert (session["tokens"], session["drafted"], session["accepted"]) == (24, 33, 11)


def test_stats_without_an_answer_and_with_a_wrong_word(zoo: Path) -> None:
    scripted = scripted_chat(model=zoo / "target-llama.gguf")
    scripted.chat.submit("/stats")
    scripted.chat.submit("/stats all")
    assert scripted.screen.of("plain") == ["no answers yet"] * 2
    scripted.chat.submit("/stats json")
    assert json.loads("\n".join(scripted.screen.of("plain")[2:]))["session"]["tokens"] == 0
    scripted.chat.submit("/stats some")
    assert scripted.screen.of("error") == ["error: /stats some: allowed: all, json"]


def test_json_has_no_value_that_json_lacks() -> None:
    stats = SpeculationStats()
    stats.observe(StepRecord(own=1))
    json.dumps(stats_json([TurnRecord(stats, Timings(), "stop", None)]), allow_nan=False)
