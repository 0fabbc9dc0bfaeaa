"""Does a draft file fit a target? Told from both headers, before anything is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from outrider.speculative.architectures import CHAINED_HEADS, READABLE_LAYERS, RUNNABLE_HEADS
from outrider.speculative.errors import InputError
from outrider.speculative.gguf_file import GgufFile
from outrider.speculative.gguf_vocabulary import GgufVocabulary
from outrider.speculative.model_facts import drafter_kind, num_heads, num_layers

# llama.cpp's own tolerances
MAX_SIZE_DIFFERENCE = 128
FIRST_COMPARED_TOKEN = 5
_EAGLE3_LAYERS = 3
_BORROWERS = ("eagle3", "dflash")

Verdict = Literal["fits", "differs", "refused"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was compared, and what came of it."""

    verdict: Verdict
    subject: str
    text: str


def examine(target: GgufFile, draft: GgufFile, *, kind: str | None = None) -> tuple[Finding, ...]:
    """Everything that the two headers say about the pair, refusals included.

    ``kind`` is how the draft file is to be used; None asks for what it was made to be.
    """
    return (
        *_examine_kind(target, draft, kind),
        *_examine_vocabulary(target, draft),
        *_examine_borrowed(target, draft),
        *_examine_context(target, draft),
    )


def check_pair(target: GgufFile, draft: GgufFile, *, kind: str | None = None) -> None:
    """Refuse a pair that cannot speculate, before llama.cpp could abort on it."""
    for finding in examine(target, draft, kind=kind):
        if finding.verdict == "refused":
            raise InputError(
                f"{draft.path} cannot draft for {target.path}: {finding.subject}:"
                f" {finding.text}; use a drafter made for this model,"
                " or --spec-type ngram-edit, which needs none"
            )


def check_heads(target: GgufFile) -> None:
    """Refuse a target that cannot draft for itself."""
    if not num_heads(target):
        raise InputError(
            f"{target.path}: drafter draft-mtp: this target has no NextN heads;"
            " give them with --model-draft FILE, or use --spec-type ngram-edit"
        )
    finding = _examine_heads(target)
    if finding.verdict == "refused":
        raise InputError(
            f"{target.path}: drafter draft-mtp: {finding.text};"
            " use another drafter, or --spec-type ngram-edit"
        )


def _examine_kind(target: GgufFile, draft: GgufFile, asked: str | None) -> Iterator[Finding]:
    made = drafter_kind(draft)
    kind = asked or made or "draft-simple"
    is_whole_with_heads = made is None and kind == "draft-mtp" and num_heads(draft)
    if kind != (made or "draft-simple") and not is_whole_with_heads:
        is_what = f"it is a {made} drafter" if made else "it is a whole model, for draft-simple"
        yield Finding("refused", "kind", f"{is_what}, --spec-type says {kind}")
    elif kind == "draft-mtp":
        yield _compare_architecture(target, draft)
        yield _examine_heads(draft)
        yield _compare_width(target, draft, "embedding_length")
    elif kind != "draft-simple":
        yield _examine_layer_access(target)
        yield _examine_target_layers(target, draft)
        width = "target_hidden_size" if kind == "draft-eagle3" else "embedding_length"
        yield _compare_width(target, draft, width)


def _examine_heads(file: GgufFile) -> Finding:
    architecture, count = file.text("general.architecture"), num_heads(file)
    text = f"{count} NextN head{'s' * (count != 1)} of {architecture}"
    if architecture not in RUNNABLE_HEADS:
        return Finding("refused", "heads", f"{text}: they cannot be run")
    if count > 1 and architecture not in CHAINED_HEADS:
        return Finding("refused", "heads", f"{text}: only one can be run")
    return Finding("fits" if count else "refused", "heads", text)


def _compare_architecture(target: GgufFile, draft: GgufFile) -> Finding:
    theirs, ours = (file.text("general.architecture") for file in (draft, target))
    family = str(theirs).removesuffix("-assistant")
    verdict: Verdict = "fits" if family == ours else "refused"
    return Finding(verdict, "kind", f"drafter of {family}, target {ours}")


def _examine_layer_access(target: GgufFile) -> Finding:
    architecture = target.text("general.architecture")
    if architecture in READABLE_LAYERS:
        return Finding("fits", "kind", "this target lets its layers be read")
    return Finding("refused", "kind", f"{architecture} targets do not let their layers be read")


def _examine_target_layers(target: GgufFile, draft: GgufFile) -> Finding:
    architecture = draft.text("general.architecture")
    layers = draft.integers(f"{architecture}.target_layers")
    count = num_layers(target)
    text = f"drafter reads {' '.join(map(str, layers)) or 'none'}, target has {count}"
    if architecture == "eagle3" and len(layers) != _EAGLE3_LAYERS:
        return Finding("refused", "layers", f"{text}; eagle3 reads {_EAGLE3_LAYERS}")
    inside = bool(layers) and all(0 <= layer < count for layer in layers)
    return Finding("fits" if inside else "refused", "layers", text)


def _compare_width(target: GgufFile, draft: GgufFile, key: str) -> Finding:
    expected = draft.integer(f"{draft.text('general.architecture')}.{key}")
    width = target.integer(f"{target.text('general.architecture')}.embedding_length")
    verdict: Verdict = "fits" if expected == width else "refused"
    return Finding(verdict, "width", f"drafter expects {expected}, target {width}")


def _examine_vocabulary(target: GgufFile, draft: GgufFile) -> Iterator[Finding]:
    ours, theirs = GgufVocabulary.read(target), GgufVocabulary.read(draft)
    if ours is None or theirs is None:
        lacking = "target" if ours is None else "drafter"
        yield Finding("refused", "vocabulary", f"the {lacking} has none")
        return
    yield _compare_texts(ours, theirs)
    if ours.kind != theirs.kind:
        yield Finding("refused", "tokenizer", f"drafter {theirs.kind}, target {ours.kind}")
    yield _compare_special(ours, theirs)


def _examine_borrowed(target: GgufFile, draft: GgufFile) -> Iterator[Finding]:
    """Tensors of the target must have a row for each token of the drafter, and no more."""
    if draft.text("general.architecture") not in _BORROWERS:
        return
    ours, theirs = GgufVocabulary.read(target), GgufVocabulary.read(draft)
    if ours is None or theirs is None or ours.num_tokens == theirs.num_tokens:
        return
    if not {"token_embd.weight", "output.weight"} <= draft.tensors.keys():
        yield Finding(
            "refused",
            "vocabulary",
            f"drafter {theirs.num_tokens:,}, target {ours.num_tokens:,}:"
            " it uses the target's embeddings, both must have as many",
        )


def _compare_texts(ours: GgufVocabulary, theirs: GgufVocabulary) -> Finding:
    sizes = f"drafter {theirs.num_tokens:,}, target {ours.num_tokens:,}"
    if abs(ours.num_tokens - theirs.num_tokens) > MAX_SIZE_DIFFERENCE:
        return Finding("refused", "vocabulary", f"{sizes}: over {MAX_SIZE_DIFFERENCE} apart")
    if ours.same_texts(theirs):
        return Finding("fits", "vocabulary", f"{sizes}, same token texts")
    shared = slice(FIRST_COMPARED_TOKEN, min(ours.num_tokens, theirs.num_tokens))
    our_texts, their_texts = ours.texts()[shared], theirs.texts()[shared]
    if our_texts == their_texts:
        return Finding("fits", "vocabulary", f"{sizes}, same token texts where both have them")
    pairs = enumerate(zip(our_texts, their_texts, strict=True))
    index = next(i for i, (our_text, their_text) in pairs if our_text != their_text)
    return Finding(
        "refused",
        "vocabulary",
        f"token {index + FIRST_COMPARED_TOKEN} is {_quoted(their_texts[index])} for the drafter,"
        f" {_quoted(our_texts[index])} for the target",
    )


def _compare_special(ours: GgufVocabulary, theirs: GgufVocabulary) -> Finding:
    """Beginning and end: where a model adds one, both must add the same."""
    for role in ("bos", "eos"):
        our_way, their_way = _added(ours, role), _added(theirs, role)
        if our_way != their_way:
            return Finding(
                "refused",
                "special",
                f"the drafter {_adds(their_way, role)}, the target {_adds(our_way, role)}",
            )
    return Finding(
        "fits",
        "special",
        f"bos {_shown(theirs.bos)} and {_shown(ours.bos)},"
        f" end {_shown(theirs.eos)} and {_shown(ours.eos)}",
    )


def _added(vocabulary: GgufVocabulary, role: str) -> tuple[bool, int | None]:
    adds = vocabulary.add_bos if role == "bos" else vocabulary.add_eos
    return adds, vocabulary.special[role] if adds else None


def _adds(way: tuple[bool, int | None], role: str) -> str:
    adds, token_id = way
    return f"adds {role} {_shown(token_id)}" if adds else f"adds no {role}"


def _shown(token_id: int | None) -> str:
    return "none" if token_id is None else str(token_id)


def _quoted(text: bytes) -> str:
    return repr(text.decode("utf-8", errors="replace"))


def _examine_context(target: GgufFile, draft: GgufFile) -> Iterator[Finding]:
    ours, theirs = (
        file.integer(f"{file.text('general.architecture')}.context_length") or 0
        for file in (target, draft)
    )
    if 0 < theirs < ours:
        yield Finding(
            "differs",
            "context",
            f"drafter {theirs:,}, target {ours:,}: no drafts after token {theirs:,}",
        )
