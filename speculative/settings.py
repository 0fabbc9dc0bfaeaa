"""What the engine is told: models, drafters, speculation, sampling, one generation.

Plain values with llama.cpp's names and defaults. Limits are checked where the values come
from (the profile schema); the engine checks only what would make a result wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Verify = Literal["auto", "greedy", "match", "rejection"]
DraftSampling = Literal["greedy", "probabilistic"]
FlashAttention = Literal["auto", "on", "off"]


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """llama.cpp's chain: bias, penalties, top-k, top-p, min-p, temperature, draw.

    ``temp`` 0 is greedy. ``top_k`` 0, ``top_p`` 1 and ``min_p`` 0 switch that truncation off.
    """

    temp: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    ignore_eos: bool = False


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """One GGUF file and how to run it. ``threads`` 0 means: as many as there are cores."""

    path: Path
    ctx_size: int = 4096
    batch_size: int = 2048
    ubatch_size: int = 512
    threads: int = 0
    threads_batch: int = 0
    gpu_layers: int | Literal["auto", "all"] = "auto"
    flash_attn: FlashAttention = "auto"
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"


@dataclass(frozen=True, slots=True)
class DrafterSettings:
    """One drafter of the chain.

    ``kind`` is a name of ``drafters.KINDS``; ``model`` is set for drafters that are models.
    ``n_max`` None keeps the kind's default. ``options`` holds what only this kind has
    (``match`` and ``size`` for ngram-simple, ``tokens`` for script, ...).
    """

    kind: str
    model: ModelSettings | None = None
    n_max: int | None = None
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SpeculationSettings:
    """How drafts are made and verified (design section 4)."""

    n_max: int | None = None
    n_min: int = 0
    p_min: float = 0.0
    sampling: DraftSampling = "greedy"
    verify: Verify = "auto"
    adaptive: bool = True
    max_slots: int = 0
    synth_rates: tuple[float, ...] | None = None
    synth_len: float | None = None


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Everything :meth:`outrider.speculative.engine.Engine.load` needs."""

    target: ModelSettings
    drafters: tuple[DrafterSettings, ...] = ()
    speculation: SpeculationSettings = SpeculationSettings()
    parallel: int = 1


@dataclass(frozen=True, slots=True)
class GenerationSettings:
    """One answer. ``predict`` -1 means: until the model stops or the context is full.

    ``seed`` None draws a fresh one; the one used is in the result.
    """

    sampling: SamplingSettings = SamplingSettings()
    predict: int = -1
    stop: tuple[str, ...] = ()
    seed: int | None = None
