"""/read, /glob, /copy and /tokens: on a real tokenizer, and in the real program."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.engine_chat import EngineChat, engine_chat
from tools.program import COMMAND
from tools.scripted_chat import Answer
from tools.terminal import CTRL_C, ENTER, Terminal

from outrider.cli.chat.attachments import Attachment, read_file
from outrider.cli.chat.clipboard import copy_text
from outrider.cli.chat.path_choices import path_choices, words
from outrider.cli.chat.token_view import escaped, text_tokens, token_rows
from outrider.cli.errors import UsageError
from outrider.cli.screen.render import PlainRenderer
from outrider.speculative.errors import EngineError

FOX = "The fox ran home."


@pytest.fixture
def opened(zoo: Path) -> Iterator[EngineChat]:
    with engine_chat(zoo / "target-llama.gguf", target__ctx_size=512) as opened:
        yield opened


def num_tokens(opened: EngineChat, text: str) -> int:
    """Counted apart from the chat: a text in a prompt, less what stands around it."""
    engine = opened.chat.models.engine
    return len(engine.render([{"role": "user", "content": text}])) - len(
        engine.render([{"role": "user", "content": ""}])
    )


# /read


def test_a_file_goes_with_the_next_message_and_only_with_it(opened: EngineChat) -> None:
    Path("notes.txt").write_text("The fox.\nThe dog.\n")
    session = opened.script(Answer(["one"]), Answer(["two"]))
    opened.chat.submit("/read notes.txt")
    block = "notes.txt:\n```txt\nThe fox.\nThe dog.\n```\n\n"
    count = num_tokens(opened, block)
    assert opened.screen.of("warn") == [
        f"note: notes.txt, 2 lines, {count} tokens, goes with your next message"
    ]
    opened.chat.submit("Who ran?")
    opened.chat.submit("Sure?")
    messages = [turn.message for turn in opened.chat.transcript.turns]
    assert messages == [f"{block}Who ran?", "Sure?"]
    engine = opened.chat.models.engine
    assert session.prompts[0] == engine.render([{"role": "user", "content": messages[0]}])
    saved = json.loads(opened.chat.conversation.path.read_text())
    assert [turn["message"] for turn in saved["turns"]] == messages


@pytest.mark.parametrize("error", [EngineError("llama.cpp failed"), None])
def test_after_an_answer_that_failed_the_files_are_still_there(
    opened: EngineChat, error: Exception | None
) -> None:
    Path("notes.txt").write_text(FOX)
    failed = Answer(error=error) if error else Answer([], "error", fault=("x", "broken"))
    opened.script(failed, Answer(["fine"]))
    opened.chat.submit("/read notes.txt")
    opened.chat.submit("Who ran?")
    assert opened.chat.waiting == "Who ran?"
    assert opened.chat.transcript.turns == []
    opened.chat.submit(opened.chat.waiting)
    assert FOX in opened.chat.transcript.turns[0].message


def test_what_does_not_fit_is_refused_with_the_numbers_and_nothing_is_sent(
    opened: EngineChat,
) -> None:
    opened.script(Answer(["It ran home."]))
    opened.chat.submit(FOX)
    Path("small.txt").write_text(FOX)
    Path("big.txt").write_text(f"{FOX}\n" * 100)
    opened.chat.submit("/read small.txt")
    small, big = (read_file(f"{name}.txt").block for name in ("small", "big"))
    conversation = [
        {"role": "user", "content": FOX},
        {"role": "assistant", "content": "It ran home."},
        {"role": "user", "content": small},
    ]
    free = 512 - len(opened.chat.models.engine.render(conversation))
    opened.chat.submit("/read big.txt")
    count = num_tokens(opened, big)
    # a context that this fills to three quarters at most
    context = next(n for n in (1024, 2048, 4096, 8192) if n * 3 / 4 >= count + 512 - free)
    assert opened.screen.of("error") == [
        f"error: {count:,} tokens do not fit, {free:,} are free; -c {context} or /read a part"
    ]
    assert [file.name for file in opened.chat.attachments] == ["small.txt"]
    assert len(opened.chat.transcript.turns) == 1


def test_a_file_that_fits_leaves_a_word_about_what_is_left(opened: EngineChat) -> None:
    text, size = "", 0
    while size < 512 - 100:
        text += f"{FOX}\n"
        size = num_tokens(opened, Attachment("f.txt", text).block)
    Path("f.txt").write_text(text)
    opened.chat.submit("/read f.txt")
    left = 512 - len(
        opened.chat.models.engine.render([{"role": "user", "content": read_file("f.txt").block}])
    )
    assert 0 < left < 100
    assert opened.screen.of("warn")[-1] == (
        f"note: {left} tokens left for your question and the answer"
    )


def test_a_file_read_again_takes_the_place_of_its_former_text(opened: EngineChat) -> None:
    path = Path("notes.txt")
    path.write_text(f"{FOX}\n" * 25)  # twice of it would not fit
    opened.chat.submit("/read notes.txt")
    path.write_text(f"{FOX}\n" * 26)
    opened.chat.submit("/read notes.txt")
    assert opened.screen.of("error") == []
    assert [file.num_lines for file in opened.chat.attachments] == [26]
    [attached] = opened.chat.attachments
    assert opened.chat.attachments.num_tokens == num_tokens(opened, attached.block)


def test_attached_files_are_listed_and_dropped(opened: EngineChat) -> None:
    opened.chat.submit("/read")
    Path("a b.txt").write_text("1\n2\n3\n4\n")
    opened.chat.submit("/read 'a b.txt':2-3 'a b.txt':4")
    opened.chat.submit("/read")
    part = num_tokens(opened, "a b.txt, lines 2 to 3:\n```txt\n2\n3\n```\n\n")
    plain = opened.screen.of("plain")
    assert plain[0].startswith("nothing is attached")
    assert plain[1] == f"a b.txt, lines 2 to 3, {part} tokens"
    assert plain[2].startswith("a b.txt, line 4, ")
    opened.chat.submit("/read none")
    assert list(opened.chat.attachments) == []
    assert opened.chat.attachments.num_tokens == 0


def test_a_part_of_a_file(opened: EngineChat) -> None:
    Path("n.txt").write_text("".join(f"{n}\n" for n in range(1, 11)))
    for word, wanted in {
        "n.txt:3-5": "3\n4\n5\n",
        "n.txt:9-99": "9\n10\n",
        "n.txt:10": "10\n",
        "n.txt:9-": "9\n10\n",
    }.items():
        assert read_file(word).text == wanted, word
    assert read_file("n.txt:9-99").part == "lines 9 to 10"
    Path("odd:2-3").write_text("a file of that name")
    assert read_file("odd:2-3").text == "a file of that name"


def refusals() -> dict[str, str]:
    Path("bin.png").write_bytes(b"\x89PNG\0")
    Path("empty").write_bytes(b"")
    Path("n.txt").write_text("1\n2\n")
    os.mkdir("folder")
    os.mkfifo("pipe")
    return {
        "missing": "no such file: missing",
        "bin.png": "bin.png: binary; only text can be read",
        "empty": "empty: nothing in it",
        "folder": "folder: a folder; /glob folder/* takes its files",
        "pipe": "pipe: no file but a device or a pipe; only text files can be read",
        "n.txt:7-9": "n.txt:7-9: it has 2 lines",
        "n.txt:2-1": "n.txt:2-1: allowed FILE:FROM-TO, lines from 1, FROM not after TO",
        "n.txt:0-1": "n.txt:0-1: allowed FILE:FROM-TO, lines from 1, FROM not after TO",
    }


def test_what_cannot_be_read_is_one_line(opened: EngineChat) -> None:
    wanted = refusals()
    for word in wanted:
        opened.chat.submit(f"/read {word}")
    assert opened.screen.of("error") == [f"error: {text}" for text in wanted.values()]
    opened.chat.submit("/read 'open")
    assert "a quote is open" in opened.screen.of("error")[-1]
    assert list(opened.chat.attachments) == []


def test_a_file_of_4_mb_is_refused_before_it_is_counted(opened: EngineChat) -> None:
    Path("huge.log").write_bytes(b"x" * 79 + b"\n" + b"y" * 4_000_000)
    opened.chat.submit("/read huge.log")
    assert opened.screen.of("error") == [
        "error: huge.log: more than 4 MB; /read huge.log:FROM-TO takes a part"
    ]
    assert read_file("huge.log:1").text == "x" * 79 + "\n"


def test_bytes_that_are_no_utf8_are_replaced_and_counted(opened: EngineChat) -> None:
    Path("latin.txt").write_bytes(b"caf\xe9\r\nna\xefve \xef\xbf\xbd\r")
    opened.chat.submit("/read latin.txt")
    assert opened.screen.of("warn")[1] == "note: latin.txt is not UTF-8: 2 bytes replaced by �"
    [file] = opened.chat.attachments
    assert file.text == "caf�\nna�ve �\n"


@pytest.mark.parametrize(
    ("text", "fence"),
    [("plain", "```"), ("```py\nx\n```", "````"), ("a ````` b", "``````")],
)
def test_the_fence_is_longer_than_any_in_the_file(text: str, fence: str) -> None:
    block = Attachment("notes.md", text).block
    assert block == f"notes.md:\n{fence}md\n{text}\n{fence}\n\n"


def test_a_file_name_cannot_break_out_of_its_line(opened: EngineChat) -> None:
    name = "a\n```\x1b[31m.txt"
    Path(name).write_text("x")
    file = read_file(name)
    assert file.block.startswith("a ```[31m.txt:\n```txt\n")


# /glob


def test_a_pattern_takes_text_files_in_order_and_says_what_it_left(opened: EngineChat) -> None:
    for name in ("b.txt", "a.txt", "src/deep/c.txt", ".hidden/d.txt"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(name)
    Path("src/x.bin.txt").write_bytes(b"\0")
    Path("big.txt").write_text(f"{FOX}\n" * 100)
    Path("huge.txt").write_text(f"{FOX}\n" * 1000)
    opened.chat.submit("/glob **/*.txt")
    assert [file.name for file in opened.chat.attachments] == ["a.txt", "b.txt", "src/deep/c.txt"]
    taken, skipped = opened.screen.of("warn")[:2]
    total = sum(num_tokens(opened, file.block) for file in opened.chat.attachments)
    assert taken == (
        f"note: 3 files, {total} tokens with your next message: a.txt, b.txt, src/deep/c.txt"
    )
    assert re.fullmatch(
        r"note: skipped 3 files: big.txt \([\d,]+ tokens do not fit, \d+ are free\),"
        r" huge.txt \(too large\), src/x.bin.txt \(binary\)",
        skipped,
    )


def test_a_pattern_takes_at_most_fifty_files(zoo: Path) -> None:
    for number in range(53):
        Path(f"{number:02}.txt").write_text("x")
    with engine_chat(zoo / "target-llama.gguf", target__ctx_size=4096) as opened:
        opened.chat.submit("/glob *.txt")
        taken, skipped = opened.screen.of("warn")
    assert taken.startswith("note: 50 files, ")
    assert taken.endswith("10.txt, 11.txt and 38 more")
    assert skipped.startswith("note: skipped 3 files: 50.txt (more than 50 files), 51.txt")


def test_a_pattern_without_files_is_one_line(opened: EngineChat) -> None:
    opened.chat.submit("/glob *.nothing")
    opened.chat.submit("/glob")
    assert opened.screen.of("error") == [
        "error: /glob *.nothing: no such files; example: /glob src/**/*.py",
        "error: /glob: no such files; example: /glob src/**/*.py",
    ]


def test_ctrl_c_cancels_a_search_without_end(zoo: Path) -> None:
    os.mkdir("maze")
    for name in "abc":
        os.symlink(".", f"maze/{name}")
    command = [*COMMAND, "chat", "-m", str(zoo / "target-llama.gguf"), "-t", "1", "-n", "8"]
    with Terminal(command, deadline_s=60) as terminal:
        terminal.wait_for("›")
        terminal.send("/glob **/*.txt" + ENTER + CTRL_C)
        terminal.wait_for("note: cancelled")
        terminal.send(FOX + ENTER)
        terminal.wait_for("tok/s")
        terminal.send("/exit" + ENTER)
        assert terminal.wait_exit() == 0


# completion


def test_files_of_the_folder_typed_so_far() -> None:
    Path("notes.txt").write_text("x" * 14_200)
    Path("my file.txt").write_text("x")
    Path(".secret").write_text("x")
    Path("src").mkdir()
    Path("src/main.py").write_text("")
    Path(os.environ["HOME"], "at-home.txt").write_text("12")
    assert list(path_choices("")) == [
        ("my\\ file.txt", "1 byte"),
        ("notes.txt", "14.2 kB"),
        ("src/", "folder"),
    ]
    assert list(path_choices("no")) == [("notes.txt", "14.2 kB")]
    assert list(path_choices("src/")) == [("src/main.py", "0 bytes")]
    assert list(path_choices(".s")) == [(".secret", "1 byte")]
    assert list(path_choices("notes.txt 'my")) == [("notes.txt 'my file.txt'", "1 byte")]
    assert list(path_choices("notes.txt my\\ f")) == [("notes.txt my\\ file.txt", "1 byte")]
    assert ("~/at-home.txt", "2 bytes") in list(path_choices("~/at"))
    assert list(path_choices("nowhere/x")) == []
    assert list(path_choices("notes.txt/x")) == []
    for choice, _ in path_choices("notes.txt my"):
        assert words(choice, "/read") == ["notes.txt", "my file.txt"]


def test_names_with_spaces_where_a_backslash_parts_folders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("outrider.cli.chat.path_choices._HAS_ESCAPES", False)
    Path("my dir").mkdir()
    Path("my dir/it's a file.txt").write_text("x")
    assert list(path_choices("my")) == [('my" "dir/', "folder")]
    [(choice, _)] = path_choices('my" "dir/it')
    assert words(choice, "/read") == ["my dir/it's a file.txt"]
    assert words("a\\b.txt", "/read") == ["a\\b.txt"]


# /copy

ANSWER = (
    "Here:\n\n```py\nfirst\n```\n\n1. then\n   ```\n   second\n   third\n   ```\n\nDone \x1b[31m."
)


@pytest.fixture
def no_desktop(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "TMUX", "WSL_DISTRO_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SSH_CONNECTION", "here")


def copied(raw: str) -> list[str]:
    """The texts that OSC 52 put into the terminal's clipboard."""
    found = re.findall(r"\x1b\]52;c;([A-Za-z0-9+/=]*)\x07", raw)
    return [base64.b64decode(text).decode() for text in found]


def test_an_answer_or_its_code_goes_to_the_terminals_clipboard(
    opened: EngineChat, no_desktop: None, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    opened.script(Answer(["one"]), Answer([ANSWER]))
    opened.chat.submit("/copy")
    opened.chat.submit("a")
    opened.chat.submit("b")
    for argument in ("", " code", " 1"):
        opened.chat.submit(f"/copy{argument}")
    raw = capsysbinary.readouterr().out.decode()
    assert copied(raw) == [ANSWER.replace("\x1b", ""), "second\nthird\n", "one"]
    assert opened.screen.of("warn")[-3:] == [
        "note: copied 13 lines",
        "note: copied 2 lines",
        "note: copied 1 line",
    ]
    opened.chat.submit("/copy 3")
    assert opened.screen.of("error") == [
        "error: /copy: there is no answer yet",
        "error: /copy 3: allowed: code, or the number of an answer, 1 to 2",
    ]


def test_a_desktops_own_tool_comes_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_desktop: None
) -> None:
    tool = tmp_path / "xclip"
    tool.write_text(f'#!/bin/sh\ncat > {tmp_path}/clipboard\necho "$@" > {tmp_path}/arguments\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("DISPLAY", ":0")
    written: list[str] = []
    copy_text("over ssh", written.append)
    monkeypatch.delenv("SSH_CONNECTION")
    copy_text("naïve\x07", written.append)
    assert (tmp_path / "clipboard").read_text() == "naïve"
    assert (tmp_path / "arguments").read_text() == "-selection clipboard\n"
    tool.write_text("#!/bin/sh\nexit 1\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    copy_text("a tool that fails", written.append)
    assert copied("".join(written)) == ["over ssh", "a tool that fails"]


def test_without_a_way_to_a_clipboard_it_is_one_line(opened: EngineChat, no_desktop: None) -> None:
    opened.script(Answer(["one"]))
    opened.chat.submit("a")
    printed: list[str] = []
    opened.chat.renderer = PlainRenderer(printed.append, lambda: (80, 24))
    opened.chat.submit("/copy")
    assert printed == ["error: /copy: this terminal knows no clipboard; /save PATH writes a file\n"]
    with pytest.raises(UsageError, match="74,995 bytes, a terminal takes 74,994"):
        copy_text("x" * 74_995, printed.append)


# /tokens


def test_the_tokens_of_a_text_with_their_ids(opened: EngineChat) -> None:
    text = "The fox\n日 said \\n 12"
    opened.chat.submit(f"/tokens {text}")
    head, *rows = opened.screen.of("plain")
    ids = text_tokens(opened.chat.models.engine, text)
    assert head == f"{len(ids)} tokens, {len(text)} characters"
    assert all(len(row) < 80 for row in rows)
    shown = re.findall(r'(\d+) "((?:[^"])*)"', "  ".join(rows))
    assert [int(token_id) for token_id, _ in shown] == ids
    assert "\\n" in [piece for _, piece in shown]
    # the escapes of whole characters and of the bytes of others, read back
    joined = "".join(piece for _, piece in shown)
    assert joined.encode().decode("unicode_escape").encode("latin-1").decode() == text


def test_the_tokens_of_the_last_message(opened: EngineChat) -> None:
    opened.chat.submit("/tokens")
    assert opened.screen.of("error") == ["error: /tokens: there is no message yet; /tokens TEXT"]
    opened.script(Answer(["x"]))
    opened.chat.submit(FOX)
    opened.chat.submit("/tokens")
    count = num_tokens(opened, FOX)
    assert opened.screen.of("plain")[0] == f"{count} tokens, {len(FOX)} characters"


def test_pieces_fit_the_width_and_hide_nothing() -> None:
    pieces = ["日本語" * 9, " ", "\x1b[0m", "\u200d", "\\n"]
    data = [piece.encode() for piece in pieces] + ["é".encode()[:1]]
    rows = token_rows(range(6), data, width=30)
    assert rows == [
        '0 "日本語日本語日本語日本語日',
        '本語日本語日本語日本語日本語"',
        '1 " "  2 "\\x1b[0m"',
        '3 "\\u200d"  4 "\\\\n"  5 "\\xc3"',
    ]
    many = token_rows(range(1000), [b"x"] * 1000, width=40)
    assert len(many) == 41
    assert many[-1] == f"… {1000 - sum(row.count('x') for row in many):,} tokens more"


def test_ascii_terminals_see_escapes() -> None:
    from outrider.cli.glyphs import ASCII

    assert escaped("né".encode(), ASCII) == "n\\xe9"


# the real program


def test_a_file_read_in_the_real_program_is_in_the_saved_message(
    zoo: Path, user_folders: Path
) -> None:
    Path("my notes.txt").write_text("The fox ran.\n" * 3)
    Path("big.txt").write_text(f"{FOX}\n" * 200)
    command = [*COMMAND, "chat", "-m", str(zoo / "target-llama.gguf")]
    flags = ["-t", "1", "--temp", "0", "-c", "1024", "-n", "40"]
    env = {"SSH_CONNECTION": "here", "TMUX": "", "DISPLAY": "", "WAYLAND_DISPLAY": ""}
    with Terminal([*command, *flags], columns=100, rows=30, env=env, deadline_s=60) as terminal:
        terminal.wait_for("›")
        terminal.send("/read my")
        terminal.wait_for("39 bytes")
        terminal.send("\t" + ENTER)
        terminal.wait_for("my notes.txt, 3 lines, ")
        terminal.send("/read big.txt" + ENTER)
        terminal.wait_for("are free; -c ")
        terminal.wait_match(r"\n› *\nbase .* ~\d\d / 1,024  \d %")
        terminal.send("Tell me a story about a fox." + ENTER)
        terminal.wait_for("tok/s")
        terminal.send("/copy" + ENTER)
        terminal.wait_for("note: copied ")
        terminal.send("/context" + ENTER)
        terminal.wait_for("answer 1")
        terminal.send("/exit" + ENTER)
        assert terminal.wait_exit() == 0
        raw, text = terminal.raw, terminal.text()
    [path] = (user_folders / "data" / "outrider" / "sessions").glob("*.json")
    [turn] = json.loads(path.read_text())["turns"]
    block = "my notes.txt:\n```txt\nThe fox ran.\nThe fox ran.\nThe fox ran.\n```\n\n"
    assert turn["message"] == f"{block}Tell me a story about a fox."
    assert copied(raw) == [turn["answer"]]
    assert text.count("Tell me a story about a fox.") == 1  # the screen keeps what was typed
    with engine_chat(zoo / "target-llama.gguf") as opened:
        engine = opened.chat.models.engine
        free = 1024 - len(engine.render([{"role": "user", "content": block}]))
        count = num_tokens(opened, read_file("big.txt").block)
    assert f"error: {count:,} tokens do not fit, {free:,} are free; -c 4096 or /read a part" in text
