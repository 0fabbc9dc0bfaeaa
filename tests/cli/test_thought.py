"""What the model thinks, as the chat shows it."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.cells import cell_len
from tools.scripted_chat import Answer, scripted_chat

from outrider.cli.chat.transcript import Transcript
from outrider.cli.glyphs import ASCII, UNICODE
from outrider.cli.screen.thought import Thought


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def model(zoo: Path) -> Path:
    return zoo / "target-llama.gguf"


def test_a_folded_thought_is_one_line_in_the_end(clock: Clock) -> None:
    thought = Thought(UNICODE, is_open=False, clock=clock)
    assert thought.feed("The user\nwants ", 4) == []
    clock.now += 17.2
    assert thought.feed("a short answer.", 3) == []
    assert thought.close() == ["thought for 17.2 s, 7 tokens · /think show"]
    assert thought.text == "The user\nwants a short answer."


def test_an_open_thought_is_printed_line_by_line(clock: Clock) -> None:
    thought = Thought(UNICODE, is_open=True, clock=clock)
    assert thought.feed("One", 1) == []
    assert thought.feed(" line.\nAnd", 3) == ["── thinking ──", "One line."]
    clock.now += 2
    assert thought.close() == ["And", "── thought for 2.00 s, 4 tokens ──"]


def test_folding_in_mid_thought_stops_the_printing(clock: Clock) -> None:
    thought = Thought(ASCII, is_open=True, clock=clock)
    assert thought.feed("a\n", 1) == ["-- thinking --", "a"]
    thought.is_open = False
    assert thought.feed("b\n", 1) == []
    thought.is_open = True
    assert thought.feed("c\n", 1) == ["c"]  # what went by unseen is not printed afterwards
    assert thought.close() == ["-- thought for 0.00 s, 3 tokens --"]


@pytest.mark.parametrize("columns", range(20, 120, 7))
@pytest.mark.parametrize("words", ["", "short", "word " * 60, "長い考え" * 40, "\x1b[31m" * 30])
def test_the_live_row_fits_and_ends_with_the_last_words(
    clock: Clock, columns: int, words: str
) -> None:
    thought = Thought(UNICODE, is_open=False, clock=clock)
    thought.feed(words, 1234)
    [(text, role)] = thought.row(columns)
    assert role == "dim"
    assert cell_len(text) < columns or columns < 40
    assert "\x1b" not in text
    if columns > 90:
        assert "1,234 tokens" in text
        assert words.split()[-1:] == [] or words.strip()[-3:] in text or "\x1b" in words


def test_the_chat_shows_keeps_and_hides_it(model: Path) -> None:
    scripted = scripted_chat(
        Answer(("42.",), thoughts=("Six ", "times seven.")), "more", model=model
    )
    scripted.chat.submit("6 x 7?")
    [line] = [line for line in scripted.screen.of("dim") if line.startswith("thought for")]
    assert line.endswith("2 tokens · /think show")
    assert scripted.screen.of("answer") == ["42."]
    scripted.chat.submit("/think show")
    assert scripted.screen.of("dim")[-1] == "Six times seven."
    scripted.chat.submit("and now?")
    contents = [message["content"] for message in scripted.engine.rendered[-1]]
    assert contents == ["6 x 7?", "42.", "and now?"]  # past thoughts are not given back
    assert all("reasoning_content" not in message for message in scripted.engine.rendered[-1])


def test_the_chat_gives_thoughts_back_when_asked(model: Path) -> None:
    scripted = scripted_chat(
        Answer(("42.",), thoughts=("Six.",)),
        "more",
        model=model,
        overrides={"chat.reasoning_preserve": True},
    )
    scripted.chat.submit("6 x 7?")
    scripted.chat.submit("and now?")
    assert scripted.engine.rendered[-1][1]["reasoning_content"] == "Six."


def test_thinking_can_be_open(model: Path) -> None:
    scripted = scripted_chat(Answer(("42.",), thoughts=("Six.\n", "Seven.")), model=model)
    scripted.chat.submit("/think on")
    scripted.chat.submit("6 x 7?")
    dim = scripted.screen.of("dim")
    assert dim[:3] == ["── thinking ──", "Six.", "Seven."]
    assert dim[3].startswith("── thought for ")


@pytest.mark.parametrize("line", ["/think", "/think maybe"])
def test_what_think_cannot_do(model: Path, line: str) -> None:
    scripted = scripted_chat(model=model)
    scripted.chat.submit(line)
    [error] = scripted.screen.of("error")
    assert "/think" in error


def test_an_answer_that_is_all_thought_is_explained(model: Path) -> None:
    scripted = scripted_chat(Answer((), thoughts=("Hm.",), finish_reason="length"), model=model)
    scripted.chat.submit("6 x 7?")
    [note] = scripted.screen.of("warn")
    assert note.startswith("note: all 1 token went into thinking; /set predict=N allows more")


def test_roles_alternate_whatever_was_left_unanswered() -> None:
    transcript = Transcript("be brief")
    transcript.ask("lost")
    transcript.ask("one?")
    transcript.answer("1")
    transcript.ask("silence?")
    transcript.answer("")
    transcript.ask("two?")
    assert [(m["role"], m["content"]) for m in transcript.messages()] == [
        ("system", "be brief"),
        ("user", "one?"),
        ("assistant", "1"),
        ("user", "two?"),
    ]
    assert len(transcript.turns) == 4  # nothing is lost from the file
