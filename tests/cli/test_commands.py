from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from tools.scripted_chat import Answer, Scripted, scripted_chat

from outrider.cli.chat.context_window import fit_context
from outrider.cli.chat.slash import COMMANDS
from outrider.cli.chat.slash.completer import CommandCompleter
from outrider.cli.chat.transcript import Transcript, sessions_folder
from outrider.speculative.errors import EngineError, InputError, PromptTooLongError


@pytest.fixture
def model(zoo: Path) -> Path:
    return zoo / "target-llama.gguf"


def contents(scripted: Scripted) -> list[str]:
    return [message["content"] for message in scripted.chat.transcript.messages()]


def drafters(scripted: Scripted) -> tuple[str, ...]:
    return scripted.engine.drafter_names


def verification(scripted: Scripted) -> str:
    return scripted.engine.speculation.verify


# messages


def test_a_message_is_answered_recorded_and_saved(model: Path) -> None:
    scripted = scripted_chat("Hel|lo.", model=model)
    scripted.chat.submit("Hi")
    assert scripted.screen.of("answer") == ["Hello."]
    # two steps of 1 accepted of 3 and 1 own
    assert scripted.screen.of("summary")[0].startswith("4 tokens · ")
    assert "acceptance 0.33 · mean length 2.00" in scripted.screen.of("summary")[0]
    saved = json.loads(scripted.chat.conversation.path.read_text())
    assert saved["turns"][0]["message"] == "Hi"
    assert saved["turns"][0]["answer"] == "Hello."
    assert saved["turns"][0]["seed"] == 7


def test_the_next_prompt_has_the_whole_conversation(model: Path) -> None:
    scripted = scripted_chat("one", "two", model=model, overrides={"chat.system": "S"})
    scripted.chat.submit("a")
    scripted.chat.submit("b")
    assert [m["content"] for m in scripted.engine.rendered[1]] == ["S", "a", "one", "b"]


@pytest.mark.parametrize("seed", [None, 42])
def test_an_explicit_seed_is_used_for_every_turn(model: Path, seed: int | None) -> None:
    scripted = scripted_chat("x", "y", model=model, overrides={"sampling.seed": seed})
    scripted.chat.submit("a")
    scripted.chat.submit("b")
    assert [settings.seed for settings in scripted.session.settings] == [seed, seed]


@pytest.mark.parametrize(
    "error",
    [EngineError("llama.cpp failed"), InputError("no template"), PromptTooLongError(99, 50)],
)
def test_a_message_that_failed_is_back_in_the_input(model: Path, error: Exception) -> None:
    scripted = scripted_chat(Answer(error=error), "fine", model=model)
    scripted.chat.submit("precious")
    assert scripted.screen.of("error") == [f"error: {error}"]
    assert scripted.chat.waiting == "precious"
    assert contents(scripted) == []
    scripted.chat.submit("precious")
    assert contents(scripted) == ["precious", "fine"]


def test_ctrl_c_keeps_what_was_shown_and_the_next_turn_is_right(model: Path) -> None:
    scripted = scripted_chat("kept| not shown", "next", model=model)
    scripted.session.on_step = lambda: signal.raise_signal(signal.SIGINT)
    scripted.chat.submit("a")
    scripted.session.on_step = lambda: None
    assert scripted.screen.of("answer") == ["kept"]
    assert scripted.screen.of("summary")[0].startswith("stopped at 2 tokens")
    assert scripted.chat.was_stopped
    scripted.chat.submit("b")
    assert [m["content"] for m in scripted.engine.rendered[1]] == ["a", "kept", "b"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_stopped_before_a_word_the_message_is_back_in_the_input(model: Path) -> None:
    scripted = scripted_chat(Answer([""]), model=model)
    scripted.session.on_step = lambda: signal.raise_signal(signal.SIGINT)
    scripted.chat.submit("precious")
    assert scripted.chat.waiting == "precious"
    assert contents(scripted) == []
    assert scripted.chat.records == []


def test_a_generation_that_breaks_off_keeps_its_text(model: Path) -> None:
    broken = Answer(["half"], "error", fault=("decode_failed", "llama.cpp: no memory"))
    scripted = scripted_chat(broken, model=model)
    scripted.chat.submit("a")
    assert scripted.screen.of("error") == ["error: llama.cpp: no memory; kept, /retry asks again"]
    assert contents(scripted) == ["a", "half"]


def test_a_full_context_says_so(model: Path) -> None:
    scripted = scripted_chat(Answer(["long"], "context"), model=model)
    scripted.chat.submit("a")
    assert scripted.screen.of("summary")[0].startswith("context full after 2 tokens")


# the context


def fitted(policy: str, lengths: list[int], n_ctx: int, predict: int = -1) -> tuple[int, int]:
    """Length of the prompt and turns left out, for messages of these lengths (answers of 10)."""
    transcript = Transcript("system")
    for number, length in enumerate(lengths):
        transcript.ask("m" * length)
        if number < len(lengths) - 1:
            transcript.answer("a" * 10)
    ids = fit_context(
        transcript,
        lambda messages: [0] * sum(len(m["content"]) for m in messages),
        n_ctx=n_ctx,
        predict=predict,
        policy=policy,  # type: ignore[arg-type]
    )
    return len(ids), transcript.first_in_context


def test_a_conversation_that_fits_is_left_alone() -> None:
    assert fitted("drop-oldest", [100, 100, 100], n_ctx=1000) == (326, 0)


def test_the_oldest_turns_leave_until_a_quarter_is_free_and_the_system_stays() -> None:
    # 6 + 3 x 110 + 100 = 436 of 440; without two turns 216 fit into three quarters, 330
    assert fitted("drop-oldest", [100, 100, 100, 100], n_ctx=440) == (326, 1)
    assert fitted("drop-oldest", [100, 100, 100, 100], n_ctx=430) == (216, 2)


def test_the_present_message_is_never_dropped() -> None:
    assert fitted("drop-oldest", [100, 300], n_ctx=350) == (306, 1)
    with pytest.raises(PromptTooLongError) as raised:
        fitted("drop-oldest", [100, 300], n_ctx=306)
    assert (raised.value.needed, raised.value.available) == (307, 306)


def test_policy_stop_refuses_instead_of_dropping() -> None:
    assert fitted("stop", [100, 100], n_ctx=217) == (216, 0)
    with pytest.raises(PromptTooLongError):
        fitted("stop", [100, 100], n_ctx=216)


def test_dropped_turns_are_said_and_stay_in_the_file(model: Path) -> None:
    scripted = scripted_chat("a" * 40, "b" * 40, "c", model=model, n_ctx=200)
    for message in ("m" * 40, "n" * 40, "o" * 40):
        scripted.chat.submit(message)
    assert scripted.screen.of("warn") == ["note: the oldest 1 turn left the context to make room"]
    assert scripted.session.prompts[2] == [ord(c) for c in "n" * 40 + "b" * 40 + "o" * 40]
    saved = json.loads(scripted.chat.conversation.path.read_text())
    assert [turn["message"][0] for turn in saved["turns"]] == ["m", "n", "o"]


def test_policy_stop_is_one_line_and_the_message_is_kept(model: Path) -> None:
    overrides = {"chat.context_policy": "stop"}
    scripted = scripted_chat(model=model, n_ctx=30, overrides=overrides)
    scripted.chat.submit("x" * 30)
    [line] = scripted.screen.of("error")
    assert "needs 31 tokens, has 30" in line
    assert scripted.chat.waiting == "x" * 30


# commands


def test_an_unknown_command_names_the_nearest_and_sends_nothing(model: Path) -> None:
    scripted = scripted_chat(model=model)
    scripted.chat.submit("/sats please")
    [line] = scripted.screen.of("error")
    assert line.startswith("error: /sats: no such command; did you mean /stats?")
    assert scripted.session.prompts == []


def test_two_slashes_send_one_and_a_paste_is_never_a_command(model: Path) -> None:
    scripted = scripted_chat("x", "y", model=model)
    scripted.chat.submit("//exit")
    scripted.chat.submit("/exit", is_pasted=True)
    assert contents(scripted) == ["/exit", "x", "/exit", "y"]
    assert not scripted.chat.is_over


def test_help_lists_every_command_of_the_registry_and_fits(model: Path) -> None:
    for columns in (40, 80, 120):
        scripted = scripted_chat(model=model, columns=columns)
        scripted.chat.submit("/help")
        text = "\n".join(scripted.screen.of("plain"))
        for command in COMMANDS:
            assert command.name in text
            assert command.help in text
        assert "//text" in text
    wanted = (
        "/help /exit /clear /regen /undo /edit /retry /system /save /load /sessions /branch /read"
        " /glob /stats /spec /set /profile /think /tint /tokens /context /copy"
    )
    assert {command.name for command in COMMANDS} == set(wanted.split())


def test_exit_ends_the_chat(model: Path) -> None:
    scripted = scripted_chat(model=model)
    scripted.chat.submit("/exit")
    assert scripted.chat.is_over


def test_regen_asks_the_same_again(model: Path) -> None:
    scripted = scripted_chat("one", "two", model=model)
    scripted.chat.submit("a")
    scripted.chat.submit("/regen")
    assert scripted.session.prompts[0] == scripted.session.prompts[1]
    assert contents(scripted) == ["a", "two"]


def test_regen_that_fails_leaves_the_former_answer(model: Path) -> None:
    scripted = scripted_chat("one", Answer(error=EngineError("no")), model=model)
    scripted.chat.submit("a")
    scripted.chat.submit("/regen")
    assert contents(scripted) == ["a", "one"]
    fresh = scripted_chat(model=model)
    fresh.chat.submit("/regen")
    assert fresh.screen.of("error") == ["error: /regen: there is no message yet"]


def test_undo_takes_back_a_turn_and_gives_the_message_back(model: Path) -> None:
    scripted = scripted_chat("one", "two", model=model)
    scripted.chat.submit("a")
    scripted.chat.submit("b")
    scripted.chat.submit("/undo")
    assert contents(scripted) == ["a", "one"]
    assert scripted.chat.waiting == "b"
    assert len(json.loads(scripted.chat.conversation.path.read_text())["turns"]) == 1


def test_system_is_shown_set_and_removed(model: Path) -> None:
    scripted = scripted_chat("x", model=model)
    for line in ("/system", "/system be brief", "/system"):
        scripted.chat.submit(line)
    assert scripted.screen.of("plain") == ["no system message", "be brief"]
    scripted.chat.submit("a")
    assert scripted.engine.rendered[0][0] == {"role": "system", "content": "be brief"}
    scripted.chat.submit("/system none")
    assert contents(scripted) == ["a", "x"]


def test_clear_begins_anew_and_the_former_stays_saved(model: Path) -> None:
    scripted = scripted_chat("one", "two", model=model, overrides={"chat.system": "S"})
    scripted.chat.submit("a")
    former = scripted.chat.conversation.path
    scripted.chat.submit("/clear")
    assert contents(scripted) == ["S"]
    scripted.chat.submit("b")
    assert scripted.chat.conversation.path != former
    assert json.loads(former.read_text())["turns"][0]["message"] == "a"


def test_stats_sum_the_session(model: Path) -> None:
    scripted = scripted_chat("a|b", "c|d|e", model=model)
    scripted.chat.submit("/stats")
    assert scripted.screen.of("plain") == ["no answers yet"]
    scripted.chat.submit("1")
    scripted.chat.submit("2")
    scripted.chat.submit("/stats")
    # five steps of 2 tokens, 1 of 3 accepted each; 2 + 4 tokens after the first in 0.1 + 0.2 s
    assert "session  2 turns  10 tokens  20.0 tok/s  acceptance 0.33  mean length 2.00" in (
        scripted.screen.of("plain")
    )


def test_set_shows_checks_and_changes_a_setting(model: Path) -> None:
    scripted = scripted_chat("x", model=model)
    for line in ("/set temp", "/set temp=0.25", "/set top-k=7", "/set temp"):
        scripted.chat.submit(line)
    values = [row.split()[0] for row in scripted.screen.of("plain")]
    assert values == ["temp=0.8", "temp=0.25", "top_k=7", "temp=0.25"]
    scripted.chat.submit("a")
    assert scripted.session.settings[0].sampling.temp == 0.25
    assert scripted.session.settings[0].sampling.top_k == 7


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("/set temp=9", "temp=9 is out of range, allowed 0 to 5"),
        ("/set temp=hot", "a number from 0 to 5"),
        ("/set tmep=1", "did you mean 'temp'?"),
        ("/set ctx_size=9", "/set ctx_size: unknown"),
        ("/spec n=0", "from 1 to 64"),
        ("/spec of", "allowed: on, off, off once, once, n="),
        ("/spec type=telepathy", "ngram-simple"),
        ("/spec verify=maybe", "auto, greedy, match, rejection"),
        ("/profile nope", "no profile 'nope'"),
        ("/load nope", "No such file"),
        ("/save /dev/null/x/y", "Not a directory"),
        ("/undo", "nothing to take back"),
    ],
)
def test_a_bad_value_is_one_line_that_says_what_is_allowed(
    model: Path, line: str, named: str
) -> None:
    scripted = scripted_chat(model=model)
    before = scripted.chat.models.profile
    scripted.chat.submit(line)
    [error] = scripted.screen.of("error")
    assert error.startswith("error: ")
    assert named in error
    assert "\n" not in error
    assert scripted.chat.models.profile is before


def test_spec_changes_what_the_engine_does(model: Path) -> None:
    scripted = scripted_chat(model=model)
    scripted.chat.submit("/spec n=5 adaptive=false")
    assert scripted.engine.speculation.n_max == 5
    assert not scripted.engine.speculation.adaptive
    assert drafters(scripted) == ("ngram-simple",)
    scripted.chat.submit("/spec off")
    assert drafters(scripted) == ()
    assert scripted.screen.of("plain")[-1] == "speculation off by /spec"
    scripted.chat.submit("/spec on")
    assert drafters(scripted) == ("ngram-simple",)
    assert scripted.engine.speculation.n_max == 5


def test_a_rule_that_cannot_work_is_refused_and_the_former_stays(model: Path) -> None:
    scripted = scripted_chat(model=model)
    scripted.chat.submit("/spec verify=greedy")
    [error] = scripted.screen.of("error")
    assert "only at temperature 0" in error
    assert verification(scripted) == "auto"
    scripted.chat.submit("/set temp=0")
    scripted.chat.submit("/spec verify=greedy")
    assert verification(scripted) == "greedy"
    scripted.chat.submit("/set temp=1")
    assert scripted.chat.models.profile.sampling.temp == 0


def test_save_and_load_round_trip(model: Path) -> None:
    scripted = scripted_chat("one", "two", model=model)
    scripted.chat.submit("a")
    scripted.chat.submit("/save holiday")
    assert (sessions_folder() / "holiday.json").exists()
    scripted.chat.submit("/clear")
    scripted.chat.submit("/load holiday")
    assert contents(scripted) == ["a", "one"]
    scripted.chat.submit("b")
    saved = json.loads((sessions_folder() / "holiday.json").read_text())
    assert [turn["message"] for turn in saved["turns"]] == ["a", "b"]


def test_save_never_overwrites_another_conversation(model: Path) -> None:
    scripted = scripted_chat("one", "two", model=model)
    scripted.chat.submit("a")
    scripted.chat.submit("/save holiday")
    scripted.chat.submit("/clear")
    scripted.chat.submit("b")
    scripted.chat.submit("/save holiday")
    assert "exists" in scripted.screen.of("error")[0]
    saved = json.loads((sessions_folder() / "holiday.json").read_text())
    assert saved["turns"][0]["message"] == "a"


# completion


def completions(scripted: Scripted, text: str) -> dict[str, str]:
    completer = CommandCompleter(COMMANDS, lambda: scripted.chat)
    return {
        text[: len(text) + completion.start_position]
        + completion.text: completion.display_meta_text
        for completion in completer.get_completions(Document(text), CompleteEvent())
    }


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("/sa", lambda words: words == ["/save"]),
        ("/s", lambda words: " ".join(words) == "/save /sessions /set /spec /stats /system"),
        ("/set temp", lambda words: words == ["/set temp=", "/set template_kwargs="]),
        ("/profile smollm2-", lambda words: "/profile smollm2-plain" in words),
        ("/spec t", lambda words: words == ["/spec type="]),
        ("hello /s", lambda words: words == []),
        ("/nope x", lambda words: words == []),
    ],
)
def test_commands_and_their_arguments_are_completed(
    model: Path, typed: str, offered: Callable[[list[str]], bool]
) -> None:
    assert offered(list(completions(scripted_chat(model=model), typed)))


def test_completions_describe_what_they_do(model: Path) -> None:
    scripted = scripted_chat(model=model)
    assert completions(scripted, "/sav")["/save"] == "save under a name"
    assert completions(scripted, "/set top_k")["/set top_k="].startswith("40 (0 to ")
