from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.cli.glyphs import ASCII, UNICODE, Glyphs, glyphs_for
from outrider.cli.screen.meter import Meter
from outrider.cli.screen.panel import (
    PanelView,
    Row,
    panel_form,
    panel_rows,
    reading_row,
    sparkline,
    type_ahead_row,
)
from outrider.speculative.settings import SpeculationSettings
from outrider.speculative.statistics import Pause, SpeculationStats, StepRecord, Timings

DRAFTING = PanelView(
    now=26.1,
    mean=24.6,
    is_drafting=True,
    gain=1.42,
    speeds=(1.0, 2.0, 4.0, 8.0),
    first_token_s=0.38,
    acceptance_rate=0.63,
    mean_accepted_length=2.79,
    drafts=104,
    steps=121,
    drafted=297,
    accepted=186,
    positions=(0.81, 0.58, 0.47),
    state="draft-eagle3   length 3 of 8, adaptive",
    drafters="draft-eagle3",
    verification="match",
    context_used=1284,
    n_ctx=8192,
)
PAUSED = replace(
    DRAFTING,
    state="speculation paused: needs 0.71 to pay, has 0.38",
    short_state="paused: needs .71 has .38",
)
NOTHING = PanelView(state="no drafter", n_ctx=8192)
SYNTHETIC = replace(
    DRAFTING,
    synthetic="SYNTHETIC acceptance 0.60: this is not the model's text, for measuring only",
)


def text(row: Row) -> str:
    return "".join(part for part, _ in row)


def texts(view: PanelView, columns: int, rows: int, glyphs: Glyphs = UNICODE) -> list[str]:
    return [text(row) for row in panel_rows(view, columns, rows, glyphs)]


@pytest.mark.parametrize(
    ("columns", "rows", "form", "count"),
    [
        (100, 30, "full", 5),
        (90, 26, "full", 5),
        (89, 26, "mid", 3),
        (90, 25, "mid", 3),
        (60, 16, "mid", 3),
        (59, 16, "line", 1),
        (60, 15, "line", 1),
        (30, 8, "line", 1),
        (29, 8, "none", 0),
        (30, 7, "none", 0),
    ],
)
def test_the_form_follows_the_size(columns: int, rows: int, form: str, count: int) -> None:
    assert panel_form(columns, rows) == form
    assert len(panel_rows(DRAFTING, columns, rows, UNICODE)) == count


def test_the_full_panel_reads_as_drawn() -> None:
    rows = texts(DRAFTING, 100, 30)
    assert rows[0].startswith(" 26.1 tok/s   mean 24.6   ▂▃▅█" + 19 * " " + "1.42 times plain   ")
    assert rows[0].endswith("first token 0.38 s")
    assert rows[1] == (
        " acceptance 0.63   mean accepted length 2.79   drafted 297   accepted 186"
        "   in 104 of 121 steps"
    )
    assert rows[2] == " by position   1 ▇ .81   2 ▅ .58   3 ▄ .47"
    assert rows[3] == " draft-eagle3   length 3 of 8, adaptive   verification match"
    assert rows[4].startswith(" context 1,284 / 8,192   ██░░░░░░░░   16 %   ")
    assert rows[4].endswith("ctrl-c stop")


def test_the_mid_panel_reads_as_drawn() -> None:
    rows = texts(PAUSED, 80, 24)
    assert rows[0].endswith("   acceptance 0.63  mean length 2.79")
    assert rows[1] == " speculation paused: needs 0.71 to pay, has 0.38   1▇.81 2▅.58 3▄.47"
    assert rows[2] == (
        " draft-eagle3 · match  context 1,284/8,192 █░░░░░ 16 % first 0.38 s ctrl-c stop"
    )


def test_the_mid_panel_has_air_where_there_is_room() -> None:
    view = replace(PAUSED, drafters="ngram-mod", context_used=1798, first_token_s=0.44)
    assert texts(view, 80, 24)[2] == (
        " ngram-mod · match   context 1,798/8,192 ██░░░░ 22 %   first 0.44 s ctrl-c stop"
    )


def test_the_line_panel_reads_as_drawn() -> None:
    assert texts(DRAFTING, 40, 12) == [" 26.1 tok/s acc .63 len 2.79    ctx 16%"]
    assert texts(PAUSED, 40, 12) == [" 26.1 tok/s   paused: needs .71 has .38"]
    assert texts(PAUSED, 30, 12) == [" 26.1 tok/s   no drafts"]


def test_the_speed_is_the_only_bold_thing_and_stands_at_the_left() -> None:
    for columns, rows in ((100, 30), (80, 24), (40, 12)):
        panel = panel_rows(DRAFTING, columns, rows, UNICODE)
        strong = [part for row in panel for part, role in row if role == "strong"]
        assert strong == [" 26.1 tok/s"]
        assert panel[0][0][1] == "strong"


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=["unicode", "ascii"])
@pytest.mark.parametrize("view", [DRAFTING, PAUSED, NOTHING, SYNTHETIC])
def test_no_row_reaches_the_last_column_at_any_size(view: PanelView, glyphs: Glyphs) -> None:
    large = replace(view, context_used=123_456, n_ctx=131_072, drafted=12_345, accepted=9_876)
    for columns in range(30, 130):
        for shown in (view, large):
            rows = texts(shown, columns, 30, glyphs)
            assert all(len(row) < columns for row in rows)
            assert any("ctrl-c stop" in row for row in rows) or columns < 60


def test_a_value_that_does_not_exist_is_a_dash_and_never_zero() -> None:
    rows = texts(NOTHING, 100, 30)
    assert "– tok/s   mean    –" in rows[0]
    assert rows[0].endswith("first token      –")
    assert rows[1].startswith(" acceptance    –   mean accepted length    –")
    assert rows[2] == " by position   –"
    assert "0.00" not in "".join(rows)


def test_fields_keep_their_width_when_the_figures_change() -> None:
    for columns, height in ((100, 30), (80, 24)):
        slow = texts(replace(DRAFTING, now=9.87, mean=8.0, acceptance_rate=None), columns, height)
        assert [len(row) for row in slow] == [len(row) for row in texts(DRAFTING, columns, height)]


def test_synthetic_acceptance_has_a_row_of_its_own_in_every_form() -> None:
    assert "not the model's text" in texts(SYNTHETIC, 100, 30)[0]
    assert texts(SYNTHETIC, 40, 12)[0] == " SYNTHETIC, not the model's text"


def test_ascii_panels_are_ascii() -> None:
    for columns, height in ((100, 30), (80, 24), (40, 12)):
        for view in (DRAFTING, PAUSED, NOTHING):
            assert "".join(texts(view, columns, height, ASCII)).isascii()
    assert " by position   1 .81   2 .58   3 .47" in texts(DRAFTING, 100, 30, ASCII)


@pytest.mark.parametrize(
    ("encoding", "term", "expected"),
    [
        ("utf-8", "xterm", UNICODE),
        ("UTF8", "xterm", UNICODE),
        ("utf-8", "linux", ASCII),
        ("latin-1", "xterm", ASCII),
        ("ANSI_X3.4-1968", "xterm", ASCII),
    ],
)
def test_glyphs_follow_the_terminal(encoding: str, term: str, expected: Glyphs) -> None:
    assert glyphs_for(encoding, term) is expected


def test_the_sparkline_is_scaled_from_nothing_to_its_own_maximum() -> None:
    assert sparkline([0.0, 5.0, 10.0], 5, UNICODE) == "▁▅█  "
    assert sparkline([1.0] * 9, 3, UNICODE) == "███"
    assert sparkline([], 3, UNICODE) == "   "


def test_the_prompt_row_and_its_narrow_form() -> None:
    row = text(reading_row(3072, 5932, 7.46, 80, UNICODE))
    assert row == " reading prompt  3,072 of 5,932 ███████████░░░░░░░░░  52 %  412 tok/s  7 s left"
    assert text(reading_row(3072, 5932, 7.46, 40, UNICODE)) == " prompt 52% 412 tok/s 7 s left"
    assert "–" in text(reading_row(0, 5932, 0.0, 80, UNICODE))


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
@pytest.mark.parametrize("columns", [60, 70, 80, 100])
def test_a_long_prompt_makes_the_bar_shorter_and_cuts_no_word(columns: int, glyphs: Glyphs) -> None:
    row = text(reading_row(12_288, 15_932, 9.0, columns, glyphs))
    assert len(row) < columns
    assert "  77 %  1,365 tok/s" in row
    assert row.endswith("  3 s left") is (columns > 60)
    assert (glyphs.gauge_full in row) is (columns > 60)


def test_what_is_read_of_the_prompt_is_coloured() -> None:
    row = {role: part for part, role in reading_row(3072, 5932, 7.46, 80, UNICODE)}
    assert row["accepted"] == "█" * 11


def test_reused_tokens_are_named_when_they_save_more_than_a_second() -> None:
    def row(reused: int, columns: int = 100) -> str:
        return text(reading_row(3072, 5932, 7.46, columns, UNICODE, reused=reused))

    assert row(1284).endswith("  7 s left  1,284 reused")
    assert row(400).endswith("  7 s left")
    assert row(1284, columns=80).endswith("  7 s left")
    assert "reused" not in text(reading_row(0, 5932, 0.0, 100, UNICODE, reused=1284))


def test_what_is_typed_ahead_is_shown_at_its_end() -> None:
    def row(typed: str, columns: int, *, is_sent: bool = False) -> str:
        return text(type_ahead_row(typed, is_sent=is_sent, columns=columns, glyphs=UNICODE))

    assert row("and now", 40) == " next › and now"
    assert row("and now", 80, is_sent=True).endswith("and now, sent when this answer ends")
    long = row("word " * 30 + "end", 40)
    assert long.startswith(" next › …")
    assert long.endswith(" end")
    assert len(long) < 40
    assert row("and now", 40, is_sent=True) == " next › and now, sent after"


@pytest.mark.parametrize(("columns", "rows"), [(100, 30), (80, 24), (40, 12)])
def test_a_context_that_is_nearly_full_is_a_warning(columns: int, rows: int) -> None:
    def warned(used: int) -> str:
        last = panel_rows(replace(DRAFTING, context_used=used), columns, rows, UNICODE)[-1]
        return "".join(part for part, role in last if role == "warn")

    assert warned(6553) == ""
    assert warned(6554).strip(" █") in ("80 %", "ctx 80%")


def test_a_state_that_is_too_long_is_said_in_few_words() -> None:
    pays_not = "speculation paused: here a draft costs more than it can bring"
    paused = replace(DRAFTING, state=pays_not, short_state="paused: cannot pay here")
    assert texts(paused, 80, 24)[1].startswith(f" {pays_not}")
    assert texts(paused, 60, 16)[1].startswith(" paused: cannot pay here")
    chain = replace(DRAFTING, state=f"{'ngram-mod, then ' * 4}draft-eagle3")
    assert texts(chain, 60, 16)[1] == f" {chain.state[:57]}…"


class Session:
    """Figures that a test sets."""

    def __init__(self) -> None:
        self.stats = SpeculationStats()
        self.timings = Timings()
        self.draft_length: int | None = None
        self.dropped: dict[str, str] = {}
        self.plain_s: float | None = None
        self.context_used = 0


class Measured:
    """A meter on a clock that a test moves."""

    def __init__(
        self,
        speculation: SpeculationSettings | None = None,
        rule: str = "match",
        off_words: str = "",
        calibrated_s: float | None = None,
    ) -> None:
        self.now = 100.0
        self.session = Session()
        self.meter = Meter(
            self.session,
            n_ctx=512,
            drafters=("ngram-simple", "draft-simple"),
            speculation=speculation or SpeculationSettings(n_max=8),
            rule=rule,
            longest=8,
            off_words=off_words,
            calibrated_s=lambda: calibrated_s,
            clock=lambda: self.now,
        )

    def draft(self, drafted: int, accepted: int, times: int = 1) -> None:
        for _ in range(times):
            self.session.stats.observe(StepRecord(drafted, accepted, 1, "match", "draft-simple"))


def test_figures_are_read_four_times_a_second() -> None:
    measured = Measured()
    assert measured.meter.view().drafted == 0
    measured.draft(3, 2)
    measured.now += 0.24
    assert measured.meter.view().drafted == 0
    measured.now += 0.02
    assert measured.meter.view().drafted == 3


def test_the_figures_of_the_answer_before_are_not_shown() -> None:
    measured = Measured()
    measured.draft(3, 2)
    meter = Meter(
        measured.session,
        n_ctx=512,
        drafters=("ngram-simple",),
        speculation=SpeculationSettings(),
        rule="match",
    )
    assert (meter.view().drafted, meter.view().n_ctx) == (0, 512)
    measured.session.stats = SpeculationStats()
    measured.draft(1, 1)
    assert meter.view().drafted == 1


def test_a_position_is_shown_from_its_eighth_draft_on() -> None:
    measured = Measured()
    measured.draft(1, 1, times=1)
    measured.draft(2, 1, times=6)
    assert measured.meter.view().positions == ()
    measured.draft(2, 2)
    measured.now += 1
    assert measured.meter.view().positions == (1.0,)
    measured.draft(2, 2)
    measured.now += 1
    assert measured.meter.view().positions == (1.0, 0.25)


def test_the_words_of_a_pause_stay_for_a_second() -> None:
    measured = Measured()
    measured.session.stats.paused = Pause("does not pay", 0.71, 0.38)
    assert measured.meter.view().state == "speculation paused: needs 0.71 to pay, has 0.38"
    measured.session.stats.paused = None
    measured.session.draft_length = 5
    measured.now += 0.9
    assert measured.meter.view().short_state == "paused: needs .71 has .38"
    measured.now += 0.3
    view = measured.meter.view()
    assert view.state == "ngram-simple, then draft-simple   length 5 of 8, adaptive"
    assert view.short_state is None


def test_a_fixed_length_is_said_without_a_most() -> None:
    measured = Measured(SpeculationSettings(adaptive=False))
    measured.session.draft_length = 3
    state = measured.meter.view().state
    assert state == "ngram-simple, then draft-simple   length 3, fixed"


def test_what_is_switched_off_is_said_and_no_gain_is_promised() -> None:
    words = "speculation off by /spec off once (this message)"
    view = Measured(off_words=words).meter.view()
    assert (view.state, view.is_drafting) == (words, False)
    assert " speculation off by /spec off once (this message)" in texts(view, 80, 24)
    assert "times plain" not in texts(view, 100, 30)[0]


def test_a_drafter_dropped_in_this_answer_is_said_before_anything_else() -> None:
    measured = Measured()
    measured.session.stats.paused = Pause("does not pay", 0.71, 0.38)
    measured.session.dropped["draft-simple"] = "no hidden states from the target"
    view = measured.meter.view()
    assert view.state == (
        "draft-simple dropped: no hidden states from the target; the answer goes on"
    )
    assert view.short_state == "drafter dropped"


def test_a_drafter_dropped_in_an_earlier_answer_is_not_said_again() -> None:
    measured = Measured()
    measured.session.dropped["draft-eagle3"] = "no hidden states from the target"
    meter = Meter(
        measured.session,
        n_ctx=512,
        drafters=("ngram-simple",),
        speculation=SpeculationSettings(n_max=8),
        rule="match",
    )
    assert meter.view().state == "ngram-simple   adaptive"


def test_gain_is_the_mean_speed_over_that_of_a_plain_step() -> None:
    measured = Measured()
    measured.session.timings.observe(0.0, 1)
    measured.session.timings.observe(2.0, 50)  # 25 tokens a second
    assert measured.meter.view().gain is None
    assert "   – times plain" in texts(measured.meter.view(), 100, 30)[0]
    measured.session.plain_s = 0.06
    measured.now += 1
    assert measured.meter.view().gain == pytest.approx(1.5)
    assert "   1.50 times plain" in texts(measured.meter.view(), 100, 30)[0]


def test_gain_is_estimated_by_the_calibration_until_plain_steps_are_known() -> None:
    measured = Measured(calibrated_s=0.04)
    assert not measured.meter.view().is_gain_estimated
    assert "    – times plain" in texts(measured.meter.view(), 100, 30)[0]
    measured.session.timings.observe(0.0, 1)
    measured.session.timings.observe(2.0, 50)  # 25 tokens a second
    measured.now += 1
    estimated = texts(measured.meter.view(), 100, 30)[0]
    assert "  ~1.00 times plain" in estimated
    measured.session.plain_s = 0.06
    measured.now += 1
    known = texts(measured.meter.view(), 100, 30)[0]
    assert "   1.50 times plain" in known
    assert known.index(" times") == estimated.index(" times")


def test_the_sparkline_gets_one_cell_each_half_second() -> None:
    measured = Measured()
    measured.meter.view()
    measured.draft(3, 2)  # the first tokens start the clock
    measured.now += 0.3
    measured.meter.view()
    measured.draft(3, 2, times=5)
    measured.now += 0.5
    assert measured.meter.view().speeds == (30.0,)


def test_time_to_first_token_is_from_the_start_and_counted_once() -> None:
    measured = Measured()
    assert measured.meter.view().first_token_s is None
    measured.now += 0.5
    measured.meter.first_token()
    measured.now += 1.0
    measured.meter.first_token()
    assert measured.meter.view().first_token_s == pytest.approx(0.5)


def test_the_first_token_brings_the_first_figures() -> None:
    measured = Measured()
    assert measured.meter.view().context_used == 0
    measured.session.context_used = 27
    measured.now += 0.1
    assert measured.meter.view().context_used == 0
    measured.meter.first_token()
    assert measured.meter.view().context_used == 27


def test_synthetic_acceptance_is_said() -> None:
    measured = Measured(SpeculationSettings(synth_rates=(0.8, 0.4)), rule="synthetic")
    assert measured.meter.view().synthetic == (
        "SYNTHETIC acceptance 0.60: this is not the model's text, for measuring only"
    )
    assert Measured().meter.view().synthetic is None
