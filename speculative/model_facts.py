"""What a GGUF file is: the facts of its header, ready to be shown or checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from outrider.speculative.architectures import KNOWN_ARCHITECTURES
from outrider.speculative.gguf_file import GgufFile
from outrider.speculative.gguf_header import GgufArray, Scalar
from outrider.speculative.gguf_vocabulary import END_OF_TURN_TEXTS, GgufVocabulary

DraftKind = Literal["draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark"]

_SAMPLING_PREFIX = "general.sampling."
_FILE_TYPES = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4",
    39: "NVFP4",
    40: "Q1_0",
    41: "Q2_0",
}


@dataclass(frozen=True, slots=True)
class SpecialToken:
    """A token with a role, and its text."""

    token_id: int
    text: str


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The facts; None where the file does not say."""

    path: Path
    file_size: int
    gguf_version: int
    architecture: str | None
    known_architecture: bool
    name: str | None
    file_type: str | None
    num_parameters: int
    num_tensors: int
    part: int
    num_parts: int
    context_length: int | None
    layers: int | None
    width: int | None
    heads: tuple[int, ...]
    kv_heads: tuple[int, ...]
    tokenizer: str | None
    pre_tokenizer: str | None
    vocabulary_size: int | None
    special_tokens: Mapping[str, SpecialToken]
    add_bos: bool | None
    add_eos: bool | None
    has_chat_template: bool
    sampling: Mapping[str, Scalar]
    drafter_kind: DraftKind | None
    target_layers: tuple[int, ...]
    mtp_heads: int

    @classmethod
    def read(cls, path: str | Path) -> ModelFacts:
        """The facts of the file at ``path``."""
        return cls.of(GgufFile.open(path))

    @classmethod
    def of(cls, file: GgufFile) -> ModelFacts:
        """The facts of an opened file."""
        architecture = file.text("general.architecture")
        vocabulary = GgufVocabulary.read(file)
        return cls(
            path=file.path,
            file_size=file.file_size,
            gguf_version=file.version,
            architecture=architecture,
            known_architecture=architecture in KNOWN_ARCHITECTURES,
            name=file.text("general.name"),
            file_type=_file_type(file),
            num_parameters=sum(tensor.num_elements for tensor in file.tensors.values()),
            num_tensors=len(file.tensors),
            part=(file.integer("split.no") or 0) + 1,
            num_parts=file.integer("split.count") or 1,
            context_length=file.integer(f"{architecture}.context_length"),
            layers=file.integer(f"{architecture}.block_count"),
            width=file.integer(f"{architecture}.embedding_length"),
            heads=file.integers(f"{architecture}.attention.head_count"),
            kv_heads=file.integers(f"{architecture}.attention.head_count_kv"),
            tokenizer=vocabulary.tokenizer if vocabulary else None,
            pre_tokenizer=vocabulary.pre_tokenizer if vocabulary else None,
            vocabulary_size=vocabulary.num_tokens if vocabulary else None,
            special_tokens=_special_tokens(vocabulary) if vocabulary else {},
            add_bos=vocabulary.add_bos if vocabulary else None,
            add_eos=vocabulary.add_eos if vocabulary else None,
            has_chat_template="tokenizer.chat_template" in file.metadata,
            sampling=_sampling(file),
            drafter_kind=drafter_kind(file),
            target_layers=file.integers(f"{architecture}.target_layers"),
            mtp_heads=num_heads(file),
        )


def drafter_kind(file: GgufFile) -> DraftKind | None:
    """Which kind of drafter ``file`` was made to be; None for a model that stands alone.

    A model that stands alone may still serve as a ``draft-simple`` drafter, and one with
    MTP heads of its own may draft for itself.
    """
    architecture = file.text("general.architecture")
    if architecture == "eagle3":
        return "draft-eagle3"
    if architecture == "dflash":
        return "draft-dspark" if "markov_w1.weight" in file.tensors else "draft-dflash"
    if architecture == "gemma4-assistant" or _is_only_mtp_head(file, architecture):
        return "draft-mtp"
    return None


def num_heads(file: GgufFile) -> int:
    """The NextN heads in ``file``; some conversions leave them out and still count them."""
    architecture = file.text("general.architecture")
    count = file.integer(f"{architecture}.nextn_predict_layers") or 0
    layers = file.integer(f"{architecture}.block_count") or 0
    if (file.integer("split.count") or 1) > 1:
        return count  # the last blocks lie in another part
    heads = range(layers - count, layers)
    return count if all(f"blk.{i}.nextn.eh_proj.weight" in file.tensors for i in heads) else 0


def num_layers(file: GgufFile) -> int:
    """The layers of a model without its NextN heads."""
    architecture = file.text("general.architecture")
    heads = file.integer(f"{architecture}.nextn_predict_layers") or 0
    return (file.integer(f"{architecture}.block_count") or 0) - heads


def _is_only_mtp_head(file: GgufFile, architecture: str | None) -> bool:
    last = (file.integer(f"{architecture}.block_count") or 0) - 1
    has_head = f"blk.{last}.nextn.eh_proj.weight" in file.tensors
    return has_head and not any(name.startswith("blk.0.") for name in file.tensors)


def _file_type(file: GgufFile) -> str | None:
    number = file.integer("general.file_type")
    return None if number is None else _FILE_TYPES.get(number, f"type {number}")


def _sampling(file: GgufFile) -> dict[str, Scalar]:
    return {
        key.removeprefix(_SAMPLING_PREFIX): value
        for key, value in file.metadata.items()
        if key.startswith(_SAMPLING_PREFIX) and not isinstance(value, GgufArray)
    }


def _special_tokens(vocabulary: GgufVocabulary) -> dict[str, SpecialToken]:
    texts = vocabulary.texts()
    ids = dict(vocabulary.special)
    if ids["eot"] is None:
        found = (texts.index(text) for text in END_OF_TURN_TEXTS if text in texts)
        ids["eot"] = next(found, None)
    return {
        role: SpecialToken(token_id, texts[token_id].decode("utf-8", errors="replace"))
        for role, token_id in ids.items()
        if token_id is not None
    }
