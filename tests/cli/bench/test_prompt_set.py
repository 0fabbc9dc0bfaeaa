from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from outrider.cli.bench.prompt_set import read_prompts
from outrider.cli.errors import UsageError

CATEGORIES = {
    *("coding", "humanities", "math", "multilingual", "qa", "rag"),
    *("reasoning", "roleplay", "stem", "summarization", "writing"),
}


def write(*rows: object) -> Path:
    path = Path("set.jsonl")
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    return path


def row(name: object, category: object = "qa", turns: object = ("Hello?",)) -> dict[str, object]:
    return {"question_id": name, "category": category, "turns": turns}


def test_our_own_set_is_what_the_docs_say() -> None:
    prompts = read_prompts(None)
    assert prompts.num_skipped == 0
    assert set(prompts.categories) == CATEGORIES
    assert min(Counter(sample.category for sample in prompts.samples).values()) >= 8
    longer = Counter(sample.category for sample in prompts.samples if len(sample.turns) > 1)
    assert all(longer[category] >= 2 for category in CATEGORIES)
    turns = [turn for sample in prompts.samples for turn in sample.turns]
    assert len(set(turns)) == len(turns)


def test_passages_of_our_own_set_are_there() -> None:
    for sample in read_prompts(None).samples:
        if sample.category in ("rag", "summarization"):
            passage = max(sample.turns[0].split("\n\n"), key=len)
            assert 80 <= len(passage.split()) <= 250


def test_rows_without_id_category_or_turns_are_counted_and_left_out() -> None:
    path = write(
        row("a", turns=[" one ", "two"]),
        row(7),
        row(None),
        row(""),
        row(True),
        row("b", category=None),
        row("c", turns=[]),
        row("d", turns="text"),
        row("e", turns=["one", ""]),
        row("f", turns=["one", 2]),
        {},
    )
    prompts = read_prompts(path)
    assert [(one.id, one.turns) for one in prompts.samples] == [
        ("a", ("one", "two")),
        ("7", ("Hello?",)),
    ]
    assert prompts.num_skipped == 9


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"question_id": ', "line 1: not JSON"),
        (b"[]", "line 1: not a JSON object"),
        (b"\xff", "not UTF-8 text"),
        (b"", "no row with question_id, category and turns"),
    ],
)
def test_a_file_that_is_no_set_is_refused(content: bytes, reason: str) -> None:
    Path("set.jsonl").write_bytes(content)
    with pytest.raises(UsageError, match=reason):
        read_prompts(Path("set.jsonl"))


def test_a_missing_file_and_an_id_that_is_there_twice_are_refused() -> None:
    with pytest.raises(UsageError, match=r"--prompts no\.jsonl: No such file"):
        read_prompts(Path("no.jsonl"))
    with pytest.raises(UsageError, match="line 2: question_id 'a' is there twice"):
        read_prompts(write(row("a"), row("a", turns=["other"])))


def test_categories_and_limit_select() -> None:
    names = [("a", "x"), ("b", "y"), ("c", "x"), ("d", "z"), ("e", "x")]
    prompts = read_prompts(write(*(row(*name) for name in names)))

    def selected(categories: str | None, limit: int | None) -> str:
        return "".join(one.id for one in prompts.select(categories, limit).samples)

    assert selected(None, None) == selected("all", None) == "abcde"
    assert selected("x, z", None) == "acde"
    assert selected(None, 1) == "abd"
    assert selected("x", 2) == "ac"


@pytest.mark.parametrize("text", ["w", "x,w", "", " , "])
def test_an_unknown_category_lists_those_there_are(text: str) -> None:
    prompts = read_prompts(write(row("a", "x"), row("b", "y")))
    with pytest.raises(UsageError, match=r"--category: .*; set\.jsonl has x, y"):
        prompts.select(text, None)


def test_the_hash_is_that_of_ids_categories_and_texts() -> None:
    first = read_prompts(write(row("a"), row("b"))).sha256
    assert read_prompts(write(row("a"), {}, row("b"))).sha256 == first
    for other in ((row("a"),), (row("a"), row("b", "x")), (row("a"), row("b", turns=["Bye."]))):
        assert read_prompts(write(*other)).sha256 != first
