"""The facts of a file, and what kind of drafter it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.gguf_writer import Block, Given, model, write

from outrider.speculative.gguf_file import GgufFile
from outrider.speculative.model_facts import ModelFacts, SpecialToken, drafter_kind


def test_facts_of_the_zoo_target(zoo: Path) -> None:
    facts = ModelFacts.read(zoo / "target-llama.gguf")
    assert facts.name == "zoo target-llama"
    assert (facts.architecture, facts.known_architecture) == ("llama", True)
    assert (facts.file_type, facts.num_parameters, facts.file_size) == ("F16", 277344, 570688)
    assert (facts.layers, facts.width, facts.heads, facts.kv_heads) == (4, 96, (3,), (1,))
    assert (facts.context_length, facts.vocabulary_size) == (1024, 512)
    assert facts.special_tokens == {
        "bos": SpecialToken(1, "<s>"),
        "eos": SpecialToken(2, "</s>"),
        "eot": SpecialToken(4, "<|im_end|>"),
        "pad": SpecialToken(2, "</s>"),
    }
    assert facts.has_chat_template
    assert facts.drafter_kind is None


def test_sampling_defaults_of_the_file(tmp_path: Path) -> None:
    changes: dict[str, Given] = {"general__sampling__temp": 0.5, "general__sampling__top_k": 20}
    facts = ModelFacts.read(write(tmp_path / "m.gguf", model(**changes)))
    assert facts.sampling == {"temp": 0.5, "top_k": 20}


def test_the_end_of_turn_token_is_found_by_its_text(tmp_path: Path) -> None:
    tokens = ("<unk>", "<s>", "</s>", "<|endoftext|>", "<|im_end|>")
    facts = ModelFacts.read(write(tmp_path / "m.gguf", model(tokens)))
    assert facts.special_tokens["eot"] == SpecialToken(4, "<|im_end|>")


def test_a_part_of_a_split_model_says_so(tmp_path: Path) -> None:
    changes: dict[str, Given] = {"split__count": 3, "split__no": 1}
    facts = ModelFacts.read(write(tmp_path / "m.gguf", model(**changes)))
    assert (facts.part, facts.num_parts) == (2, 3)


@pytest.mark.parametrize(
    ("number", "name"), [(0, "F32"), (3, "Q4_1"), (15, "Q4_K_M"), (32, "BF16"), (99, "type 99")]
)
def test_file_types(number: int, name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", model(general__file_type=number))
    assert ModelFacts.read(path).file_type == name


@pytest.mark.parametrize(
    ("architecture", "tensors", "kind"),
    [
        ("eagle3", ["fc.weight"], "draft-eagle3"),
        ("dflash", ["fc.weight"], "draft-dflash"),
        ("dflash", ["fc.weight", "markov_w1.weight"], "draft-dspark"),
        ("gemma4-assistant", ["blk.0.attn_q.weight"], "draft-mtp"),
        ("qwen35", ["token_embd.weight", "blk.1.nextn.eh_proj.weight"], "draft-mtp"),
        # a whole model that carries MTP layers of its own is a target
        ("qwen35", ["blk.0.attn_q.weight", "blk.1.nextn.eh_proj.weight"], None),
        ("qwen35", ["token_embd.weight", "blk.2.nextn.eh_proj.weight"], None),
        ("llama", ["blk.0.attn_q.weight"], None),
    ],
)
def test_drafter_kinds(
    architecture: str, tensors: list[str], kind: str | None, tmp_path: Path
) -> None:
    metadata = model(general__architecture=architecture)
    metadata[f"{architecture}.block_count"] = 2
    path = write(tmp_path / "m.gguf", metadata, {name: Block() for name in tensors})
    assert drafter_kind(GgufFile.open(path)) == kind
