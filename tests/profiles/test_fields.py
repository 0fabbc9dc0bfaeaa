from __future__ import annotations

import subprocess
import sys

import pytest

from outrider.profiles.errors import ProfileError
from outrider.profiles.fields import FIELDS, KIND_FIELDS, check, field_at
from outrider.profiles.model_source import ModelSource

# written down from llama.cpp's own argument table and its defaults
LLAMA_CPP: dict[str, tuple[str, object]] = {
    "target.model": ("-m --model", None),
    "target.batch_size": ("-b --batch-size", 2048),
    "target.ubatch_size": ("-ub --ubatch-size", 512),
    "target.ctx_size": ("-c --ctx-size", 4096),  # ours: llama.cpp takes the model's own
    "target.threads": ("-t --threads", 0),
    "target.threads_batch": ("-tb --threads-batch", 0),
    "target.gpu_layers": ("-ngl --gpu-layers --n-gpu-layers", "auto"),
    "target.flash_attn": ("-fa --flash-attn", "auto"),
    "target.cache_type_k": ("-ctk --cache-type-k", "f16"),
    "target.cache_type_v": ("-ctv --cache-type-v", "f16"),
    "drafter.model": ("-md --model-draft --spec-draft-model", None),
    "drafter.kinds": ("--spec-type", ()),
    "drafter.threads": ("-td --threads-draft", None),
    "drafter.threads_batch": ("-tbd --threads-batch-draft", None),
    "drafter.gpu_layers": ("-ngld --gpu-layers-draft --n-gpu-layers-draft", "auto"),
    "drafter.cache_type_k": ("-ctkd --cache-type-k-draft", "f16"),
    "drafter.cache_type_v": ("-ctvd --cache-type-v-draft", "f16"),
    "drafter.ngram_simple.match": ("--spec-ngram-simple-size-n", None),
    "drafter.ngram_simple.size": ("--spec-ngram-simple-size-m", None),
    "drafter.ngram_map_k.match": ("--spec-ngram-map-k-size-n", None),
    "drafter.ngram_map_k.size": ("--spec-ngram-map-k-size-m", None),
    "drafter.ngram_map_k.min_hits": ("--spec-ngram-map-k-min-hits", None),
    "drafter.ngram_map_k4v.match": ("--spec-ngram-map-k4v-size-n", None),
    "drafter.ngram_map_k4v.size": ("--spec-ngram-map-k4v-size-m", None),
    "drafter.ngram_map_k4v.min_hits": ("--spec-ngram-map-k4v-min-hits", None),
    "drafter.ngram_mod.n_match": ("--spec-ngram-mod-n-match", None),
    "drafter.ngram_mod.n_min": ("--spec-ngram-mod-n-min", None),
    "drafter.ngram_mod.n_max": ("--spec-ngram-mod-n-max", None),
    "drafter.ngram_edit.match": ("--spec-ngram-edit-size-n", None),
    "drafter.ngram_cache.static": ("-lcs --lookup-cache-static", None),
    "drafter.ngram_cache.dynamic": ("-lcd --lookup-cache-dynamic", None),
    "speculation.n_max": ("--spec-draft-n-max", None),
    "speculation.n_min": ("--spec-draft-n-min", 0),
    "speculation.p_min": ("--spec-draft-p-min", 0.0),
    "speculation.sampling": ("--spec-draft-sampling", "greedy"),
    "speculation.verify": ("--spec-verify", "auto"),
    "speculation.adaptive": ("--spec-adaptive --no-spec-adaptive", True),
    "speculation.max_slots": ("--spec-draft-max-slots", 0),
    "sampling.temp": ("--temp --temperature", 0.8),
    "sampling.top_k": ("--top-k", 40),
    "sampling.top_p": ("--top-p", 0.95),
    "sampling.min_p": ("--min-p", 0.05),
    "sampling.repeat_penalty": ("--repeat-penalty", 1.0),
    "sampling.repeat_last_n": ("--repeat-last-n", 64),
    "sampling.frequency_penalty": ("--frequency-penalty", 0.0),
    "sampling.presence_penalty": ("--presence-penalty", 0.0),
    "sampling.logit_bias": ("-l --logit-bias", {}),
    "sampling.ignore_eos": ("--ignore-eos", False),
    "sampling.seed": ("-s --seed", None),
    "sampling.predict": ("-n --predict --n-predict", -1),
    "sampling.stop": ("-r --reverse-prompt --stop", ()),
    "chat.system": ("-sys --system-prompt", None),
    "chat.template_file": ("--chat-template-file", None),
    "chat.template_kwargs": ("--chat-template-kwargs", {}),
    "chat.reasoning": ("-rea --reasoning", "auto"),
}


@pytest.mark.parametrize("path", LLAMA_CPP)
def test_flags_and_defaults_are_those_of_llama_cpp(path: str) -> None:
    flags, default = LLAMA_CPP[path]
    assert set(flags.split()) <= set(field_at(path).flags)
    assert field_at(path).default == default


def test_no_flag_is_used_twice() -> None:
    flags = [flag for field in (*FIELDS, *KIND_FIELDS) for flag in field.flags]
    assert len(flags) == len(set(flags))


def test_every_flag_has_a_long_name_and_help() -> None:
    for field in (*FIELDS, *KIND_FIELDS):
        assert not field.flags or any(flag.startswith("--") for flag in field.flags)
        assert field.help


def test_defaults_lie_within_their_limits() -> None:
    for field in FIELDS:
        if field.minimum is not None and isinstance(field.default, int | float):
            assert field.maximum is not None
            assert field.minimum <= field.default <= field.maximum
        if field.choices and isinstance(field.default, str):
            assert field.default in field.choices


@pytest.mark.parametrize(
    ("path", "texts", "value"),
    [
        ("sampling.temp", ["0.5"], 0.5),
        ("sampling.temp", ["1e-1"], 0.1),
        ("sampling.top_k", ["-1"], 0),
        ("sampling.seed", ["42"], 42),
        ("sampling.seed", ["-1"], None),
        ("sampling.seed", ["none"], None),
        ("sampling.stop", ["a", "b"], ("a", "b")),
        ("sampling.logit_bias", ["5+1.5", "6-2", "7-inf"], {5: 1.5, 6: -2.0, 7: float("-inf")}),
        ("target.threads", ["-1"], 0),
        ("target.gpu_layers", ["99"], 99),
        ("target.gpu_layers", ["-1"], "auto"),
        ("target.gpu_layers", ["all"], "all"),
        ("target.flash_attn", ["on"], "on"),
        ("target.flash_attn", ["1"], "on"),
        ("target.model", ["m.gguf"], ModelSource("m.gguf")),
        ("speculation.adaptive", ["off"], False),
        ("drafter.kinds", ["ngram-simple,draft-simple"], ("ngram-simple", "draft-simple")),
        ("drafter.kinds", ["none"], ()),
        ("drafter.kinds", ["draft-simple,none"], ()),
        ("chat.system", ["none"], "none"),
        ("chat.template_kwargs", ['{"a": [1]}'], {"a": [1]}),
    ],
)
def test_text_becomes_the_value(path: str, texts: list[str], value: object) -> None:
    result = check(path, *texts)
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize(
    ("path", "text", "allowed"),
    [
        ("sampling.temp", "5.1", "a number from 0 to 5"),
        ("sampling.temp", "nan", "a number from 0 to 5"),
        ("sampling.temp", "inf", "a number from 0 to 5"),
        ("sampling.temp", "", "a number from 0 to 5"),
        ("sampling.top_k", "1.5", "a whole number from 0 to 1048576"),
        ("sampling.top_k", "true", "a whole number"),
        ("sampling.seed", "4294967296", "a whole number from 0 to 4294967295"),
        ("sampling.logit_bias", "5", "ID+BIAS or ID-BIAS"),
        ("sampling.logit_bias", "5+nan", "ID+BIAS or ID-BIAS"),
        ("sampling.logit_bias", "5+-1", "ID+BIAS or ID-BIAS"),
        ("target.gpu_layers", "some", "a whole number from 0 to 9999, auto, all"),
        ("target.model", "pypi:x", "pypi:PACKAGE==VERSION!MEMBER"),
        ("speculation.n_max", "0", "a whole number from 1 to 64"),
        ("speculation.verify", "gready", "rejection; did you mean 'greedy'?"),
        ("drafter.kinds", "ngram-simpel", "separated by commas; did you mean 'ngram-simple'?"),
        ("chat.template_kwargs", "[1]", "a JSON object"),
        ("chat.template_kwargs", "{", "a JSON object"),
    ],
)
def test_bad_text_is_refused_in_one_line(path: str, text: str, allowed: str) -> None:
    with pytest.raises(ProfileError) as caught:
        check(path, text, name="--flag")
    message = str(caught.value)
    assert message.startswith(f"--flag: {text!r}: allowed: ")
    assert allowed in message
    assert "\n" not in message


def test_an_unknown_path_names_the_nearest() -> None:
    with pytest.raises(ProfileError, match=r"^sampling.tmp: unknown; did you mean 'sampling.temp'"):
        check("sampling.tmp", "1")


def test_the_table_needs_nothing_heavy() -> None:
    code = (
        "import sys, outrider.profiles.fields;"
        "print([m for m in ('pydantic','yaml','numpy','huggingface_hub','platformdirs','jinja2')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
