"""Profile and its parts: every value a profile can set, with limits, flags and help.

The one table of values: flags, ``/set``, the JSON Schema, help and docs derive from it
(:mod:`outrider.profiles.fields`). Names and defaults are llama.cpp's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from outrider.profiles.model_source import ModelSource
from outrider.profiles.option import NO_UNKNOWN_KEYS, Option
from outrider.profiles.sampling import Sampling
from outrider.profiles.synthetic_rates import synthetic_rates

# llama.cpp's other spellings of the same values
_AUTO_LAYERS = (("-1", "auto"),)
_ZERO = (("-1", 0),)
_NONE = (("-1", None),)
_SWITCH = (("true", "on"), ("1", "on"), ("false", "off"), ("0", "off"), ("-1", "auto"))

CacheType = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"]
GpuLayers = int | Literal["auto", "all"]
Switch = Literal["auto", "on", "off"]
DrafterKind = Literal[
    "draft-simple",
    "draft-eagle3",
    "draft-mtp",
    "draft-dflash",
    "draft-dspark",
    "ngram-simple",
    "ngram-map-k",
    "ngram-map-k4v",
    "ngram-mod",
    "ngram-cache",
    "ngram-edit",
    "grammar",
    "filler",
]

MODEL_KINDS = frozenset(
    {"draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark"}
)
"""Kinds of drafters that run a model (draft-mtp: a file, or the heads of the target)."""

KIND_FLAGS: Mapping[str, Mapping[str, str]] = {
    "ngram-simple": {
        "match": "--spec-ngram-simple-size-n",
        "size": "--spec-ngram-simple-size-m",
    },
    "ngram-map-k": {
        "match": "--spec-ngram-map-k-size-n",
        "size": "--spec-ngram-map-k-size-m",
        "min_hits": "--spec-ngram-map-k-min-hits",
    },
    "ngram-map-k4v": {
        "match": "--spec-ngram-map-k4v-size-n",
        "size": "--spec-ngram-map-k4v-size-m",
        "min_hits": "--spec-ngram-map-k4v-min-hits",
    },
    "ngram-mod": {
        "n_match": "--spec-ngram-mod-n-match",
        "n_min": "--spec-ngram-mod-n-min",
        "n_max": "--spec-ngram-mod-n-max",
    },
    "ngram-cache": {
        "static": "-lcs --lookup-cache-static",
        "dynamic": "-lcd --lookup-cache-dynamic",
    },
    "ngram-edit": {
        "match": "--spec-ngram-edit-size-n",
    },
}
"""Flags that set a key in the drafters of one kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The model whose law the output follows."""

    __pydantic_config__: ClassVar[Any] = NO_UNKNOWN_KEYS

    model: Annotated[
        ModelSource | None,
        Option("model: a GGUF file, hf:OWNER/REPO/FILE, pypi:...", "-m --model", metavar="SOURCE"),
    ] = None
    ctx_size: Annotated[
        int,
        Option("context length in tokens; 0 is the model's own", "-c --ctx-size", 0, 2**24),
    ] = 4096
    batch_size: Annotated[
        int, Option("most tokens in one call of the model", "-b --batch-size", 1, 2**16)
    ] = 2048
    ubatch_size: Annotated[
        int, Option("most tokens computed at once", "-ub --ubatch-size", 1, 2**16)
    ] = 512
    threads: Annotated[
        int,
        Option("threads while generating; 0 is all cores", "-t --threads", 0, 512, also=_ZERO),
    ] = 0
    threads_batch: Annotated[
        int,
        Option(
            "threads while reading the prompt; 0 is as --threads",
            "-tb --threads-batch",
            0,
            512,
            also=_ZERO,
        ),
    ] = 0
    gpu_layers: Annotated[
        GpuLayers,
        Option(
            "layers on the GPU: a number, auto or all",
            "-ngl --gpu-layers --n-gpu-layers",
            0,
            9999,
            "N|auto|all",
            _AUTO_LAYERS,
        ),
    ] = "auto"
    flash_attn: Annotated[Switch, Option("flash attention", "-fa --flash-attn", also=_SWITCH)] = (
        "auto"
    )
    cache_type_k: Annotated[
        CacheType, Option("type of the cache's keys", "-ctk --cache-type-k")
    ] = "f16"
    cache_type_v: Annotated[
        CacheType, Option("type of the cache's values", "-ctv --cache-type-v")
    ] = "f16"
    kv_unified: Annotated[
        bool,
        Option(
            "one cache for all slots of a batch, instead of an equal part for each",
            "--kv-unified --no-kv-unified",
        ),
    ] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafter:
    """One drafter of the chain: the first that proposes wins the step."""

    __pydantic_config__: ClassVar[Any] = NO_UNKNOWN_KEYS

    kind: Annotated[
        DrafterKind | None, Option("kind of drafter; null: read from the model's file")
    ] = None
    model: Annotated[
        ModelSource | None,
        Option(
            "draft model: a GGUF file, hf:OWNER/REPO/FILE, pypi:...",
            "-md --model-draft --spec-draft-model",
            metavar="SOURCE",
        ),
    ] = None
    n_max: Annotated[
        int | None, Option("most tokens in one draft; default: the kind's own", "", 1, 64)
    ] = None
    match: Annotated[
        int | None, Option("tokens that must match (default 12, ngram-edit 4)", "", 1, 1024)
    ] = None
    size: Annotated[
        int | None, Option("most tokens copied after a match (default 48)", "", 1, 1024)
    ] = None
    min_hits: Annotated[
        int | None,
        Option("draft when the tokens have come this often again (default 1)", "", 1, 16380),
    ] = None
    n_match: Annotated[
        int | None, Option("tokens that must match, best 16 or more (default 24)", "", 1, 1024)
    ] = None
    n_min: Annotated[
        int | None, Option("shorter drafts are not made (default 48)", "", 0, 1024)
    ] = None
    static: Annotated[str | None, Option("lookup cache made from a corpus", metavar="FILE")] = None
    dynamic: Annotated[
        str | None,
        Option("lookup cache of earlier texts; those of this run are added", metavar="FILE"),
    ] = None
    threads: Annotated[
        int | None,
        Option(
            "draft model: threads while drafting; default as --threads",
            "-td --threads-draft --spec-draft-threads",
            0,
            512,
            also=_NONE,
        ),
    ] = None
    threads_batch: Annotated[
        int | None,
        Option(
            "draft model: threads while reading; default as --threads-draft",
            "-tbd --threads-batch-draft --spec-draft-threads-batch",
            0,
            512,
            also=_NONE,
        ),
    ] = None
    gpu_layers: Annotated[
        GpuLayers,
        Option(
            "draft model: layers on the GPU: a number, auto or all",
            "-ngld --gpu-layers-draft --n-gpu-layers-draft --spec-draft-ngl",
            0,
            9999,
            "N|auto|all",
            _AUTO_LAYERS,
        ),
    ] = "auto"
    cache_type_k: Annotated[
        CacheType,
        Option(
            "draft model: type of the cache's keys",
            "-ctkd --cache-type-k-draft --spec-draft-type-k",
        ),
    ] = "f16"
    cache_type_v: Annotated[
        CacheType,
        Option(
            "draft model: type of the cache's values",
            "-ctvd --cache-type-v-draft --spec-draft-type-v",
        ),
    ] = "f16"


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """How drafts are made and verified."""

    __pydantic_config__: ClassVar[Any] = NO_UNKNOWN_KEYS

    n_max: Annotated[
        int | None,
        Option(
            "most tokens in one draft, for every drafter; default: each kind's own",
            "--spec-draft-n-max",
            1,
            64,
        ),
    ] = None
    n_min: Annotated[int, Option("shorter drafts are thrown away", "--spec-draft-n-min", 0, 64)] = 0
    p_min: Annotated[
        float,
        Option(
            "a draft ends where the drafter is less sure than this",
            "--spec-draft-p-min --draft-p-min",
            0,
            1,
        ),
    ] = 0.0
    sampling: Annotated[
        Literal["greedy", "probabilistic"],
        Option("how the draft model draws its tokens", "--spec-draft-sampling"),
    ] = "greedy"
    verify: Annotated[
        Literal["auto", "greedy", "match", "rejection"],
        Option("rule that accepts or rejects draft tokens", "--spec-verify"),
    ] = "auto"
    adaptive: Annotated[
        bool,
        Option(
            "choose the draft length from measured cost and acceptance",
            "--spec-adaptive --no-spec-adaptive",
        ),
    ] = True
    synth_rates: Annotated[
        str | None,
        Option(
            "coins in place of verification: chance that the first 1, 2, ... draft tokens are all"
            " accepted, separated by commas; the text is not the model's",
            "--spec-synth-rates",
            metavar="R,R,...",
            accept=synthetic_rates,
        ),
    ] = None
    synth_len: Annotated[
        float | None,
        Option(
            "coins in place of verification, for this mean accepted length",
            "--spec-synth-len",
            0,
            1000,
        ),
    ] = None
    max_slots: Annotated[
        int,
        Option(
            "start no new drafts while more slots than this generate; 0: always draft",
            "--spec-draft-max-slots",
            0,
            256,
        ),
    ] = 0

    @property
    def is_synthetic(self) -> bool:
        """True if coins decide what is accepted."""
        return self.synth_rates is not None or self.synth_len is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """The conversation: system message, template, what happens when the context is full."""

    __pydantic_config__: ClassVar[Any] = NO_UNKNOWN_KEYS

    system: Annotated[
        str | None, Option("system message", "-sys --system-prompt", metavar="TEXT")
    ] = None
    template_file: Annotated[
        str | None,
        Option(
            "Jinja chat template instead of the model's", "--chat-template-file", metavar="FILE"
        ),
    ] = None
    template_kwargs: Annotated[
        Mapping[str, Any],
        Option("variables for the chat template", "--chat-template-kwargs", metavar="JSON"),
    ] = field(default_factory=dict)
    context_policy: Annotated[
        Literal["drop-oldest", "stop"],
        Option("when the context is full: drop the oldest turns, or stop", "--context-policy"),
    ] = "drop-oldest"
    reasoning: Annotated[
        Switch, Option("thinking of models that can", "-rea --reasoning", also=_SWITCH)
    ] = "auto"
    reasoning_budget: Annotated[
        int,
        Option("most tokens of thinking; -1: any number, 0: none", "--reasoning-budget", -1, 2**24),
    ] = -1
    reasoning_budget_message: Annotated[
        str,
        Option(
            "said at the end of thinking that the budget cuts short",
            "--reasoning-budget-message",
            metavar="TEXT",
        ),
    ] = ""
    reasoning_preserve: Annotated[
        bool,
        Option(
            "give the model what it thought in earlier turns",
            "--reasoning-preserve --no-reasoning-preserve",
        ),
    ] = False
    markdown: Annotated[
        bool,
        Option(
            "show answers as Markdown; --no-markdown: as the model writes them",
            "--markdown --no-markdown",
        ),
    ] = True
    theme: Annotated[
        Literal["auto", "dark", "light", "none"],
        Option("colours; auto: by the background of the terminal", "--theme"),
    ] = "auto"
    glyphs: Annotated[
        Literal["auto", "unicode", "ascii"],
        Option("characters of bars and rules; auto: by what the terminal draws", "--glyphs"),
    ] = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What to run: models, drafters, speculation, sampling, chat."""

    __pydantic_config__: ClassVar[Any] = NO_UNKNOWN_KEYS

    schema: Annotated[Literal[1], Option("version of this format")] = 1
    # the name or path it was loaded by; not a key of the file
    name: str = ""
    extends: Annotated[str | None, Option("profile whose values hold where this one has none")] = (
        None
    )
    description: Annotated[str, Option("one line for profiles list")] = ""
    target: Target = Target()
    drafters: tuple[Drafter, ...] = ()
    speculation: Speculation = Speculation()
    sampling: Sampling = Sampling()  # noqa: RUF009 (frozen, as the others)
    chat: Chat = Chat()
