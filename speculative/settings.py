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


SAMPLERS = (
    "penalties",
    "dry",
    "top_n_sigma",
    "top_k",
    "typ_p",
    "top_p",
    "min_p",
    "xtc",
    "temperature",
)
"""llama.cpp's samplers in the order of its default chain (common/common.h)."""


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """llama.cpp's chain: bias, the ``samplers`` in their order, draw (common/sampling.cpp).

    ``temp`` 0 is greedy. ``top_k`` 0, ``top_p`` 1, ``min_p`` 0, ``typical_p`` 1,
    ``top_n_sigma`` -1, ``xtc_probability`` 0, ``dynatemp_range`` 0 and ``dry_multiplier`` 0
    switch a sampler off. ``mirostat`` 1 or 2 replaces all of them but bias and temperature.
    """

    samplers: tuple[str, ...] = SAMPLERS
    temp: float = 0.8
    dynatemp_range: float = 0.0
    dynatemp_exp: float = 1.0
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    top_n_sigma: float = -1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = 64
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    ignore_eos: bool = False


GrammarKind = Literal["json-schema", "grammar", "regex"]


@dataclass(frozen=True, slots=True)
class GrammarSettings:
    """What an answer must match. ``grammar`` is GBNF or Lark; ``name`` is what errors call it."""

    kind: GrammarKind
    text: str
    name: str


@dataclass(frozen=True, slots=True)
class ReasoningSettings:
    """How the model marks what it thinks, and how much of it there may be.

    ``start`` and ``end`` are the tags; ``is_open`` is True where the prompt has opened the
    first. ``budget`` is the most tokens of thought, -1 for any number; ``message`` is put
    before the end tag when they are used up.
    """

    start: str
    end: str
    is_open: bool = False
    budget: int = -1
    message: str = ""


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
    kv_unified: bool = True


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

    @property
    def is_synthetic(self) -> bool:
        """True if coins decide what is accepted."""
        return self.synth_rates is not None or self.synth_len is not None


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Everything :meth:`outrider.speculative.engine.Engine.load` needs.

    ``is_constrained`` says that answers will have a grammar, so that loading prepares for it.
    ``costs_folder`` is where measured costs of steps are kept; None measures anew.
    """

    target: ModelSettings
    drafters: tuple[DrafterSettings, ...] = ()
    speculation: SpeculationSettings = SpeculationSettings()
    parallel: int = 1
    is_constrained: bool = False
    costs_folder: Path | None = None


@dataclass(frozen=True, slots=True)
class GenerationSettings:
    """One answer. ``predict`` -1 means: until the model stops or the context is full.

    ``seed`` None draws a fresh one; the one used is in the result. ``logprobs`` is how many
    alternatives to name for each token, None for no log-probabilities at all; they are those
    of the raw row, or with ``post_sampling_probs`` those after the chain. A ``grammar`` holds
    from the first token of the answer on, after the reasoning where there is one.
    ``marks_accepted``: events say which parts of their text came from drafts.
    """

    sampling: SamplingSettings = SamplingSettings()
    predict: int = -1
    stop: tuple[str, ...] = ()
    seed: int | None = None
    grammar: GrammarSettings | None = None
    reasoning: ReasoningSettings | None = None
    logprobs: int | None = None
    post_sampling_probs: bool = False
    marks_accepted: bool = False
