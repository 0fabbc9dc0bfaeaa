"""Asking again, editing and going back: the commands about turns and their branches."""

from __future__ import annotations

from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from tools.scripted_chat import Answer, Scripted, scripted_chat
from tools.shell_editor import Editor, shell_editor

from outrider.cli.chat.slash import COMMANDS
from outrider.cli.chat.slash.completer import CommandCompleter
from outrider.cli.chat.transcript import Branch, Transcript
from outrider.speculative.errors import EngineError


@pytest.fixture
def model(zoo: Path) -> Path:
    return zoo / "target-llama.gguf"


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Editor:
    return shell_editor(tmp_path, monkeypatch)


def tell(scripted: Scripted, *lines: str) -> None:
    for line in lines:
        scripted.chat.submit(line)


def contents(scripted: Scripted) -> list[str]:
    return [message["content"] for message in scripted.chat.transcript.messages()]


def said(branch: Branch) -> list[str]:
    return [text for turn in branch.turns for text in (turn.message, turn.answer or "")]


def saved_branches(scripted: Scripted) -> list[list[str]]:
    """What the file holds."""
    return [said(b) for b in Transcript.load(scripted.chat.conversation.path).branches]


def temperatures(scripted: Scripted) -> list[float]:
    return [settings.sampling.temp for settings in scripted.session.settings]


def seeds(scripted: Scripted) -> list[int | None]:
    return [settings.seed for settings in scripted.session.settings]


# asking again


def test_regen_keeps_the_former_answer_as_a_branch(model: Path) -> None:
    scripted = scripted_chat("one", "two", "three", model=model)
    tell(scripted, "a", "/regen")
    assert scripted.session.prompts[0] == scripted.session.prompts[1]
    assert contents(scripted) == ["a", "two"]
    assert saved_branches(scripted) == [["a", "one"], ["a", "two"]]
    tell(scripted, "/branch 1", "b")
    assert contents(scripted) == ["a", "one", "b", "three"]
    assert saved_branches(scripted) == [["a", "one", "b", "three"], ["a", "two"]]


def test_regen_takes_other_settings_for_this_once(model: Path) -> None:
    scripted = scripted_chat("one", "two", "three", model=model)
    before = scripted.chat.models.profile
    tell(scripted, "a", "/regen temp=0.25 top-k=7", "/regen")
    assert temperatures(scripted) == [0.8, 0.25, 0.8]
    assert [settings.sampling.top_k for settings in scripted.session.settings] == [40, 7, 40]
    assert scripted.chat.models.profile == before


@pytest.mark.parametrize("answer", [Answer(error=EngineError("no")), Answer([""], "cancelled")])
def test_settings_are_back_and_the_former_answer_stays_if_no_word_comes(
    model: Path, answer: Answer
) -> None:
    scripted = scripted_chat("one", answer, model=model)
    before = scripted.chat.models.profile
    tell(scripted, "a", "/regen temp=0.25")
    assert contents(scripted) == ["a", "one"]
    assert len(scripted.chat.transcript.branches) == 1
    assert scripted.chat.models.profile == before
    assert scripted.chat.waiting == ""


def test_regen_draws_another_seed_where_the_seed_is_fixed(model: Path) -> None:
    scripted = scripted_chat(*"abcd", model=model, overrides={"sampling.seed": 42})
    tell(scripted, "m", "/regen", "/regen", "/regen seed=5")
    assert seeds(scripted) == [42, 43, 44, 5]
    last = scripted_chat("a", "b", model=model, overrides={"sampling.seed": 2**32 - 1})
    tell(last, "m", "/regen")
    assert seeds(last) == [2**32 - 1, 0]


def test_retry_asks_with_the_seed_of_the_last_answer(model: Path) -> None:
    scripted = scripted_chat("one", "one", model=model)
    tell(scripted, "a", "/retry")
    assert seeds(scripted) == [None, 7]  # 7 was drawn
    assert scripted.screen.of("warn") == ["note: the same text as before"]
    assert saved_branches(scripted) == [["a", "one"]]


def test_retry_keeps_the_settings_of_the_last_answer_but_for_those_given(model: Path) -> None:
    scripted = scripted_chat(*"abcdef", model=model)
    tell(scripted, "m", "/regen temp=1.5 top_k=3", "/retry", "/retry temp=2", "/retry", "/regen")
    assert temperatures(scripted) == [0.8, 1.5, 1.5, 2, 2, 0.8]
    assert [settings.sampling.top_k for settings in scripted.session.settings] == [
        *(40, 3, 3, 3, 3, 40)
    ]
    assert seeds(scripted) == [None, None, 7, 7, 7, None]


def test_retry_after_an_answer_that_broke_off(model: Path) -> None:
    broken = Answer(["half"], "error", fault=("decode_failed", "llama.cpp: no memory"))
    scripted = scripted_chat(broken, "half and half", model=model)
    tell(scripted, "a")
    assert scripted.screen.of("error") == ["error: llama.cpp: no memory; kept, /retry asks again"]
    tell(scripted, "/retry")
    assert contents(scripted) == ["a", "half and half"]


@pytest.mark.parametrize("command", ["/regen", "/retry"])
@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ("temp=9", "0 to 5"),
        ("tmep=1", "did you mean 'temp'?"),
        ("top_k=3 temp=9", "0 to 5"),
        ("now", "allowed: KEY=VALUE"),
        ("verify=greedy", "verify: unknown"),
    ],
)
def test_settings_have_the_limits_of_set(
    model: Path, command: str, settings: str, named: str
) -> None:
    scripted = scripted_chat("one", model=model)
    tell(scripted, "a", f"{command} {settings}")
    [error] = scripted.screen.of("error")
    assert named in error
    assert contents(scripted) == ["a", "one"]


@pytest.mark.parametrize("command", ["/regen", "/retry", "/edit", "/edit 1"])
def test_without_a_message_there_is_nothing_to_ask_again(model: Path, command: str) -> None:
    scripted = scripted_chat(model=model)
    tell(scripted, command)
    name = command.split()[0]
    assert scripted.screen.of("error") == [f"error: {name}: there is no message yet"]


# taking back


def test_undo_can_be_undone(model: Path) -> None:
    scripted = scripted_chat("one", "two", "three", model=model)
    tell(scripted, "a", "b", "/undo", "/undo")
    assert contents(scripted) == []
    assert saved_branches(scripted) == [["a", "one", "b", "two"], []]
    tell(scripted, "/branch 1")
    assert contents(scripted) == ["a", "one", "b", "two"]
    assert saved_branches(scripted) == [["a", "one", "b", "two"]]


# editing


def test_an_edited_message_is_asked_in_a_branch_from_there(model: Path, editor: Editor) -> None:
    scripted = scripted_chat("one", "two", "three", model=model)
    editor('cp "$1" seen; printf "A\\r\\nmore\\033[31m\\n" > "$1"')
    tell(scripted, "a", "b", "/edit 1")
    assert Path("seen").read_text() == "a\n"
    assert contents(scripted) == ["A\nmore[31m", "three"]
    assert scripted.screen.of("strong") == ["› A", "more[31m"]
    assert saved_branches(scripted) == [["a", "one", "b", "two"], ["A\nmore[31m", "three"]]


def test_without_a_number_it_is_the_last_message(model: Path, editor: Editor) -> None:
    scripted = scripted_chat("one", "two", "three", model=model)
    editor('echo more >> "$1"')
    tell(scripted, "a", "b", "/edit")
    assert contents(scripted) == ["a", "one", "b\nmore", "three"]


@pytest.mark.parametrize("message", ["a", "a\n", "日本語\n\n  x", "e\u0301 ❤️"])
def test_unchanged_or_empty_nothing_is_asked(model: Path, editor: Editor, message: str) -> None:
    scripted = scripted_chat("one", model=model)
    tell(scripted, message)
    for script in (
        "true",
        'printf "%s" "$(cat "$1")" > "$1"',
        'echo > "$1"',
        'rm "$1"; touch "$1"',
    ):
        editor(script)
        tell(scripted, "/edit")
    assert scripted.screen.of("warn") == [
        *2 * ["note: the message is unchanged"],
        *2 * ["note: no text, nothing is asked"],
    ]
    assert contents(scripted) == [message, "one"]
    assert len(scripted.chat.transcript.branches) == 1


@pytest.mark.parametrize(
    ("script", "named"),
    [
        ("echo x > $1; exit 3", "ended with exit code 3; nothing was changed"),
        ('rm "$1"', "no file"),
    ],
)
def test_an_editor_that_fails_is_one_line(
    model: Path, editor: Editor, script: str, named: str
) -> None:
    scripted = scripted_chat("one", model=model)
    path = editor(script)
    tell(scripted, "a", "/edit")
    [error] = scripted.screen.of("error")
    assert error.startswith(f"error: EDITOR='{path}': ")
    assert named in error
    assert contents(scripted) == ["a", "one"]


@pytest.mark.parametrize(
    ("value", "named"), [("no-such-editor -w", "No such file"), ("'half", "No closing quotation")]
)
def test_an_editor_that_is_none_is_one_line(
    model: Path, monkeypatch: pytest.MonkeyPatch, value: str, named: str
) -> None:
    monkeypatch.setenv("VISUAL", value)
    scripted = scripted_chat("one", model=model)
    tell(scripted, "a", "/edit")
    [error] = scripted.screen.of("error")
    assert error.startswith(f"error: VISUAL={value}: ")
    assert named in error


@pytest.mark.parametrize("number", ["0", "3", "-1", "x", "²"])
def test_a_message_that_is_none_is_one_line(model: Path, number: str) -> None:
    scripted = scripted_chat("one", "two", model=model)
    tell(scripted, "a", "b", f"/edit {number}")
    assert scripted.screen.of("error") == [f"error: /edit {number}: allowed: 1 to 2"]


def test_an_edited_message_that_failed_waits_in_the_input_of_its_branch(
    model: Path, editor: Editor
) -> None:
    no = Answer(error=EngineError("no"))
    scripted = scripted_chat("one", "two", no, "three", model=model)
    editor('echo B > "$1"')
    tell(scripted, "a", "b", "/edit 2")
    assert scripted.chat.waiting == "B"
    tell(scripted, "B")
    assert contents(scripted) == ["a", "one", "B", "three"]
    assert saved_branches(scripted) == [["a", "one", "b", "two"], ["a", "one", "B", "three"]]


# branches


def three_branches(model: Path, editor: Editor, columns: int = 80) -> Scripted:
    answers = ("Because air scatters.", "It scatters more.", "Look up.", "No moon.", "Sunset.")
    scripted = scripted_chat(*answers, model=model, columns=columns)
    editor('echo "And at night when\nthere is no sun?" > "$1"')
    tell(scripted, "Why is the sky blue?", "And violet?", "/edit", "/edit 1", "/branch 1", "/regen")
    return scripted


def test_branch_lists_them_as_seen_from_the_one_in_use(model: Path, editor: Editor) -> None:
    scripted = three_branches(model, editor)
    tell(scripted, "/branch")
    assert scripted.screen.of("plain") == [
        "   #  turns  parts at   begins",
        "   1      2  answer 2   It scatters more.",
        "   2      2  message 2  And at night when there is no sun?",
        "   3      1  message 1  And at night when there is no sun?",
        ">  4      2  –          Why is the sky blue?",
    ]


def test_rows_of_branches_fit_a_narrow_terminal(model: Path, editor: Editor) -> None:
    scripted = three_branches(model, editor, columns=40)
    tell(scripted, "/branch")
    assert scripted.screen.of("plain") == [
        "   #  turns  parts at   begins",
        "   1      2  answer 2   It scatters mo…",
        "   2      2  message 2  And at night w…",
        "   3      1  message 1  And at night w…",
        ">  4      2  –          Why is the sky…",
    ]


def test_one_branch_says_what_begins_others(model: Path) -> None:
    scripted = scripted_chat("one", model=model)
    tell(scripted, "a", "/branch", "/branch 2")
    assert scripted.screen.of("plain")[1] == ">  1      1  –         a"
    assert scripted.screen.of("warn") == [
        "note: one branch; /regen, /retry, /edit and /undo begin others"
    ]
    assert scripted.screen.of("error") == ["error: /branch 2: allowed: 1"]


def test_a_saved_conversation_comes_back_with_its_branches(model: Path) -> None:
    scripted = scripted_chat("one", "two", "three", model=model)
    tell(scripted, "a", "/regen", "/save tree", "/clear", "/load tree", "/branch 1", "b")
    assert contents(scripted) == ["a", "one", "b", "three"]
    assert saved_branches(scripted) == [["a", "one", "b", "three"], ["a", "two"]]


def test_a_branch_has_its_own_place_in_the_context(model: Path, editor: Editor) -> None:
    scripted = scripted_chat(*(letter * 40 for letter in "abcd"), model=model, n_ctx=200)
    editor('echo edited > "$1"')
    tell(scripted, "m" * 40, "n" * 40, "o" * 40, "/edit 2")
    # the first message had left the context of the longer branch
    assert scripted.session.prompts[3] == [ord(c) for c in "m" * 40 + "a" * 40 + "edited"]
    tell(scripted, "/branch 1")
    assert contents(scripted)[0] == "n" * 40
    assert scripted.screen.of("strong")[-1] == "› " + "o" * 40
    assert scripted.screen.of("answer")[-1] == "c" * 40


def test_regen_sees_what_the_first_answer_saw(model: Path) -> None:
    scripted = scripted_chat(*(letter * 40 for letter in "abcd"), model=model, n_ctx=200)
    tell(scripted, "m" * 40, "n" * 40, "o" * 40, "/regen")
    assert scripted.session.prompts[3] == scripted.session.prompts[2]
    assert scripted.screen.of("warn") == ["note: the oldest 1 turn left the context to make room"]


# completion


def completions(scripted: Scripted, text: str) -> dict[str, str]:
    completer = CommandCompleter(COMMANDS, lambda: scripted.chat)
    return {
        text[: len(text) + one.start_position] + one.text: one.display_meta_text
        for one in completer.get_completions(Document(text), CompleteEvent())
    }


def test_messages_branches_and_settings_are_completed(model: Path, editor: Editor) -> None:
    scripted = three_branches(model, editor)
    assert completions(scripted, "/edit ") == {
        "/edit 1": "Why is the sky blue?",
        "/edit 2": "And violet?",
    }
    assert completions(scripted, "/branch ") == {
        "/branch 1": "2 turns   answer 2   It scatters more.",
        "/branch 2": "2 turns   message 2   And at night when there is no sun?",
        "/branch 3": "1 turn   message 1   And at night when there is no sun?",
    }
    for command in ("/regen", "/retry"):
        offered = completions(scripted, f"{command} top_k=3 tem")
        assert list(offered) == [f"{command} top_k=3 temp=", f"{command} top_k=3 template_kwargs="]
