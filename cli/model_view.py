"""What is known about a model file, as lines of text or as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from outrider.cli.stats_view import plural

if TYPE_CHECKING:
    from outrider.speculative.gguf_file import GgufFile
    from outrider.speculative.model_facts import ModelFacts
    from outrider.speculative.pairing import Finding

_MEGABYTE = 1e6
_LABEL_WIDTH = 15


def fact_lines(facts: ModelFacts) -> list[str]:
    """The facts as a table of two columns."""
    return [f"{label:{_LABEL_WIDTH}}{text}" for label, text in _rows(facts)]


def fact_json(facts: ModelFacts) -> dict[str, object]:
    """The facts as one JSON object; null where the file does not say."""
    return {"schema": 1, **asdict(facts), "path": str(facts.path)}


def one_line(facts: ModelFacts) -> str:
    """What a model is, in a few words: ``llama, 135 M parameters, Q4_1``."""
    kind = facts.drafter_kind or facts.architecture or "unknown"
    words = [kind, f"{parameters(facts.num_parameters)} parameters"]
    if facts.file_type:
        words.append(facts.file_type)
    if facts.num_parts > 1:
        words.append(f"part {facts.part} of {facts.num_parts}")
    return ", ".join(words)


def pair_lines(target: GgufFile, draft: GgufFile, findings: tuple[Finding, ...]) -> list[str]:
    """What a pair is, and each thing that was compared, its verdict first."""
    return [
        f"target    {_short(target)}",
        f"drafter   {_short(draft)}",
        *(f"{each.verdict:10}{each.subject:12}{each.text}" for each in findings),
    ]


def megabytes(num_bytes: int) -> str:
    """A file size: ``98.4 MB``."""
    return f"{num_bytes / _MEGABYTE:,.1f} MB"


def parameters(count: int) -> str:
    """A number of parameters in three digits: ``135 M``."""
    for unit, name in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= unit:
            scaled = count / unit
            return f"{scaled:.{0 if scaled >= 99.95 else 1}f} {name}"
    return str(count)


def _rows(facts: ModelFacts) -> Iterator[tuple[str, str]]:
    yield "name", facts.name or "none"
    yield "file", str(facts.path)
    size = f"{megabytes(facts.file_size)}, {plural(facts.num_tensors, 'tensor')}"
    yield "size", f"{size}, GGUF version {facts.gguf_version}"
    if facts.num_parts > 1:
        yield "part", f"{facts.part} of {facts.num_parts}; all must lie in one folder"
    yield "architecture", facts.architecture or "unknown"
    yield "quantisation", facts.file_type or "not said"
    yield "parameters", f"{parameters(facts.num_parameters)} ({facts.num_parameters:,})"
    yield "context", plural(facts.context_length, "token") if facts.context_length else "not said"
    yield "layers", _layers(facts)
    yield "vocabulary", _vocabulary(facts)
    for role, token in facts.special_tokens.items():
        yield f"  {role}", f"{token.token_id} {token.text!r}"
    yield "prompt", _prompt(facts)
    template = "yes" if facts.has_chat_template else "none; chat needs --chat-template-file"
    yield "chat template", template
    if facts.sampling:
        yield "sampling", ", ".join(f"{key} {value}" for key, value in facts.sampling.items())
    yield "drafter", _drafter(facts)


def _layers(facts: ModelFacts) -> str:
    words = [str(facts.layers)]
    if facts.width:
        words.append(f"width {facts.width:,}")
    if facts.heads:
        words.append(_span(facts.heads, "head"))
    if facts.kv_heads:
        words.append(_span(facts.kv_heads, "KV head"))
    return ", ".join(words)


def _span(numbers: tuple[int, ...], noun: str) -> str:
    low, high = min(numbers), max(numbers)
    return plural(low, noun) if low == high else f"{low} to {plural(high, noun)}"


def _vocabulary(facts: ModelFacts) -> str:
    if facts.vocabulary_size is None:
        return "none"
    pre = f", {facts.pre_tokenizer}" if facts.pre_tokenizer else ""
    return f"{facts.vocabulary_size:,} tokens, tokenizer {facts.tokenizer}{pre}"


def _prompt(facts: ModelFacts) -> str:
    begins = "begins with bos" if facts.add_bos else "begins without bos"
    return f"{begins}, ends with eos" if facts.add_eos else begins


def _drafter(facts: ModelFacts) -> str:
    if facts.target_layers:
        layers = " ".join(map(str, facts.target_layers))
        return f"{facts.drafter_kind}, reads the target's layers {layers}"
    if facts.drafter_kind:
        return facts.drafter_kind
    if facts.mtp_heads:
        return f"for itself, {plural(facts.mtp_heads, 'MTP head')} (draft-mtp)"
    return "draft-simple, for a target with the same vocabulary"


def _short(file: GgufFile) -> str:
    from outrider.speculative.model_facts import ModelFacts

    facts = ModelFacts.of(file)
    kind = facts.drafter_kind or facts.architecture or "unknown"
    layers = plural(facts.layers or 0, "layer")
    return f"{kind}, {layers}, width {facts.width}, {facts.path.name}"
