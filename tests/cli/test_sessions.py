from __future__ import annotations

import json
import os
import time
from datetime import datetime
from pathlib import Path

import pytest
from rich.cells import cell_len
from tools.saved_sessions import plain, save
from tools.scripted_chat import scripted_chat

from outrider.cli.chat.session_list import (
    SavedSession,
    SessionList,
    message_rows,
    named_path,
    open_conversation,
    shorten,
    when_words,
)
from outrider.cli.chat.slash import COMMANDS
from outrider.cli.chat.transcript import sessions_folder
from outrider.cli.errors import UsageError
from outrider.cli.glyphs import ASCII

NOW = datetime(2026, 6, 15, 12, 0)


@pytest.fixture
def model(zoo: Path) -> Path:
    return zoo / "target-llama.gguf"


# the table


def test_the_table_is_the_one_of_the_screens() -> None:
    def session(name: str, when: datetime, turns: int, profile: str, begins: str) -> SavedSession:
        return SavedSession(Path(name), when, turns, profile, begins)

    long = "Why is the sky blue? Short answer, a list of the causes, then the law"
    log = "Summarise this log [pasted 312 lines, 14.2 kB] and list the errors only"
    sessions = (
        session("a", NOW, 4, "smollm2", long),
        session("b", datetime(2026, 6, 15, 11, 2), 9, "gemma3-270m", "Rewrite this function"),
        session("c", datetime(2026, 6, 14, 23, 59), 2, "smollm2", log),
    )
    assert SessionList(sessions).rows(Path("a"), 80, now=NOW) == [
        "   #  when       turns  profile      begins",
        ">  1  now            4  smollm2      Why is the sky blue? Short answer, a list…",
        "   2  11:02          9  gemma3-270m  Rewrite this function",
        "   3  yesterday      2  smollm2      Summarise this log [pasted 312 lines, 14…",
    ]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (datetime(2026, 6, 15, 0, 0), "00:00"),
        (datetime(2026, 6, 14, 0, 0), "yesterday"),
        (datetime(2026, 6, 13, 23, 59), "13 Jun"),
        (datetime(2026, 1, 2), "2 Jan"),
        (datetime(2025, 12, 31), "2025-12-31"),
    ],
)
def test_when(changed: datetime, words: str) -> None:
    assert when_words(changed, NOW) == words


@pytest.mark.parametrize("width", [30, 40, 59, 60, 80, 200])
def test_rows_fit_whatever_the_message_is(width: int) -> None:
    texts = ["日本語" * 60, "x" * 500, "👩‍👩‍👧 family " * 30, ""]
    sessions = tuple(SavedSession(Path(t[:3]), NOW, 12345, "p" * 40, t) for t in texts)
    rows = SessionList(sessions).rows(Path("none"), width, ASCII, NOW)
    assert max(map(cell_len, rows)) < width


def test_the_narrow_form_is_a_value_a_line() -> None:
    sessions = (SavedSession(Path("a"), NOW, 4, "smollm2", "Why is the sky blue? Short answer"),)
    assert SessionList(sessions).rows(Path("a"), 40, now=NOW) == [
        ">  1",
        "when    now",
        "turns   4",
        "profile smollm2",
        "begins  Why is the sky blue? Short ans…",
    ]


def test_shorten_cuts_by_cells() -> None:
    assert shorten("日本語", 6) == "日本語"
    assert shorten("日本語", 5) == "日本…"
    assert shorten("日本語", 4) == "日…"
    assert shorten("abcdef", 5, ASCII) == "ab..."


def test_the_newest_is_first_and_the_present_one_marked(model: Path) -> None:
    save("old", "first  thing\nsaid", "second", age_s=90)
    save("older", "Hi", age_s=3600 * 24 * 900)
    scripted = scripted_chat("one", model=model)
    scripted.chat.submit("Hello")
    scripted.chat.submit("/sessions")
    header, *rows = plain(scripted)
    assert header.startswith("   #  when")
    assert rows[0].startswith(">  1  now ")
    assert rows[0].endswith("  base         Hello")
    assert rows[1].endswith("      2  smollm2      first thing said")
    assert rows[2].endswith("      1  smollm2      Hi")
    assert rows[3] == "/load 2 opens · /sessions delete 3 · outrider chat --session NAME"


def test_only_the_newest_are_shown_unless_all_are_asked_for(model: Path) -> None:
    for number in range(23):
        save(f"chat-{number}", f"message {number}", age_s=number)
    scripted = scripted_chat(model=model)
    scripted.chat.submit("/sessions")
    assert len(plain(scripted)) == 1 + 20 + 2
    assert plain(scripted)[-2] == "3 older: /sessions all"
    assert plain(scripted)[1].endswith("message 0")
    scripted.chat.submit("/sessions all")
    assert plain(scripted)[-2].endswith("message 22")


def test_a_damaged_file_is_skipped_with_one_note(model: Path) -> None:
    save("good", "Hi", age_s=60)
    for name in ("a", "b", "c", "d"):
        (sessions_folder() / f"{name}.json").write_text('{"schema": 1, "turns": [')
    (sessions_folder() / "deep.json").write_text("[" * 200_000)
    (sessions_folder() / "binary.json").write_bytes(b"\xff\x00")
    (sessions_folder() / "folder.json").mkdir()
    (sessions_folder() / "link.json").symlink_to("nowhere")
    os.mkfifo(sessions_folder() / "pipe.json")
    scripted = scripted_chat(model=model)
    scripted.chat.submit("/sessions")
    [note] = scripted.screen.of("warn")
    assert note.startswith("note: skipped, not a saved chat: ")
    assert note.endswith(" and 5 more")
    assert [row for row in plain(scripted) if row.endswith("  Hi")]
    conversation, said = open_conversation(None, None, newest=True)
    assert conversation.path.stem == "good"
    assert said == note.removeprefix("note: ")


def test_no_saved_chats(model: Path) -> None:
    scripted = scripted_chat(model=model)
    scripted.chat.submit("/sessions")
    scripted.chat.submit("/load")
    assert plain(scripted) == ["no saved chats"] * 2
    scripted.chat.submit("/load 1")
    assert "there are no saved chats" in scripted.screen.of("error")[0]


# opening and deleting


def test_a_number_opens_what_the_table_showed(model: Path) -> None:
    save("one", "first", age_s=60)
    save("two", "second", age_s=120)
    scripted = scripted_chat("later", model=model)
    scripted.chat.submit("/sessions")
    save("new", "in another terminal")  # would be number 1 by now
    scripted.chat.submit("/load 2")
    assert scripted.chat.conversation.path.stem == "two"
    assert scripted.screen.of("warn") == ["note: two goes on after 1 turn"]
    assert scripted.screen.of("strong") == ["› second"]
    assert scripted.screen.of("answer") == ["answer to second"]
    scripted.chat.submit("third")
    saved = json.loads((sessions_folder() / "two.json").read_text())
    assert [turn["message"] for turn in saved["turns"]] == ["second", "third"]


@pytest.mark.parametrize("number", ["0", "3", "99999999999999999999"])
def test_a_number_that_is_none_is_refused(model: Path, number: str) -> None:
    save("one", "first")
    save("two", "second")
    scripted = scripted_chat(model=model)
    scripted.chat.submit(f"/load {number}")
    [error] = scripted.screen.of("error")
    assert error == f"error: /load {number}: allowed: 1 to 2; /sessions lists them"


def test_a_path_opens_too(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "elsewhere.json"
    save("one", "first").rename(path)
    scripted = scripted_chat(model=model)
    scripted.chat.submit(f"/load {path}")
    assert scripted.chat.conversation.path == path
    assert scripted.screen.of("answer") == ["answer to first"]


def test_a_chat_with_another_model_says_so_once(model: Path) -> None:
    save("one", "first", "second", model="Big 7B")
    scripted = scripted_chat(model=model)
    scripted.chat.submit("/load one")
    assert [note for note in scripted.screen.of("warn") if "Big 7B" in note] == [
        "note: its last answer was by Big 7B; Scripted goes on"
    ]


def test_delete_by_number_and_name(model: Path) -> None:
    one, two, three = (save(name, name, age_s=60) for name in ("one", "two", "three"))
    for path, age in ((one, 60), (two, 120), (three, 180)):
        os.utime(path, (time.time() - age,) * 2)
    scripted = scripted_chat(model=model)
    scripted.chat.submit("/sessions")
    scripted.chat.submit("/sessions delete 2")
    scripted.chat.submit("/sessions delete 2")  # the numbers are still those of the table
    scripted.chat.submit("/sessions delete three")
    assert scripted.screen.of("warn") == ["note: deleted two", "note: deleted three"]
    assert "no such saved chat" in scripted.screen.of("error")[0]
    assert (one.exists(), two.exists(), three.exists()) == (True, False, False)


def test_what_must_not_be_deleted(model: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text("precious")
    scripted = scripted_chat("one", model=model)
    scripted.chat.submit("Hi")
    present = scripted.chat.conversation.path
    for what in ("1", present.stem, str(tmp_path / "notes.json"), "nope"):
        scripted.chat.submit(f"/sessions delete {what}")
    errors = scripted.screen.of("error")
    assert len(errors) == 4
    assert errors[0].endswith("this chat goes on here; /clear begins another")
    assert present.exists()
    assert (tmp_path / "notes.json").exists()


@pytest.mark.parametrize("argument", ["delete", "nonsense", "all of them", "delete  "])
def test_what_sessions_does_not_know_is_refused(model: Path, argument: str) -> None:
    scripted = scripted_chat(model=model)
    scripted.chat.submit(f"/sessions {argument}")
    [error] = scripted.screen.of("error")
    assert "allowed: all, delete N, delete NAME, export [PATH]" in error


@pytest.mark.parametrize("name", ["12", ""])
def test_a_name_is_not_a_number(model: Path, name: str) -> None:
    with pytest.raises(UsageError, match="a name that is not a number"):
        named_path(name, "--session")


def test_completion_says_when(model: Path) -> None:
    save("holiday", "Hi")
    scripted = scripted_chat(model=model)
    load, sessions = COMMANDS.find("/load"), COMMANDS.find("/sessions")
    assert load.choices
    assert sessions.choices
    [(name, when)] = load.choices(scripted.chat, "")
    assert (name, ":" in when or when == "yesterday") == ("holiday", True)
    assert "delete holiday" in dict(sessions.choices(scripted.chat, "delete "))


# beginning with a saved one


def test_continue_takes_the_newest(model: Path) -> None:
    save("older", "one", age_s=60)
    newest = save("newest", "two")
    conversation, note = open_conversation("system", None, newest=True)
    assert (conversation.path, note) == (newest, None)
    assert [turn.message for turn in conversation.transcript.turns] == ["two"]


def test_continue_without_a_saved_chat_is_refused() -> None:
    with pytest.raises(UsageError, match="--continue: no saved chat yet; outrider chat begins one"):
        open_conversation(None, None, newest=True)
    sessions_folder().mkdir(parents=True)
    (sessions_folder() / "x.json").write_text("")
    with pytest.raises(UsageError, match="skipped, not a saved chat: x\\.json"):
        open_conversation(None, None, newest=True)


def test_session_opens_or_begins() -> None:
    save("holiday", "one")
    conversation, _ = open_conversation(None, "holiday")
    assert len(conversation.transcript.turns) == 1
    conversation, _ = open_conversation("be brief", "new")
    assert conversation.path == sessions_folder() / "new.json"
    assert (conversation.transcript.turns, conversation.transcript.system) == ([], "be brief")


@pytest.mark.parametrize("name", ["./file.json", "./", "x" * 300])
def test_a_session_that_cannot_be_one_is_refused(name: str) -> None:
    save("holiday", "one")
    Path("file.json").write_text("{}")
    with pytest.raises(UsageError) as raised:
        open_conversation(None, name)
    assert "\n" not in str(raised.value)


def test_a_path_is_never_taken_for_a_name() -> None:
    save("holiday", "one")
    conversation, _ = open_conversation(None, "./holiday")
    assert (conversation.path, conversation.transcript.turns) == (Path("holiday"), [])


def test_a_long_message_is_shown_by_its_beginning() -> None:
    assert message_rows("one\ntwo\n") == ["› one", "two"]
    rows = message_rows("\n".join(f"row {number}" for number in range(312)))
    assert rows[0] == "› row 0"
    assert rows[-1] == "… 304 more lines"
    assert len(rows) == 9
