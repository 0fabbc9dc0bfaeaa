"""Builds the drafters that read hidden states, from what their files say."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.speculative.drafters.dflash import BlockShape, DflashDrafter
from outrider.speculative.drafters.draft_context import DraftContext
from outrider.speculative.drafters.drafter import Drafter
from outrider.speculative.drafters.eagle3 import Eagle3Drafter
from outrider.speculative.drafters.mtp import MtpDrafter
from outrider.speculative.errors import InputError
from outrider.speculative.gguf_file import GgufFile
from outrider.speculative.llama import CONTEXT_DEFAULT, CONTEXT_MTP, NativeContext
from outrider.speculative.llama_runner import LlamaRunner
from outrider.speculative.model import Model
from outrider.speculative.pairing import check_heads, check_pair
from outrider.speculative.runner import HIDDEN
from outrider.speculative.settings import DrafterSettings, ModelSettings
from outrider.speculative.threads import thread_count

_MIN_BATCH = 64
_DEFAULT_BLOCK = 16  # llama.cpp's


@dataclass(frozen=True, slots=True)
class StateSite:
    """Where such a drafter is built: the target's runner, and the drafter's own weights."""

    kind: str
    target: LlamaRunner
    model: Model
    n_seq: int
    n_max: int


def taps_of(kind: str, target: GgufFile, draft: GgufFile | None) -> tuple[int, ...]:
    """What the drafter reads of the target.

    Raises:
        InputError: the pair cannot work, both values in the message.
    """
    if draft is None:
        if kind != "draft-mtp":
            raise InputError(f"drafter {kind} needs a model; give --model-draft FILE")
        check_heads(target)
        return (HIDDEN,)
    check_pair(target, draft, kind=kind)
    if kind == "draft-mtp":
        return (HIDDEN,)
    return draft.integers(f"{draft.text('general.architecture')}.target_layers")


def check_confidence(draft: GgufFile, p_min: float) -> None:
    """Refuse ``p_min`` for a DSpark drafter that cannot say how sure it is.

    Raises:
        InputError: its rows give no probability that such a threshold was meant for.
    """
    if p_min > 0 and _is_markov(draft) and not _has_confidence(draft):
        raise InputError(
            f"--spec-draft-p-min {p_min:g}: {draft.path} has no confidence head to cut drafts by;"
            " give 0, or a shorter --spec-draft-n-max"
        )


def build_state_drafter(
    site: StateSite, settings: DrafterSettings, taps: tuple[int, ...]
) -> Drafter:
    """A drafter of ``site.kind`` on a context of its own.

    Raises:
        InputError: the file lacks what its kind needs.
        EngineError: llama.cpp failed.
    """
    if site.kind == "draft-eagle3":
        return _eagle3(site, settings, taps)
    if site.kind == "draft-mtp":
        return _mtp(site, settings, taps)
    return _dflash(site, settings, taps)


def _eagle3(site: StateSite, settings: DrafterSettings, taps: tuple[int, ...]) -> Drafter:
    width = len(taps) * site.target.model.native.n_embd
    hidden = site.model.native.n_embd
    native = _context(site, settings.model, row_width=max(width, hidden))
    native.tap_hidden(outputs_only=True)
    context = _draft_context(site, native, hidden)
    return Eagle3Drafter(context, taps, width, site.target.vocab_size, site.n_max)


def _mtp(site: StateSite, settings: DrafterSettings, taps: tuple[int, ...]) -> Drafter:
    width, expected = site.target.model.native.n_embd_out, site.model.native.n_embd_out
    if width != expected:
        raise InputError(
            f"{site.model.path}: width: the heads expect {expected}, the target gives {width};"
            " use the heads made for this model"
        )
    num_heads = site.model.native.num_heads_nextn
    native = _context(
        site,
        settings.model,
        row_width=width,
        kind=CONTEXT_MTP,
        # every head writes the same cells again: where a small cache begins anew, llama.cpp
        # would choose others, and the heads before read cells that were never theirs
        full_window=num_heads > 1,
    )
    native.tap_hidden(outputs_only=True)
    return MtpDrafter(
        _draft_context(site, native, width),
        taps,
        width,
        site.target.vocab_size,
        site.n_max,
        num_heads=num_heads,
    )


def _dflash(site: StateSite, settings: DrafterSettings, taps: tuple[int, ...]) -> Drafter:
    file, model = GgufFile.open(site.model.path), site.model.native
    shape = _block_shape(file, model.mask_token, site.kind)
    width = len(taps) * model.n_embd
    native = _context(site, settings.model, row_width=width, block=shape.block_size + 1)
    native.tap_hidden(outputs_only=not shape.lattice)
    native.set_causal(bool(file.flag("dflash.attention.causal")))
    context = _draft_context(site, native, model.n_embd)
    return DflashDrafter(site.kind, shape, context, taps, width, site.target.vocab_size, site.n_max)


def _block_shape(file: GgufFile, mask_id: int, kind: str) -> BlockShape:
    if mask_id < 0:
        raise InputError(f"{file.path}: a {kind} drafter without a mask token; convert it again")
    is_markov = _is_markov(file)
    anchored = file.flag("dflash.sample_from_anchor")
    return BlockShape(
        block_size=file.integer("dflash.block_size") or _DEFAULT_BLOCK,
        mask_id=mask_id,
        samples_anchor=is_markov and anchored is not False,
        has_confidence=is_markov and _has_confidence(file),
        lattice=file.integer("dflash.selector_top_k") or 0
        if "selector_hidden.weight" in file.tensors
        else 0,
    )


def _is_markov(file: GgufFile) -> bool:
    return "markov_w1.weight" in file.tensors


def _has_confidence(file: GgufFile) -> bool:
    return "conf_proj.weight" in file.tensors


def _draft_context(site: StateSite, native: NativeContext, hidden_width: int) -> DraftContext:
    length = site.model.drafting_length(site.target.model, site.target.n_ctx)
    return DraftContext(native, hidden_width, length)


def _context(
    site: StateSite,
    settings: ModelSettings | None,
    *,
    row_width: int,
    kind: int = CONTEXT_DEFAULT,
    block: int = 1,
    full_window: bool = False,
) -> NativeContext:
    """A small context: these graphs compute logits for every entry of a batch."""
    settings = settings or site.target.settings
    batch = max(_MIN_BATCH, site.n_seq * block)
    threads = thread_count(settings.threads)
    return NativeContext(
        site.model.native,
        n_ctx=site.target.n_ctx,
        n_batch=batch,
        n_ubatch=batch,
        n_seq=site.n_seq,
        n_outputs=batch,
        n_threads=threads,
        n_threads_batch=settings.threads_batch or threads,
        flash_attn=settings.flash_attn,
        cache_type_k=settings.cache_type_k,
        cache_type_v=settings.cache_type_v,
        kind=kind,
        other=site.target.native,
        row_width=row_width,
        full_window=full_window,
    )
