"""GrammarDrafter: proposes what the grammar dictates (``grammar``)."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.speculative.drafters.drafter import DrafterDefaults
from outrider.speculative.proposal import DraftRequest, Proposal, judged


class GrammarDrafter(DrafterDefaults):
    """The text that must follow or mostly does, cut into tokens as the model's tokenizer does.

    It costs next to nothing. The target may cut the same text in another way: the tokens are
    verified like those of any draft.
    """

    name = "grammar"

    def __init__(self, n_max: int) -> None:
        self.n_max = n_max

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        return [
            judged(r, Proposal(tuple(r.law().forced(r.max_tokens))), self.name) for r in requests
        ]
