"""Refuses a file before llama.cpp sees it, where that would end the process or fail late."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import NoReturn

from outrider.speculative.architectures import KNOWN_ARCHITECTURES, NOT_WRITERS
from outrider.speculative.errors import InputError
from outrider.speculative.gguf_file import GgufFile
from outrider.speculative.gguf_vocabulary import GgufVocabulary
from outrider.speculative.model_facts import drafter_kind

# llama.cpp's own limits: it asserts on them
_MAX_LAYERS = 512
_MAX_EXPERTS = 1024
_ROPE_SCALINGS = ("none", "linear", "yarn", "longrope")
_PART_NAME = re.compile(r"(?P<prefix>.*)-(?P<part>\d{5})-of-(?P<count>\d{5})\.gguf")


def check_target(file: GgufFile) -> None:
    """Refuse ``file`` unless it is a whole model that can write text by itself."""
    check_loadable(file)
    kind = drafter_kind(file)
    if kind is not None:
        _refuse(file, f"this is a {kind} drafter, not a model to chat with", "use --model-draft")
    architecture = file.text("general.architecture")
    if architecture in NOT_WRITERS:
        _refuse(file, f"a {architecture} model writes no text", "name a text generation model")


def check_loadable(file: GgufFile) -> None:
    """Refuse ``file`` if llama.cpp could not load it."""
    architecture = file.text("general.architecture")
    if architecture == "clip":
        _refuse(file, "this is the vision part of a model (mmproj)", "name the model itself")
    if architecture is None:
        _refuse(file, "it does not say which architecture it is", "convert it again")
    if architecture not in KNOWN_ARCHITECTURES:
        _refuse(
            file,
            f"the architecture {architecture!r} is unknown to the llama.cpp in use",
            "a newer llama-cpp-python may know it",
        )
    if (file.integer("split.count") or 1) > 1:
        _check_parts(file)
    _check_numbers(file, architecture)
    _check_vocabulary(file)


def _check_parts(file: GgufFile) -> None:
    count = file.integer("split.count")
    match = _PART_NAME.fullmatch(file.path.name)
    if match is None or int(match["count"]) != count:
        _refuse(
            file,
            f"one of {count} parts, but its name does not end in -00001-of-{count:05}.gguf",
            "give the parts their original names",
        )
    if int(match["part"]) != 1:
        _refuse(file, f"part {int(match['part'])} of {count}", "name the first part")
    for part in range(2, int(match["count"]) + 1):
        path: Path = file.path.with_name(f"{match['prefix']}-{part:05}-of-{count:05}.gguf")
        if not path.exists():
            _refuse(file, f"part {part} of {count} is missing", f"all {count} belong in one folder")
        GgufFile.open(path)


def _check_numbers(file: GgufFile, architecture: str) -> None:
    layers = file.integer(f"{architecture}.block_count") or 0
    heads = file.integer(f"{architecture}.nextn_predict_layers") or 0
    experts = file.integer(f"{architecture}.expert_count") or 0
    used = max(file.integers(f"{architecture}.expert_used_count"), default=0)
    scaling = file.text(f"{architecture}.rope.scaling.type")
    if not 1 <= layers <= _MAX_LAYERS or heads > layers:
        _refuse(file, f"{layers} layers with {heads} MTP heads are impossible", "convert it again")
    if experts > _MAX_EXPERTS or used > experts or (experts and not used):
        _refuse(file, f"{used} of {experts} experts used is impossible", "convert it again")
    if scaling is not None and scaling not in _ROPE_SCALINGS:
        _refuse(file, f"the RoPE scaling {scaling!r} is unknown", "convert it again")


def _check_vocabulary(file: GgufFile) -> None:
    vocabulary = GgufVocabulary.read(file)
    if vocabulary is None or not vocabulary.num_tokens:
        _refuse(file, "it has no vocabulary", "convert it again with its tokenizer")
    if not vocabulary.types_fit:
        _refuse(file, "not every token has a type", "convert it again")
    # llama.cpp names empty tokens apart and asserts on any other repetition
    texts = [text for text in vocabulary.texts() if text]
    if len(set(texts)) != len(texts):
        text = next(text for text, count in Counter(texts).items() if count > 1)
        _refuse(file, f"the token {text!r} is in the vocabulary twice", "convert it again")


def _refuse(file: GgufFile, problem: str, advice: str) -> NoReturn:
    raise InputError(f"{file.path}: {problem}; {advice}")
