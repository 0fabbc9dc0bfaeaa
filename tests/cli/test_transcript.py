from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.cli.chat.transcript import (
    Branch,
    Transcript,
    autosave_path,
    saved_sessions,
    session_path,
    sessions_folder,
)
from outrider.cli.errors import UsageError


def conversation() -> Transcript:
    transcript = Transcript("be brief")
    transcript.ask("one?")
    transcript.answer("1", {"seed": 7})
    transcript.ask("two?")
    return transcript


def test_messages_are_the_system_prompt_and_the_turns() -> None:
    assert conversation().messages() == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "one?"},
        {"role": "assistant", "content": "1"},
        {"role": "user", "content": "two?"},
    ]


def test_a_turn_that_left_the_context_is_not_in_the_prompt_but_in_the_file(tmp_path: Path) -> None:
    transcript = conversation()
    transcript.first_in_context = 1
    assert [m["content"] for m in transcript.messages()] == ["be brief", "two?"]
    transcript.save(tmp_path / "c.json")
    loaded = Transcript.load(tmp_path / "c.json")
    assert [turn.message for turn in loaded.turns] == ["one?", "two?"]
    assert loaded.messages() == transcript.messages()


def test_undo_takes_back_one_turn() -> None:
    transcript = conversation()
    transcript.answer("2")
    turn = transcript.undo()
    assert turn is not None
    assert turn.message == "two?"
    assert [m["content"] for m in transcript.messages()] == ["be brief", "one?", "1"]
    transcript.undo()
    assert transcript.undo() is None


TEXTS = ["日本語 ❤️ e\u0301", 'quotes " and \\ \n\t', "", "\x1b[31m", "\ud800"]


@pytest.mark.parametrize("text", TEXTS)
def test_saved_and_loaded_is_the_same_and_readable(tmp_path: Path, text: str) -> None:
    transcript = Transcript(None)
    transcript.ask(text)
    transcript.answer(text, {"tokens": 3})
    path = tmp_path / "deep" / "er" / "c.json"
    transcript.save(path)
    loaded = Transcript.load(path)
    expected = text.encode("utf-8", "replace").decode()
    assert loaded.turns[0].message == loaded.turns[0].answer == expected
    assert loaded.turns[0].details == {"tokens": 3}
    assert loaded.created == transcript.created.replace(microsecond=0)
    if text.isprintable() and text.isalpha():
        assert text in path.read_text(encoding="utf-8")


def test_a_failed_save_leaves_the_former_file_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c.json"
    conversation().save(path)
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    longer = conversation()
    longer.answer("2")
    with pytest.raises(OSError, match="No space"):
        longer.save(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["c.json"]


def test_only_the_user_can_read_a_saved_conversation(tmp_path: Path) -> None:
    conversation().save(tmp_path / "c.json")
    assert (tmp_path / "c.json").stat().st_mode & 0o077 == 0


def branches(fields: str, turn: str = "") -> str:
    """A file whose second branch has these fields."""
    return f'{{"schema": 1, "turns": [], "branches": [{{{fields}, "turns": [{turn}]}}]}}'


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{", "not a saved conversation"),
        ("[]", 'no list "turns"'),
        ('{"schema": 2, "turns": []}', "schema 2"),
        ('{"schema": 1, "turns": [{}]}', r"turns\[0\].message"),
        ('{"schema": 1, "turns": [{"message": "a", "answer": 3}]}', r"turns\[0\].answer"),
        ('{"schema": 1, "turns": [], "branches": 3}', "branches: must be"),
        ('{"schema": 1, "turns": [], "branches": [3]}', r"branches\[0\]: needs"),
        (branches('"branch": 2, "parts_from": 3, "after_turns": 0'), r"branches\[0\]: needs"),
        (branches('"branch": 2, "parts_from": 1, "after_turns": "x"'), r"branches\[0\]: needs"),
        (branches('"branch": "two", "parts_from": 1, "after_turns": 0'), r"branches\[0\]: needs"),
        (branches('"branch": 1, "parts_from": 1, "after_turns": 0'), r"branches\[0\]: needs"),
        (
            branches('"branch": 2, "parts_from": 1, "after_turns": 0', "{}"),
            r"branches\[0\].turns\[0\].message: missing",
        ),
    ],
)
def test_a_file_that_is_no_conversation_is_refused_in_one_line(
    tmp_path: Path, text: str, named: str
) -> None:
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=named) as raised:
        Transcript.load(path)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_name_is_a_file_of_the_data_folder_and_a_path_is_a_path(user_folders: Path) -> None:
    assert session_path("holiday") == sessions_folder() / "holiday.json"
    assert user_folders in sessions_folder().parents
    assert session_path("./x.json") == Path("x.json")
    assert session_path("~/x.json") == user_folders / "x.json"


def test_autosave_names_are_never_taken_twice() -> None:
    transcript = conversation()
    first = autosave_path(transcript.created)
    transcript.save(first)
    second = autosave_path(transcript.created)
    assert second != first
    assert first.stem in saved_sessions()
    assert json.loads(first.read_text())["turns"][0]["seed"] == 7


# branches


def said(branch: Branch) -> list[tuple[str, str | None]]:
    return [(turn.message, turn.answer) for turn in branch.turns]


def told(*turns: str) -> Transcript:
    """A conversation of these messages; each answer is the message in capitals."""
    transcript = Transcript()
    for message in turns:
        tell(transcript, message)
    return transcript


def tell(transcript: Transcript, message: str) -> None:
    transcript.ask(message)
    transcript.answer(message.upper(), {"tokens": len(transcript.branches)})


def test_a_branch_goes_on_from_before_a_turn_and_the_former_stays() -> None:
    transcript = told("a", "b", "c")
    former = transcript.branch
    transcript.part(1)
    tell(transcript, "d")
    assert [said(branch) for branch in transcript.branches] == [
        [("a", "A"), ("b", "B"), ("c", "C")],
        [("a", "A"), ("d", "D")],
    ]
    assert transcript.number == 2
    transcript.switch(former)
    assert [m["content"] for m in transcript.messages()] == ["a", "A", "b", "B", "c", "C"]


def test_what_another_branch_says_whole_is_no_branch() -> None:
    transcript = told("a", "b", "c")
    transcript.undo()
    transcript.undo()
    assert [len(branch.turns) for branch in transcript.branches] == [3, 1]
    tell(transcript, "b")  # the same answer as before
    assert [len(branch.turns) for branch in transcript.branches] == [3, 2]
    transcript.switch(transcript.branches[0])
    assert [len(branch.turns) for branch in transcript.branches] == [3]


def test_a_message_without_an_answer_leaves_nothing_when_it_is_taken_back() -> None:
    transcript = told("a")
    transcript.ask("lost")
    transcript.undo()
    assert [said(branch) for branch in transcript.branches] == [[("a", "A")]]


@pytest.mark.parametrize(
    ("dropped", "turn", "first"), [(2, 3, 2), (2, 2, 0), (2, 1, 0), (2, 0, 0), (3, 3, 3), (4, 3, 3)]
)
def test_before_a_turn_that_left_the_context_the_others_come_back(
    dropped: int, turn: int, first: int
) -> None:
    transcript = told("a", "b", "c", "d")
    transcript.first_in_context = dropped
    former = transcript.branch
    transcript.part(turn)
    assert transcript.first_in_context == first
    transcript.switch(former)
    assert transcript.first_in_context == dropped


def test_what_branches_share_is_written_once(tmp_path: Path) -> None:
    transcript = told("first message", "second message")
    transcript.part(1)
    tell(transcript, "third message")
    tell(transcript, "fourth message")
    transcript.part(2)
    tell(transcript, "fifth message")
    transcript.save(tmp_path / "c.json")
    text = (tmp_path / "c.json").read_text()
    for word in ("first", "second", "third", "fourth", "fifth"):
        assert text.count(f"{word} message") == 1
    data = json.loads(text)
    assert [turn["message"].split()[0] for turn in data["turns"]] == ["first", "third", "fifth"]
    assert data["branch"] == 3


def test_a_conversation_of_one_branch_is_written_as_ever(tmp_path: Path) -> None:
    conversation().save(tmp_path / "c.json")
    data = json.loads((tmp_path / "c.json").read_text())
    assert list(data) == ["schema", "created", "system", "first_in_context", "turns"]


Act = tuple[str, int]
acts = st.lists(st.tuples(st.sampled_from(["tell", "part", "undo", "switch"]), st.integers(0, 5)))


@given(acts)
def test_nothing_that_was_answered_is_ever_lost(acts: list[Act]) -> None:
    transcript = Transcript()
    ever: list[list[tuple[str, str | None]]] = []
    for act, number in acts:
        if act == "tell":
            tell(transcript, "abcdef"[number])
            ever.append(said(transcript.branch))
        elif act == "part":
            transcript.part(number % (len(transcript.turns) + 1))
        elif act == "undo":
            transcript.undo()
        else:
            transcript.switch(transcript.branches[number % len(transcript.branches)])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "c.json"
        transcript.save(path)
        loaded = Transcript.load(path)
    assert [said(branch) for branch in loaded.branches] == [
        said(branch) for branch in transcript.branches
    ]
    assert loaded.number == transcript.number
    for turns in ever:
        assert any(said(branch)[: len(turns)] == turns for branch in loaded.branches)
