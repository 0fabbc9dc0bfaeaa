"""``/spec``: the table as it is drawn, and what holds for one message only."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from tools.program import COMMAND
from tools.scripted_chat import Answer, Scripted, scripted_chat
from tools.terminal import CTRL_C, ENTER, Terminal

from outrider.cli.screen.status_lines import toolbar
from outrider.speculative.errors import EngineError
from outrider.speculative.outlook import Outlook
from outrider.speculative.settings import SpeculationSettings
from outrider.speculative.statistics import Decision, Pause

EAGLE = Outlook(
    "draft-eagle3",
    8,
    0.0578,
    (1.21, 1.50, 1.78, 2.04, 2.40, 2.70, 3.05, 3.40),
    (0.81, 0.70, 0.62, 0.56, 0.50, 0.45, 0.41, 0.37),
)
OFF_ONCE = "speculation off by /spec off once (this message)"


@pytest.fixture
def model(zoo: Path) -> Path:
    return zoo / "target-llama.gguf"


def shown(scripted: Scripted, line: str) -> list[str]:
    """The rows that a command prints."""
    before = len(scripted.screen.lines)
    scripted.chat.submit(line)
    return [text for _, text in scripted.screen.lines[before:]]


def bar(scripted: Scripted, width: int = 79) -> str:
    row = toolbar(scripted.chat.models, "", width, scripted.chat.glyphs)
    return "".join(text for text, _ in row)


def eagle_chat(model: Path, columns: int = 80) -> Scripted:
    scripted = scripted_chat(model=model, columns=columns)
    scripted.engine.measured = (EAGLE,)
    scripted.engine.drafter_names = ("draft-eagle3",)
    scripted.session.decisions = (Decision("draft-eagle3", 3),)
    return scripted


def test_a_plain_step_is_known_by_the_calibration_where_there_was_one(model: Path) -> None:
    scripted = eagle_chat(model)
    models = scripted.chat.models
    assert models.calibrated_s() == 0.0578
    scripted.engine.measured = ()
    assert models.calibrated_s() is None
    scripted.engine.measured = (EAGLE,)
    scripted.engine.speculation = SpeculationSettings(adaptive=False)
    assert models.calibrated_s() is None


def test_the_panel_of_an_answer_estimates_its_gain(model: Path) -> None:
    scripted = scripted_chat("It |ran |home.", model=model)
    scripted.engine.measured = (EAGLE,)
    panels = []
    scripted.screen.begin = lambda panel, form="markdown": panels.append(panel)  # type: ignore[method-assign]
    scripted.screen.forms.append("markdown")
    scripted.chat.submit("Where is the fox?")
    assert "".join(text for text, _ in panels[0](100, 30)[0]).count(" ~") == 1


def test_the_table_reads_as_drawn(model: Path) -> None:
    assert shown(eagle_chat(model), "/spec") == [
        "speculation on, adaptive 0 to 8   verification match (auto: drafter has no law)",
        "drafters    draft-eagle3",
        "length         1     2     3     4     6     8",
        "step cost   1.21  1.50  1.78  2.04  2.70  3.40     1.00 = plain step, 57.8 ms",
        "needs       0.21  0.25  0.26  0.26  0.28  0.30",
        "has         0.81  0.70  0.62  0.56  0.45  0.37",
        "gain        1.50  1.60  1.61  1.59  1.37  1.16     in force: 3",
    ]


def test_what_was_not_measured_is_a_dash(model: Path) -> None:
    scripted = scripted_chat(model=model)
    rows = shown(scripted, "/spec")
    assert rows[0].startswith("speculation on, adaptive 0 to 3   ")
    assert rows[2:] == [
        "length         1     2     3",
        "step cost      –     –     –     not measured",
        "needs          –     –     –",
        "has            –     –     –",
        "gain           –     –     –     in force: –",
    ]
    scripted.engine.measured = (Outlook("d", 2, 0.0578, (1.21, 1.5)),)
    rows = shown(scripted, "/spec")
    assert rows[4:] == [
        "needs       0.21  0.25",
        "has            –     –",
        "gain           –     –     in force: –",
    ]


def test_each_drafter_of_a_chain_has_a_table_and_says_why_it_is_paused(model: Path) -> None:
    scripted = eagle_chat(model)
    scripted.engine.drafter_names = ("ngram-mod", "draft-eagle3")
    scripted.engine.measured = (Outlook("ngram-mod", 1, 0.0578, (1.7,), (0.38,)), EAGLE)
    scripted.session.decisions = (
        Decision("ngram-mod", 0, Pause("does not pay", 0.7, 0.38)),
        Decision("draft-eagle3", 3),
    )
    rows = shown(scripted, "/spec")
    assert rows[1] == "drafters    ngram-mod, then draft-eagle3"
    assert rows[2] == "length         1     ngram-mod"
    assert rows[6:9] == [
        "gain        0.81     in force: 0",
        "speculation paused: needs 0.70 to pay, has 0.38",
        "length         1     2     3     4     6     8     draft-eagle3",
    ]


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_no_row_is_wider_than_the_terminal(model: Path, columns: int) -> None:
    rows = shown(eagle_chat(model, columns), "/spec")
    if columns != 60:  # the table is drawn for 80 columns and wrapped by the terminal below
        assert all(len(row) < columns for row in rows)
    assert "".join(rows).replace(" ", "").count("verificationmatch(auto:drafterhasnolaw)") == 1


def test_the_narrow_table_has_a_row_for_each_length(model: Path) -> None:
    assert shown(eagle_chat(model, 40), "/spec")[-9:] == [
        "length  cost needs   has  gain",
        "     1  1.21  0.21  0.81  1.50",
        "     2  1.50  0.25  0.70  1.60",
        "     3  1.78  0.26  0.62  1.61",
        "     4  2.04  0.26  0.56  1.59",
        "     6  2.70  0.28  0.45  1.37",
        "     8  3.40  0.30  0.37  1.16",
        "1.00 = plain step, 57.8 ms",
        "in force: 3",
    ]


def test_a_fixed_length_is_in_force_from_the_start(model: Path) -> None:
    scripted = scripted_chat(model=model)
    scripted.chat.submit("/spec n=2 adaptive=false")
    rows = shown(scripted, "/spec")
    assert rows[0].startswith("speculation on, length 2, fixed   verification match")
    assert rows[-1].endswith("in force: 2")


def test_why_a_rule_is_in_use(model: Path) -> None:
    scripted = eagle_chat(model)
    scripted.engine.speculation = SpeculationSettings(verify="match")
    assert shown(scripted, "/spec")[0].endswith("verification match")
    scripted.engine.speculation = SpeculationSettings()
    scripted.chat.submit("/set mirostat=2")
    assert shown(scripted, "/spec")[0].endswith("verification match (auto: mirostat learns)")


def test_without_a_drafter_there_is_advice(model: Path) -> None:
    scripted = scripted_chat(model=model, overrides={"drafter.kinds": ()})
    scripted.engine.drafter_names = ()
    assert shown(scripted, "/spec") == ["no drafter; /spec type=ngram-edit needs no second model"]
    assert "/spec on: the profile has no drafter" in shown(scripted, "/spec on")[0]


# for one message


def test_off_once_is_for_one_message(model: Path) -> None:
    scripted = scripted_chat("one", "two", model=model)
    ways: list[bool] = []
    scripted.session.on_step = lambda: ways.append(scripted.session.is_drafting)
    shown(scripted, "/spec off once")
    assert scripted.chat.models.off_words() == OFF_ONCE
    assert "speculation off once" in bar(scripted)
    assert bar(scripted, 39).startswith("off once")
    assert shown(scripted, "/spec")[0].startswith("speculation off for the next message, then on")
    scripted.chat.submit("a")
    scripted.chat.submit("b")
    assert ways == [False, True]
    assert "once" not in bar(scripted)


def test_once_has_other_drafters_and_lengths_for_one_message(model: Path) -> None:
    scripted = scripted_chat("one", "two", model=model)
    ways: list[tuple[tuple[str, ...], int | None, str]] = []

    def note() -> None:
        speculation = scripted.engine.speculation
        ways.append((scripted.engine.drafter_names, speculation.n_max, speculation.verify))

    scripted.session.on_step = note
    scripted.chat.submit("/spec n=5")
    rows = shown(scripted, "/spec once n=2 type=ngram-mod verify=match")
    assert rows[-1] == "for the next message only: /spec once n=2 type=ngram-mod verify=match"
    assert bar(scripted).startswith("base · ngram-mod adaptive · match · once")
    scripted.chat.submit("a")
    scripted.chat.submit("b")
    assert ways == [(("ngram-mod",), 2, "match"), (("ngram-simple",), 5, "auto")]
    assert "once" not in bar(scripted)


@pytest.mark.parametrize("command", ["/spec off once", "/spec once n=2"])
@pytest.mark.parametrize("way", ["fails", "is stopped", "does not fit"])
def test_the_former_way_is_back_however_the_message_ended(
    model: Path, command: str, way: str
) -> None:
    answer = Answer(error=EngineError("no")) if way == "fails" else Answer(["", "x"])
    scripted = scripted_chat(answer, model=model, n_ctx=8 if way == "does not fit" else 4096)
    if way == "is stopped":
        scripted.session.on_step = lambda: signal.raise_signal(signal.SIGINT)
    scripted.chat.submit(command)
    scripted.chat.submit("a message that is longer")
    assert scripted.chat.waiting == "a message that is longer"
    assert scripted.session.is_drafting
    assert scripted.engine.speculation.n_max is None
    assert scripted.chat.models.once is None


def test_settings_changed_meanwhile_stay_when_the_former_way_is_back(model: Path) -> None:
    scripted = scripted_chat("x", model=model)
    scripted.chat.submit("/spec once n=2")
    scripted.chat.submit("/set temp=0.25")
    scripted.chat.submit("a")
    assert scripted.chat.models.profile.sampling.temp == 0.25
    assert scripted.chat.models.profile.speculation.n_max is None


def test_what_lasts_takes_the_place_of_what_was_for_once(model: Path) -> None:
    scripted = scripted_chat("x", model=model)
    scripted.chat.submit("/spec once n=2 verify=match")
    scripted.chat.submit("/spec n=7")
    speculation = scripted.engine.speculation
    assert (speculation.n_max, speculation.verify) == (7, "auto")
    scripted.chat.submit("a")
    assert scripted.engine.speculation.n_max == 7
    scripted.chat.submit("/spec off once")
    scripted.chat.submit("/spec on")
    assert scripted.session.is_drafting


def test_an_answer_once_more_with_other_settings_ends_what_was_for_once_too(model: Path) -> None:
    scripted = scripted_chat("one", "two", model=model)
    scripted.chat.submit("a")
    scripted.chat.submit("/spec once n=2")
    before = scripted.chat.models.profile.sampling
    scripted.chat.submit("/regen temp=0.1")
    assert scripted.session.settings[1].sampling.temp == 0.1
    profile = scripted.chat.models.profile
    assert (profile.sampling, profile.speculation.n_max) == (before, None)
    assert scripted.engine.speculation.n_max is None


@pytest.mark.parametrize("failure", [EngineError("no memory"), KeyboardInterrupt()])
def test_a_former_way_that_does_not_come_back_is_said(
    model: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    scripted = scripted_chat("one", "two", model=model)
    scripted.chat.submit("/spec once n=2")
    configure = scripted.engine.configure
    failures = [failure]

    def fail_once(*arguments: object, progress: object = None) -> None:
        if failures:
            raise failures.pop()
        configure(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(scripted.engine, "configure", fail_once)
    scripted.chat.submit("a")
    assert scripted.screen.of("warn")[-1].endswith("what /spec once n=2 said stays")
    assert scripted.engine.speculation.n_max == scripted.chat.models.profile.speculation.n_max == 2
    scripted.chat.submit("b")
    assert scripted.screen.of("answer") == ["one", "two"]


def test_on_keeps_the_sampling_that_was_set_meanwhile(model: Path) -> None:
    scripted = scripted_chat(model=model)
    for line in ("/spec off", "/set temp=0.25", "/spec on"):
        scripted.chat.submit(line)
    assert scripted.engine.drafter_names == ("ngram-simple",)
    assert scripted.chat.models.profile.sampling.temp == 0.25


@pytest.mark.parametrize("line", ["/spec once", "/spec once of", "/spec off twice", "/spec x=1"])
def test_what_is_not_understood_changes_nothing(model: Path, line: str) -> None:
    scripted = scripted_chat(model=model)
    [error] = shown(scripted, line)
    assert error.startswith("error: /spec ")
    assert "allowed: on, off, off once, once, n=" in error
    assert scripted.engine.drafter_names == ("d",)
    assert scripted.chat.models.once is None


def test_a_way_that_cannot_work_once_is_refused(model: Path) -> None:
    scripted = scripted_chat(model=model)
    [error] = shown(scripted, "/spec once verify=greedy")
    assert "only at temperature 0" in error
    assert scripted.engine.speculation.verify == "auto"
    assert scripted.chat.models.once is None


# the real program


def test_gain_spec_and_off_once_on_a_real_screen(model: Path) -> None:
    flags = ("-t", "1", "--temp", "0", "--ignore-eos", "-c", "65536", "--spec-type", "ngram-simple")
    command = [*COMMAND, "chat", "-m", str(model), *flags]
    with Terminal(command, columns=100, rows=30, deadline_s=60) as terminal:

        def panel_shows(pattern: str) -> None:
            terminal.wait(
                lambda: any(re.search(pattern, row) for row in terminal.screen()), pattern
            )

        def stop(number: int) -> None:
            terminal.send(CTRL_C)
            terminal.wait(
                lambda: sum(row.startswith("stopped at") for row in terminal.lines()) == number,
                "the summary",
            )

        terminal.wait_for("›")
        terminal.send("Tell me a story about a fox." + ENTER)
        panel_shows(r"tok/s   mean .*   \d\.\d\d times plain +first token")
        stop(1)
        terminal.send("/spec" + ENTER)
        terminal.wait_for("in force: ")
        table = "\n".join(terminal.lines())
        assert re.search(r"\nspeculation on, adaptive 0 to 48   verification greedy \(auto", table)
        assert re.search(r"\nlength         1     2     3     4     6     8\n", table)
        assert re.search(r"\nstep cost( +\d\.\d\d){6}     1.00 = plain step, [\d.]+ ms\n", table)
        terminal.send("/spec off once" + ENTER)
        terminal.wait_for("base · speculation off once")
        terminal.send("Tell me a story about a fox." + ENTER)
        panel_shows(r"^ speculation off by /spec off once \(this message\)")
        panel_shows(r"first token +\d")
        stop(2)
        assert "no drafts" in terminal.text()
        panel_shows("base · ngram-simple adaptive · greedy")
