"""Sampling: how the next token is drawn, what an answer must match, and when it ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from outrider.profiles.option import NO_UNKNOWN_KEYS, Option
from outrider.profiles.samplers import DRY_BREAKERS, SAMPLERS, sampler_names

_ZERO = (("-1", 0),)
_NONE = (("-1", None),)

GRAMMAR_KEYS = ("json_schema", "json_schema_file", "grammar", "grammar_file", "regex")
"""Keys of ``sampling`` that say what an answer must match; at most one of them is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the next token is drawn, and when an answer ends."""

    __pydantic_config__: ClassVar[Any] = NO_UNKNOWN_KEYS

    temp: Annotated[
        float,
        Option("temperature; 0 always takes the likeliest token", "--temp --temperature", 0, 5),
    ] = 0.8
    samplers: Annotated[
        str,
        Option(
            "samplers in their order, separated by ';', or llama.cpp's letters (edskypmxt)",
            "--samplers --sampler-seq --sampling-seq",
            metavar="LIST",
            accept=sampler_names,
        ),
    ] = ";".join(SAMPLERS)
    dynatemp_range: Annotated[
        float,
        Option(
            "temperature varies by this much with the entropy; 0 is off", "--dynatemp-range", 0, 5
        ),
    ] = 0.0
    dynatemp_exp: Annotated[
        float, Option("how entropy maps to temperature", "--dynatemp-exp", 0, 10)
    ] = 1.0
    top_k: Annotated[
        int,
        Option("keep the K likeliest tokens; 0 is off", "--top-k", 0, 2**20, also=_ZERO),
    ] = 40
    top_p: Annotated[
        float, Option("keep the likeliest tokens that sum to P; 1 is off", "--top-p", 0, 1)
    ] = 0.95
    min_p: Annotated[
        float, Option("drop tokens below P times the likeliest; 0 is off", "--min-p", 0, 1)
    ] = 0.05
    typical_p: Annotated[
        float,
        Option(
            "keep the most typical tokens that sum to P; 1 is off", "--typical --typical-p", 0, 1
        ),
    ] = 1.0
    top_n_sigma: Annotated[
        float,
        Option(
            "keep tokens within N standard deviations of the best logit; -1 is off",
            "--top-nsigma --top-n-sigma",
            -1,
            100,
        ),
    ] = -1.0
    xtc_probability: Annotated[
        float,
        Option(
            "chance to drop all likely tokens but the last of them; 0 is off",
            "--xtc-probability",
            0,
            1,
        ),
    ] = 0.0
    xtc_threshold: Annotated[
        float, Option("what XTC calls likely; above 0.5 is off", "--xtc-threshold", 0, 1)
    ] = 0.1
    repeat_penalty: Annotated[
        float, Option("penalty for tokens seen lately; 1 is off", "--repeat-penalty", 0.01, 10)
    ] = 1.0
    repeat_last_n: Annotated[
        int,
        Option(
            "tokens the penalties look back on; 0 is off, -1 the whole context",
            "--repeat-last-n",
            -1,
            2**24,
        ),
    ] = 64
    frequency_penalty: Annotated[
        float,
        Option("penalty for each time a token was seen; 0 is off", "--frequency-penalty", -10, 10),
    ] = 0.0
    presence_penalty: Annotated[
        float,
        Option("penalty for having been seen at all; 0 is off", "--presence-penalty", -10, 10),
    ] = 0.0
    dry_multiplier: Annotated[
        float,
        Option("DRY: penalty for going on with a repetition; 0 is off", "--dry-multiplier", 0, 100),
    ] = 0.0
    dry_base: Annotated[
        float, Option("DRY: growth of the penalty with each token", "--dry-base", 1, 100)
    ] = 1.75
    dry_allowed_length: Annotated[
        int, Option("DRY: repetitions up to this length are free", "--dry-allowed-length", 0, 2**16)
    ] = 2
    dry_penalty_last_n: Annotated[
        int,
        Option("DRY: tokens to look back on; 0 is off", "--dry-penalty-last-n", 0, 2**24),
    ] = 64
    dry_sequence_breakers: Annotated[
        tuple[str, ...],
        Option(
            "DRY: text that no repetition goes across, none for no such text;"
            " can be given several times",
            "--dry-sequence-breaker",
            metavar="TEXT",
        ),
    ] = DRY_BREAKERS
    mirostat: Annotated[
        int,
        Option(
            "keep the surprise of the text constant, version 1 or 2, instead of the other samplers;"
            " 0 is off",
            "--mirostat",
            0,
            2,
        ),
    ] = 0
    mirostat_tau: Annotated[
        float, Option("mirostat: surprise to keep, in bits", "--mirostat-ent", 0, 100)
    ] = 5.0
    mirostat_eta: Annotated[
        float, Option("mirostat: how fast it learns", "--mirostat-lr", 0, 10)
    ] = 0.1
    logit_bias: Annotated[
        Mapping[int, float],
        Option(
            "added to a token's logit, as ID+BIAS or ID-BIAS; can be given several times",
            "-l --logit-bias",
            float("-inf"),
            float("inf"),
            "ID+BIAS",
        ),
    ] = field(default_factory=dict)
    ignore_eos: Annotated[
        bool, Option("go on after an end token", "--ignore-eos --no-ignore-eos")
    ] = False
    seed: Annotated[
        int | None,
        Option(
            "seed of all draws; default: a new one each time", "-s --seed", 0, 2**32 - 1, also=_NONE
        ),
    ] = None
    predict: Annotated[
        int,
        Option(
            "most tokens in an answer; -1: until the model stops",
            "-n --predict --n-predict",
            -1,
            2**24,
        ),
    ] = -1
    json_schema: Annotated[
        str | None,
        Option(
            "the answer is JSON of this schema; {} is any JSON",
            "-j --json-schema",
            metavar="SCHEMA",
        ),
    ] = None
    json_schema_file: Annotated[
        str | None,
        Option("the schema is in a file", "-jf --json-schema-file", metavar="FILE"),
    ] = None
    grammar: Annotated[
        str | None,
        Option("the answer follows this grammar, GBNF or Lark", "--grammar", metavar="GRAMMAR"),
    ] = None
    grammar_file: Annotated[
        str | None, Option("the grammar is in a file", "--grammar-file", metavar="FILE")
    ] = None
    regex: Annotated[
        str | None,
        Option("the answer matches this regular expression", "--regex", metavar="REGEX"),
    ] = None
    logprobs: Annotated[
        int | None,
        Option(
            "log-probability of each token and of the K likeliest, with --json",
            "--logprobs",
            0,
            1000,
            "K",
        ),
    ] = None
    post_sampling_probs: Annotated[
        bool,
        Option(
            "log-probabilities after the samplers instead of the model's own",
            "--post-sampling-probs --no-post-sampling-probs",
        ),
    ] = False
    stop: Annotated[
        tuple[str, ...],
        Option(
            "text that ends an answer; can be given several times",
            "-r --reverse-prompt --stop",
            metavar="TEXT",
        ),
    ] = ()
