"""What a saved chat's file says, saving that fails, and export to Markdown."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from tools.saved_sessions import plain, save
from tools.scripted_chat import Answer, Scripted, scripted_chat

from outrider.cli.chat.markdown_export import markdown
from outrider.cli.chat.transcript import Transcript, sessions_folder


@pytest.fixture
def model(zoo: Path) -> Path:
    return zoo / "target-llama.gguf"


# what the file says


def test_the_file_says_what_made_an_answer(model: Path) -> None:
    digest = "ab" * 32
    scripted = scripted_chat(
        "one|two",
        model=model,
        overrides={"sampling.temp": 0.25, "sampling.logit_bias": {7: float("-inf")}},
    )
    scripted.chat.submit("Hi")
    text = scripted.chat.conversation.path.read_text()
    assert "\n " in text
    [turn] = json.loads(text, parse_constant=pytest.fail)["turns"]
    size = model.stat().st_size
    assert turn["models"] == [{"role": "target", "file": model.name, "bytes": size, "sha256": None}]
    assert turn["sampling"] == {"temp": 0.25, "logit_bias": {"7": "-inf"}}
    counts = {key: turn[key] for key in ("tokens", "steps", "drafts", "drafted", "accepted")}
    assert counts == {"tokens": 4, "steps": 2, "drafts": 2, "drafted": 6, "accepted": 2}
    assert turn["per_drafter"] == {"d": {"drafts": 2, "drafted": 6, "accepted": 2}}
    assert (turn["profile"], turn["seed"]) == ("base", 7)
    assert turn["tokens_per_s"] == pytest.approx(20)
    assert digest not in text


def test_the_hash_of_a_checked_model_is_in_the_file(model: Path) -> None:
    from hashlib import sha256

    from outrider.profiles.model_source import ModelSource
    from outrider.profiles.sources import fetch

    digest = sha256(model.read_bytes()).hexdigest()
    source = ModelSource(str(model), digest.upper())
    fetch(source)
    scripted = scripted_chat("one", model=model, overrides={"target.model": source})
    scripted.chat.submit("Hi")
    [turn] = json.loads(scripted.chat.conversation.path.read_text())["turns"]
    assert turn["models"][0]["sha256"] == digest
    assert turn["models"][0]["bytes"] == model.stat().st_size


# saving that fails


def test_what_could_not_be_written_is_written_once_it_can(model: Path) -> None:
    scripted = scripted_chat("one", "two", "three", model=model)
    sessions_folder().parent.mkdir(parents=True)
    sessions_folder().write_text("a file where the folder should be")
    scripted.chat.submit("a")
    scripted.chat.submit("b")
    [note] = scripted.screen.of("warn")
    assert note.startswith("note: not saved, ")
    assert "/save PATH" in note
    scripted.chat.submit("/sessions")
    assert "no saved chats" in plain(scripted)
    sessions_folder().unlink()
    scripted.chat.submit("c")
    saved = json.loads(scripted.chat.conversation.path.read_text())
    assert [turn["message"] for turn in saved["turns"]] == ["a", "b", "c"]
    assert len(scripted.screen.of("warn")) == 1


@pytest.mark.parametrize("command", ["/clear", "/load other"])
def test_what_could_not_be_written_is_tried_again_before_another_chat_begins(
    model: Path, command: str
) -> None:
    other = save("other", "Hi").rename("other.json")
    scripted = scripted_chat("one", "two", model=model)
    sessions_folder().rmdir()
    sessions_folder().write_text("a file where the folder should be")
    scripted.chat.submit("a")
    path = scripted.chat.conversation.path
    sessions_folder().unlink()
    scripted.chat.submit(command.replace("other", f"./{other.name}"))
    assert [turn.message for turn in Transcript.load(path).turns] == ["a"]
    scripted.chat.submit("b")
    assert [turn.message for turn in Transcript.load(path).turns] == ["a"]


SAVES_AND_SAVES = """
import sys
from pathlib import Path
from outrider.cli.chat.transcript import Transcript

transcript, path = Transcript(), Path(sys.argv[1])
for number in range(10000):
    transcript.ask(f"message {number} " + "m" * 20000)
    transcript.answer("a" * 20000)
    transcript.save(path)
    print(number, flush=True)
"""


def test_killed_at_any_moment_of_saving_the_file_is_whole(tmp_path: Path) -> None:
    path, moments = tmp_path / "c.json", random.Random(7)
    for _ in range(8):
        path.unlink(missing_ok=True)
        with subprocess.Popen(
            [sys.executable, "-c", SAVES_AND_SAVES, str(path)], stdout=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout
            for _ in range(moments.randrange(1, 40)):
                child.stdout.readline()
            time.sleep(moments.uniform(0, 0.02))
            child.send_signal(signal.SIGKILL)
            said = child.stdout.read().split()
        turns = Transcript.load(path).turns
        assert all(turn.answer == "a" * 20000 for turn in turns)
        assert len(turns) > int(said[-1] if said else 0)


# export


def exported(scripted: Scripted, argument: str = "") -> str:
    scripted.chat.submit(f"/sessions export {argument}")
    [note] = [note for note in scripted.screen.of("warn") if "written to" in note]
    return Path(note.removeprefix("note: written to ")).read_text(encoding="utf-8")


def test_export_is_markdown_with_a_heading_for_each_part(model: Path) -> None:
    scripted = scripted_chat("Because.", model=model, overrides={"chat.system": "be brief"})
    scripted.chat.submit("Why 日本?")
    text = exported(scripted, "out.md")
    headings = [line for line in text.splitlines() if line.startswith("#")]
    name = scripted.chat.conversation.path.stem
    assert headings == [f"# {name}", "## System message", "## Message 1", "## Answer 1"]
    assert (
        "\n\nbe brief\n\n## Message 1\n\nWhy 日本?\n\n## Answer 1\n\n*Scripted*\n\nBecause.\n"
        in text
    )
    assert "<details>" not in text


def test_export_folds_what_was_thought(model: Path) -> None:
    scripted = scripted_chat(Answer(["Blue."], thoughts=["hm", ", so"]), model=model)
    scripted.chat.submit("Why?")
    text = exported(scripted)
    assert "<details>\n<summary>Reasoning</summary>\n\nhm, so\n\n</details>\n\nBlue.\n" in text


@pytest.mark.parametrize(
    "text", ["```python\nprint(1)", "~~~~\na\n~~~\n```", "```\na\n```\n```\nb"]
)
def test_export_closes_a_fence_that_was_left_open(text: str) -> None:
    transcript = Transcript()
    transcript.ask("first")
    transcript.answer(text)
    transcript.ask(text)
    transcript.answer("`a` ``` b ```\n\n```\nwhole\n```")
    document = markdown(transcript, "title")
    tokens = MarkdownIt().parse(document)
    headings = [tokens[at + 1].content for at, t in enumerate(tokens) if t.type == "heading_open"]
    assert headings == ["title", "Message 1", "Answer 1", "Message 2", "Answer 2"]


def test_export_never_overwrites(model: Path) -> None:
    Path("notes.md").write_text("precious")
    scripted = scripted_chat("one", model=model)
    scripted.chat.submit("Hi")
    scripted.chat.submit("/sessions export notes.md")
    scripted.chat.submit("/sessions export no/such/folder.md")
    assert "notes.md exists; give another name" in scripted.screen.of("error")[0]
    assert "No such file" in scripted.screen.of("error")[1]
    assert Path("notes.md").read_text() == "precious"


LIMITED = """
import resource
import sys
from pathlib import Path
from outrider.cli.chat.saved_conversation import SavedConversation

conversation = SavedConversation(None)
conversation.open(Path(sys.argv[1]))
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
for limit in (soft, 300, 200, soft):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    conversation.transcript.ask("m" * 100)
    conversation.transcript.answer("a" * 100)
    print(conversation.save(), conversation.is_behind)
"""


def test_a_full_disk_leaves_the_former_file_and_is_said_once(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=True
    )
    said = done.stdout.splitlines()
    why = f"not saved, File too large: {path}; /save PATH writes elsewhere"
    assert said == ["None False", f"{why} True", "None True", "None False"]
    assert len(Transcript.load(path).turns) == 4
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["c.json"]


def test_two_chats_never_overwrite_each_other(model: Path) -> None:
    save("shared", "first")
    one, two = (scripted_chat("one", "two", model=model) for _ in range(2))
    for scripted in (one, two):
        scripted.chat.submit("/load shared")
    one.chat.submit("from one")
    two.chat.submit("from two")
    one.chat.submit("one again")
    two.chat.submit("two again")
    assert one.chat.conversation.path.stem == "shared"
    said = [note for note in two.screen.of("warn") if "changed by another chat" in note]
    assert said == [
        f"note: shared.json was changed by another chat;"
        f" this one is now {two.chat.conversation.path.stem}"
    ]
    for scripted, words in ((one, ["from one", "one again"]), (two, ["from two", "two again"])):
        turns = Transcript.load(scripted.chat.conversation.path).turns
        assert [turn.message for turn in turns] == ["first", *words]
