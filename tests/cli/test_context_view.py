"""/context: the parts of the prompt sum to it, and are what the template was given."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.engine_chat import EngineChat, engine_chat
from tools.scripted_chat import Answer

from outrider.cli.chat.context_view import (
    ContextUse,
    cache_sizes,
    context_rows,
    context_use,
    count_tokens,
    next_prompt,
)
from outrider.cli.engine_setup import engine_settings
from outrider.cli.glyphs import ASCII
from outrider.profiles.fields import check
from outrider.speculative.cache_size import CacheShape, cache_bytes
from outrider.speculative.gguf_file import GgufFile

# the table of the design
DRAWN = ContextUse(
    {"system prompt": 38, "template": 21, "message 1": 917, "answer 1": 308},
    n_ctx=8192,
    cache=180 * 2**20,
    drafter=6 * 2**20,
)


def tokens(opened: EngineChat, text: str) -> int:
    engine = opened.chat.models.engine
    return len(engine.encode(text, parse_special=False)) - len(engine.encode(""))


def test_the_table_is_the_one_that_was_drawn() -> None:
    assert context_rows(DRAWN, width=80) == [
        "1,284 of 8,192 tokens, 16 %     6,908 free     cache 180 MiB, drafter 6 MiB",
        "system prompt       38  ▎",
        "template            21  ▏",
        "message 1          917  ███████▏",
        "answer 1           308  ██▍",
    ]


def test_narrow_it_is_a_value_a_line() -> None:
    assert context_rows(DRAWN, width=40) == [
        "1,284 of 8,192 tokens, 16 %",
        "6,908 free",
        "cache 180 MiB",
        "drafter 6 MiB",
        "system prompt 38",
        "template 21",
        "message 1 917",
        "answer 1 308",
    ]


def test_ascii_bars_and_no_drafter() -> None:
    use = ContextUse({"template": 512, "message 1": 7680}, 8192, cache=1, num_left=2)
    assert context_rows(use, width=80, glyphs=ASCII) == [
        "8,192 of 8,192 tokens, 100 %     0 free     cache 0.0 MiB",
        "template           512  ####",
        "message 1        7,680  " + "#" * 55,
        "turns 1 to 2 left the context to make room",
    ]


@pytest.mark.parametrize("width", [60, 80, 132])
def test_no_row_is_wider_than_the_terminal(width: int) -> None:
    use = ContextUse({"template": 3, "turns 98 to 1234": 8100}, 8192, cache=2**40, drafter=2**40)
    assert max(len(row) for row in context_rows(use, width=width)) == min(width - 1, 26 + 64)


@pytest.mark.parametrize("target", ["target-llama", "target-swa-gemma3", "target-hybrid-lfm2"])
def test_the_parts_sum_to_the_prompt_and_are_the_texts(zoo: Path, target: str) -> None:
    Path("notes.txt").write_text("The dog slept.\n")
    with engine_chat(zoo / f"{target}.gguf", chat__system="Tell stories.") as opened:
        opened.script(Answer(["It ran home."]), Answer(["Yes.\n\nIt did."]))
        opened.chat.submit("Where is the fox?")
        opened.chat.submit("Sure? user <|im_end|>")
        opened.chat.submit("/read notes.txt")
        [attached] = opened.chat.attachments
        use = context_use(opened.chat)
        texts = {
            "system prompt": "Tell stories.",
            "message 1": "Where is the fox?",
            "answer 1": "It ran home.",
            "message 2": "Sure? user <|im_end|>",
            "answer 2": "Yes.\n\nIt did.",
            "attached": attached.block,
        }
        assert list(use.parts) == ["system prompt", "template", *list(texts)[1:]]
        # alone a text may be cut otherwise at its edges
        for part, text in texts.items():
            assert use.parts[part] == pytest.approx(tokens(opened, text), abs=2), part
        assert use.used == len(next_prompt(opened.chat))
        assert 0 < use.parts["template"] < use.used // 2
        opened.chat.submit("/context")
        rows = opened.screen.of("plain")
        assert rows[0].startswith(f"{use.used:,} of 4,096 tokens, ")
        assert sum(int(row[14:22].replace(",", "")) for row in rows[1:]) == use.used


def test_a_new_chat_has_a_template_and_what_is_thought_counts_where_it_is_kept(zoo: Path) -> None:
    with engine_chat(zoo / "target-llama.gguf") as opened:
        assert list(context_use(opened.chat).parts) == ["template"]
        opened.script(Answer(["x"], thoughts=["The fox is red."]))
        opened.chat.submit("Hi")
        assert context_use(opened.chat).parts["answer 1"] == tokens(opened, "x")


def test_old_turns_are_one_part_and_what_left_the_context_is_said(zoo: Path) -> None:
    with engine_chat(zoo / "target-llama.gguf") as opened:
        for number in range(1, 13):
            opened.chat.transcript.ask(f"fox {number}")
            opened.chat.transcript.answer("dog" if number != 11 else "")
        opened.chat.transcript.ask("no answer came")  # the next message takes its place
        opened.chat.transcript.first_in_context = 1
        use = context_use(opened.chat)
        assert next(iter(use.parts)) == "template"
        assert list(use.parts)[1] == "turns 2 to 3"
        # eight turns with an answer, the eleventh has none
        assert list(use.parts)[2:] == [
            f"{noun} {number}"
            for number in (4, 5, 6, 7, 8, 9, 10, 12)
            for noun in ("message", "answer")
        ]
        assert use.used == len(next_prompt(opened.chat))
        assert context_rows(use, width=80)[-1] == "turn 1 left the context to make room"


def test_tokens_are_given_to_the_texts_they_are_of() -> None:
    pieces = [b"", b"user", b"\n", b" The", b" fox", b".", b"", b"\n", b"a b", b"c", b""]
    assert count_tokens(pieces, ["The fox.", "a bc"]) == [3, 2]
    assert count_tokens(pieces, ["  The fox.\n", ""]) == [3, 0]  # trimmed by the template
    assert count_tokens(pieces, ["a ", "b"]) == [1, 0]  # one token for both: the first has it
    assert count_tokens(pieces, ["not there", "The"]) == [0, 1]


def test_the_bytes_of_the_caches_are_those_of_the_models(zoo: Path) -> None:
    draft = zoo / "draft-simple.gguf"
    model = check("drafter.model", str(draft))
    with engine_chat(
        zoo / "target-hybrid-lfm2.gguf", target__ctx_size=1024, drafter__model=model
    ) as opened:
        models = opened.chat.models
        settings = engine_settings(models.profile)
        shape = CacheShape(1024, 512, "f16", "f16")
        longest = CacheShape(1024, 512, "f16", "f16", longest_draft=models.engine.max_draft)
        assert cache_sizes(settings, 1024, models.engine.max_draft) == (
            cache_bytes(GgufFile.open(zoo / "target-hybrid-lfm2.gguf"), longest),
            cache_bytes(GgufFile.open(draft), shape),
        )
        opened.chat.submit("/spec off")
        assert context_use(opened.chat).drafter is None
