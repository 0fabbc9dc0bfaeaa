"""The n-gram drafters from their settings, those of llama.cpp with its defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from outrider.speculative.drafters.drafter import Drafter
from outrider.speculative.drafters.ngram_cache import NgramCacheDrafter
from outrider.speculative.drafters.ngram_edit import NgramEditDrafter
from outrider.speculative.drafters.ngram_map import NgramMapDrafter
from outrider.speculative.drafters.ngram_mod import NgramModDrafter
from outrider.speculative.drafters.ngram_pool import NgramPool
from outrider.speculative.drafters.ngram_simple import NgramSimpleDrafter
from outrider.speculative.settings import DrafterSettings

_MATCH, _SIZE = 12, 48
_MOD_MATCH, _MOD_MIN, _MOD_SIZE = 24, 48, 64
_CACHE_SIZE = 8
_EDIT_MATCH = 4


def ngram_drafter(name: str, settings: DrafterSettings, n_max: int, vocab_size: int) -> Drafter:
    """The drafter of kind ``name``; ``n_max`` is its bound after all others.

    Raises:
        InputError: a lookup cache that cannot be used.
    """
    options: dict[str, Any] = {k: v for k, v in settings.options.items() if v is not None}
    match, size = options.get("match", _MATCH), options.get("size", _SIZE)
    if name == "ngram-simple":
        return NgramSimpleDrafter(match, size, n_max)
    if name.startswith("ngram-map-"):
        hits, has_values = options.get("min_hits", 1), name == "ngram-map-k4v"
        return NgramMapDrafter(match, size, hits, n_max, has_values=has_values)
    if name == "ngram-mod":
        pool = NgramPool(options.get("n_match", _MOD_MATCH))
        size = settings.n_max or _MOD_SIZE
        return NgramModDrafter(pool, options.get("n_min", _MOD_MIN), size, n_max)
    if name == "ngram-edit":
        return NgramEditDrafter(options.get("match", _EDIT_MATCH), n_max)
    assert name == "ngram-cache"
    static, dynamic = (Path(options[k]) if k in options else None for k in ("static", "dynamic"))
    return NgramCacheDrafter(vocab_size, static, dynamic, min(n_max, settings.n_max or _CACHE_SIZE))
