"""What one more token takes in a cache, by hand; whole caches: tests/cli/test_doctor_memory.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.speculative.cache_size import cell_bytes
from outrider.speculative.gguf_file import GgufFile
from outrider.speculative.model_facts import ModelFacts


@pytest.mark.parametrize(("cache_type", "bits"), [("f32", 32), ("f16", 16), ("q8_0", 8.5)])
def test_a_cell_holds_a_key_and_a_value_of_each_layer(
    zoo: Path, cache_type: str, bits: float
) -> None:
    path = zoo / "target-llama.gguf"
    facts = ModelFacts.read(path)
    assert facts.layers is not None
    assert facts.width is not None
    head = facts.width // facts.heads[0]
    numbers = 2 * facts.layers * facts.kv_heads[0] * head
    assert cell_bytes(GgufFile.open(path), cache_type, cache_type) == numbers * bits / 8


def test_a_layer_with_a_window_does_not_grow(zoo: Path) -> None:
    file = GgufFile.open(zoo / "target-swa-gemma3.gguf")
    facts = ModelFacts.of(file)
    assert facts.layers is not None
    key = file.integer("gemma3.attention.key_length")
    assert key is not None
    whole = 2 * facts.layers * facts.kv_heads[0] * key * 2
    assert 0 <= cell_bytes(file, "f16", "f16") < whole
