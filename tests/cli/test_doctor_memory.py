"""The memory a model needs: told from headers, against what llama.cpp allocates."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.cli.doctor import memory as memory_module
from outrider.cli.doctor.memory import Allocations, MemoryNeed, files_bytes, noted_allocations
from outrider.speculative.cache_size import CacheShape, cache_bytes
from outrider.speculative.gguf_file import GgufFile
from outrider.speculative.llama_runner import LlamaRunner
from outrider.speculative.model_store import ModelStore
from outrider.speculative.settings import ModelSettings

MIB = 2**20
UBATCH = 256


@pytest.mark.parametrize("n_ctx", [300, 1024])
@pytest.mark.parametrize(
    ("name", "cache_type"),
    [
        ("target-llama", "f16"),
        ("target-llama", "q8_0"),
        ("target-swa-gemma3", "f16"),
        ("target-hybrid-lfm2", "f16"),
        ("target-mtp-qwen35", "f16"),
        ("target-mtp3-mimo2", "q4_0"),
        ("target-mtp-glm4moe", "f32"),
        ("draft-simple", "f16"),
    ],
)
def test_the_cache_is_counted_as_llama_cpp_allocates_it(
    zoo: Path, name: str, cache_type: str, n_ctx: int
) -> None:
    path = zoo / f"{name}.gguf"
    settings = ModelSettings(
        path,
        n_ctx,
        ubatch_size=UBATCH,
        threads=1,
        threads_batch=1,
        cache_type_k=cache_type,
        cache_type_v=cache_type,
    )
    models = ModelStore(lambda stage, share: None)
    with noted_allocations() as allocations:
        runner = LlamaRunner(
            models.get(settings, "target"), settings, n_ctx=n_ctx, max_outputs=4, num_snapshots=3
        )
    runner.close()
    models.close()
    shape = CacheShape(n_ctx, min(UBATCH, n_ctx), cache_type, cache_type, longest_draft=3)
    allocated = allocations.total("KV", "RS")
    assert allocated > 0
    # the log has two decimals of a MiB for each cache, of which there may be two
    assert cache_bytes(GgufFile.open(path), shape) == pytest.approx(allocated, abs=0.011 * MIB)
    assert allocations.total("output", "compute") > 0


def test_the_cache_of_the_default_model(default_model: Path) -> None:
    # 30 layers, 3 heads of 64, keys and values of 2 bytes
    shape = CacheShape(4096, 512, "f16", "f16")
    assert cache_bytes(GgufFile.open(default_model), shape) == 30 * 4096 * 3 * 64 * 2 * 2


def test_buffers_that_are_laid_out_anew_count_once_and_two_caches_twice() -> None:
    allocations = Allocations()
    for line in (
        "llama_kv_cache:        CPU KV buffer size =    99.00 MiB",  # of no context
        "llama_context: n_ctx                 = 4096",
        "llama_kv_cache:        CPU KV buffer size =    90.00 MiB",
        "llama_kv_cache:        CPU KV buffer size =     8.00 MiB",
        "sched_reserve:        CPU compute buffer size =    17.50 MiB",
        "sched_reserve:        CPU compute buffer size =    20.00 MiB",
        "llama_context: n_ctx_seq (4096) < n_ctx_train (8192)",
        "llama_context: n_ctx                 = 4096",
        "llama_kv_cache:        CPU KV buffer size =     2.00 MiB",
        "llama_context:        CPU  output buffer size =     1.00 MiB",
    ):
        allocations.read(line)
    assert allocations.total("KV", "RS") == 100 * MIB
    assert allocations.total("compute", "output") == 21 * MIB


def test_parts_of_a_model_count_together(tmp_path: Path, zoo: Path) -> None:
    whole = GgufFile.open(zoo / "target-llama.gguf")
    draft = GgufFile.open(zoo / "draft-simple.gguf")
    assert files_bytes(whole, draft, whole) == whole.file_size + draft.file_size


def test_what_fits() -> None:
    def need(free: int | None, on_gpu: bool = False) -> MemoryNeed:
        return MemoryNeed(50, 40, 10, free, 1000, is_allocated=True, on_gpu=on_gpu)

    assert need(100).fits is True
    assert need(99).fits is False
    assert need(None).fits is None
    assert need(1000, on_gpu=True).fits is None


def test_free_memory_is_within_a_containers_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_module, "_read_meminfo", lambda: "MemAvailable:   1000 kB\n")
    monkeypatch.setattr(memory_module, "_CGROUP", tmp_path)
    assert memory_module.free_memory() == 1024 * 1000
    (tmp_path / "memory.max").write_text("900000\n")
    (tmp_path / "memory.current").write_text("400000\n")
    assert memory_module.free_memory() == 500000
    (tmp_path / "memory.max").write_text("max\n")
    assert memory_module.free_memory() == 1024 * 1000
