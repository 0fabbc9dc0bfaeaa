"""The chain of a request, for drafters that are tested without a generation around them."""

from __future__ import annotations

from collections.abc import Callable

from outrider.speculative.law import TokenLaw
from outrider.speculative.proposal import DraftLaw
from outrider.speculative.sampler import Sampler
from outrider.speculative.settings import SamplingSettings
from outrider.speculative.uniforms import Coins, Uniforms


def draft_law(sampling: SamplingSettings) -> Callable[[], DraftLaw]:
    """Begins a walk of the chain of ``sampling``."""
    law = TokenLaw(Sampler(sampling))
    return lambda: law.draft(Coins(Uniforms(0), 0))


GREEDY = draft_law(SamplingSettings(temp=0))
