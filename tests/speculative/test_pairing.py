"""Which draft files fit a target: llama.cpp's rules, told from the headers."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.gguf_writer import Given, model, write

from outrider.speculative.errors import InputError
from outrider.speculative.gguf_file import GgufFile
from outrider.speculative.pairing import Finding, check_pair, examine

WORDS = ["<unk>", "<s>", "</s>", *(f"word{number}" for number in range(3, 300))]


def _file(path: Path, tokens: list[str], **changes: Given) -> GgufFile:
    changes = {f"tokenizer__ggml__{name}": value for name, value in changes.items()}
    return GgufFile.open(write(path, model(tokens, **changes)))


@pytest.fixture
def target(tmp_path: Path) -> GgufFile:
    return _file(tmp_path / "target.gguf", WORDS)


def test_the_zoo_pair_fits(zoo: Path) -> None:
    pair = [GgufFile.open(zoo / f"{name}.gguf") for name in ("target-llama", "draft-simple")]
    check_pair(*pair)
    assert examine(*pair) == (
        Finding("fits", "vocabulary", "drafter 512, target 512, same token texts"),
        Finding("fits", "special", "bos 1 and 1, end 2 and 2"),
    )


@pytest.mark.parametrize("missing", [1, 128])
def test_sizes_may_differ_a_little(missing: int, target: GgufFile, tmp_path: Path) -> None:
    draft = _file(tmp_path / "draft.gguf", WORDS[:-missing])
    check_pair(target, draft)
    check_pair(draft, target)


def test_sizes_that_differ_more_are_both_named(target: GgufFile, tmp_path: Path) -> None:
    draft = _file(tmp_path / "draft.gguf", WORDS[:-129])
    with pytest.raises(InputError, match="vocabulary: drafter 171, target 300: over 128 apart"):
        check_pair(target, draft)
    with pytest.raises(InputError, match="drafter 300, target 171"):
        check_pair(draft, target)


@pytest.mark.parametrize(("token_id", "allowed"), [(0, True), (4, True), (5, False), (299, False)])
def test_another_text_is_named_with_its_id(
    token_id: int, allowed: bool, target: GgufFile, tmp_path: Path
) -> None:
    words = [*WORDS]
    words[token_id] = "Wort"
    draft = _file(tmp_path / "draft.gguf", words)
    if allowed:
        check_pair(target, draft)
        return
    expected = f"token {token_id} is 'Wort' for the drafter, 'word{token_id}' for the target"
    with pytest.raises(InputError, match=expected):
        check_pair(target, draft)


def test_two_kinds_of_tokenizer(target: GgufFile, tmp_path: Path) -> None:
    draft = _file(tmp_path / "draft.gguf", WORDS, model="gpt2", add_bos_token=True, bos_token_id=1)
    with pytest.raises(InputError, match="tokenizer: drafter BPE, target SPM"):
        check_pair(target, draft)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"add_bos_token": False}, "the drafter adds no bos, the target adds bos 1"),
        ({"bos_token_id": 7}, "the drafter adds bos 7, the target adds bos 1"),
        ({"add_eos_token": True}, "the drafter adds eos 2, the target adds no eos"),
    ],
)
def test_tokens_added_at_the_ends_must_agree(
    changes: dict[str, Given], reason: str, target: GgufFile, tmp_path: Path
) -> None:
    draft = _file(tmp_path / "draft.gguf", WORDS, **changes)
    with pytest.raises(InputError, match=reason):
        check_pair(target, draft)


def test_an_end_that_nobody_adds_may_differ(target: GgufFile, tmp_path: Path) -> None:
    draft = _file(tmp_path / "draft.gguf", WORDS, eos_token_id=7)
    check_pair(target, draft)


def test_a_draft_without_vocabulary(target: GgufFile, tmp_path: Path) -> None:
    path = write(tmp_path / "draft.gguf", {"general.architecture": "clip"})
    with pytest.raises(InputError, match="vocabulary: the drafter has none"):
        check_pair(target, GgufFile.open(path))


def test_the_refusal_is_one_line_with_both_paths_and_advice(
    target: GgufFile, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        check_pair(target, _file(tmp_path / "draft.gguf", ["a", "b"]))
    message = str(caught.value)
    assert message.startswith(f"{tmp_path}/draft.gguf cannot draft for {tmp_path}/target.gguf: ")
    assert message.endswith("or --spec-type ngram-edit, which needs none")
    assert "\n" not in message


def test_a_shorter_context_is_mentioned(target: GgufFile, tmp_path: Path) -> None:
    metadata = {**model(WORDS), "llama.context_length": 64}
    draft = GgufFile.open(write(tmp_path / "draft.gguf", metadata))
    findings = {finding.subject: finding for finding in examine(target, draft)}
    assert findings["context"].verdict == "differs"
    assert findings["context"].text.startswith("drafter 64, target 256:")


def _eagle3(path: Path, **changes: Given) -> GgufFile:
    metadata = model(WORDS, general__architecture="eagle3")
    metadata.update({"eagle3.target_layers": [0, 1, 1], "eagle3.target_hidden_size": 64})
    metadata.update({f"eagle3.{name}": value for name, value in changes.items()})
    return GgufFile.open(write(path, metadata))


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({}, set()),
        ({"target_hidden_size": 96}, {"width"}),
        ({"target_layers": [0, 1, 2]}, {"layers"}),
        ({"target_layers": [0, -1, 1]}, {"layers"}),
    ],
)
def test_a_drafter_that_reads_layers(
    changes: dict[str, Given], refused: set[str], target: GgufFile, tmp_path: Path
) -> None:
    findings = examine(target, _eagle3(tmp_path / "draft.gguf", **changes))
    assert {finding.subject for finding in findings} >= {"kind", "layers", "width", "vocabulary"}
    assert {finding.subject for finding in findings if finding.verdict == "refused"} == refused


def test_a_target_whose_layers_cannot_be_read(tmp_path: Path) -> None:
    metadata = model(WORDS, general__architecture="gemma3")
    metadata.update({"gemma3.block_count": 2, "gemma3.embedding_length": 64})
    target = GgufFile.open(write(tmp_path / "target.gguf", metadata))
    kind = examine(target, _eagle3(tmp_path / "draft.gguf"))[0]
    assert kind == Finding("refused", "kind", "gemma3 targets do not let their layers be read")
