from __future__ import annotations

import json
from pathlib import Path

import pytest

from outrider.cli.errors import UsageError
from outrider.cli.transcript import (
    Transcript,
    autosave_path,
    saved_sessions,
    session_path,
    sessions_folder,
)


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


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{", "not a saved conversation"),
        ("[]", 'no list "turns"'),
        ('{"schema": 2, "turns": []}', "schema 2"),
        ('{"schema": 1, "turns": [{}]}', r"turns\[0\].message"),
        ('{"schema": 1, "turns": [{"message": "a", "answer": 3}]}', r"turns\[0\].answer"),
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
