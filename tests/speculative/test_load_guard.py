"""What is refused before llama.cpp sees it; each of these ends the process or fails late."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tools.gguf_writer import Given, model, write

from outrider.speculative.errors import InputError
from outrider.speculative.gguf_file import GgufFile
from outrider.speculative.load_guard import check_loadable, check_target


def _file(tmp_path: Path, metadata: dict[str, Given], name: str = "m.gguf") -> GgufFile:
    return GgufFile.open(write(tmp_path / name, metadata))


def test_the_zoo_is_let_through(zoo: Path) -> None:
    for path in sorted(zoo.glob("*.gguf")):
        check_loadable(GgufFile.open(path))
    for path in sorted(zoo.glob("target-*.gguf")):
        check_target(GgufFile.open(path))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"general.architecture": "quipu"}, "architecture 'quipu' is unknown"),
        ({"general.architecture": "clip"}, "vision part"),
        ({"llama.block_count": 0}, "0 layers"),
        ({"llama.block_count": 513}, "513 layers"),
        ({"llama.nextn_predict_layers": 3}, "2 layers with 3 MTP heads"),
        ({"llama.expert_count": 2000, "llama.expert_used_count": 2}, "2 of 2000 experts"),
        ({"llama.expert_count": 4, "llama.expert_used_count": 5}, "5 of 4 experts"),
        ({"llama.expert_count": 4}, "0 of 4 experts"),
        ({"llama.expert_used_count": 1}, "1 of 0 experts"),
        ({"llama.rope.scaling.type": "spiral"}, "RoPE scaling 'spiral'"),
        ({"tokenizer.ggml.model": "none"}, "has no vocabulary"),
        ({"tokenizer.ggml.tokens": ["a", "b", "a"]}, "token b'a' is in the vocabulary twice"),
        ({"tokenizer.ggml.token_type": [1, 1]}, "not every token has a type"),
    ],
)
def test_a_file_that_llama_cpp_cannot_load(
    changes: dict[str, Given], reason: str, tmp_path: Path
) -> None:
    metadata = {**model(), **changes}
    if "tokenizer.ggml.model" in changes:
        del metadata["tokenizer.ggml.tokens"]
    with pytest.raises(InputError, match=reason) as caught:
        check_loadable(_file(tmp_path, metadata))
    assert str(caught.value).startswith(str(tmp_path / "m.gguf"))


def test_empty_tokens_may_repeat(tmp_path: Path) -> None:
    check_loadable(_file(tmp_path, model(("a", "", "b", ""))))


def test_a_file_without_an_architecture(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not say which architecture"):
        check_loadable(_file(tmp_path, {"general.name": "nameless"}))


def test_drafters_and_encoders_are_no_targets(tmp_path: Path) -> None:
    for architecture, reason in (
        ("eagle3", "a draft-eagle3 drafter, not a model to chat with; use --model-draft"),
        ("bert", "a bert model writes no text"),
    ):
        metadata = model(general__architecture=architecture)
        metadata[f"{architecture}.block_count"] = 1
        file = _file(tmp_path, metadata)
        check_loadable(file)
        with pytest.raises(InputError, match=reason):
            check_target(file)


def _split(tmp_path: Path, part: int, name: str) -> GgufFile:
    return _file(tmp_path, {**model(), "split.count": 2, "split.no": part - 1}, name)


def test_a_split_model_needs_all_its_parts(tmp_path: Path) -> None:
    first = _split(tmp_path, 1, "big-00001-of-00002.gguf")
    with pytest.raises(InputError, match="part 2 of 2 is missing; all 2 belong in one folder"):
        check_loadable(first)
    second = _split(tmp_path, 2, "big-00002-of-00002.gguf")
    check_loadable(first)
    with pytest.raises(InputError, match="part 2 of 2; name the first part"):
        check_loadable(second)


def test_a_damaged_part_is_named(tmp_path: Path) -> None:
    first = _split(tmp_path, 1, "big-00001-of-00002.gguf")
    (tmp_path / "big-00002-of-00002.gguf").write_bytes(b"GGUF")
    with pytest.raises(InputError, match=r"big-00002-of-00002\.gguf: the header is cut short"):
        check_loadable(first)


def test_a_renamed_part_is_refused(tmp_path: Path) -> None:
    _split(tmp_path, 1, "big-00001-of-00002.gguf")
    shutil.copy(tmp_path / "big-00001-of-00002.gguf", tmp_path / "mine.gguf")
    with pytest.raises(InputError, match=r"one of 2 parts, but its name does not end in"):
        check_loadable(GgufFile.open(tmp_path / "mine.gguf"))
