"""OpenDraft: the tokens a model drafter has drawn so far for one request."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.candidates import best
from outrider.speculative.distribution import Distribution
from outrider.speculative.proposal import DraftRequest, Proposal
from outrider.speculative.token_sequence import TokenSequence

F32 = NDArray[np.float32]

_CONFIDENCE_CANDIDATES = 10


class OpenDraft:
    """A draft that grows by one token a row, until it is long enough or unsure."""

    def __init__(self, request: DraftRequest, max_tokens: int, vocab_size: int) -> None:
        """``vocab_size`` is the target's: a padded draft vocabulary may have more tokens."""
        self.request = request
        self.tokens = TokenSequence(request.token_ids)
        self.max_tokens = max_tokens
        self._vocab_size = vocab_size
        self._law = request.law()
        self._laws: list[Distribution] = []
        self._gate = request.gate
        self._confidences: list[float] = []

    @property
    def num_drafted(self) -> int:
        return len(self.tokens) - len(self.request.token_ids)

    @property
    def last_token(self) -> int:
        return int(self.tokens.ids[-1])

    def extend(self, row: F32) -> bool:
        """Add the token that a row of logits gives; False when the draft is complete."""
        request, row = self.request, row[: self._vocab_size]
        history = self.tokens.ids
        if request.uniform is None:
            if (request.min_prob > 0 or self._gate) and not self.is_sure(_confidence(row)):
                return False
            best_token = self.best(row)
            if best_token is None:
                return False
            token = best_token
        else:
            law = self._law.distribution(row, history)
            if law is None:
                return False
            # decided before the draw: dropping a drawn token would bias the law
            if not self.is_sure(float(law.probs.max())):
                return False
            token = law.draw(request.uniform())
            self._laws.append(law)
        return self.append(token)

    def best(self, row: F32) -> int | None:
        """The token a deterministic draft takes, whatever its probability; None: no token."""
        return self._law.argmax(row[: self._vocab_size], self.tokens.ids)

    def is_sure(self, confidence: float) -> bool:
        """False if a token that the drafter gives this probability is not to be drafted.

        To be asked once for each token, before it is added.
        """
        if confidence < self.request.min_prob:
            return False
        if self._gate is not None and not self._gate.admits(confidence):
            return False
        self._confidences.append(confidence)
        return True

    def append(self, token: int) -> bool:
        """Add a token; False when the draft is complete."""
        self.tokens.extend([token])
        self._law.push(token)
        if self._gate is not None and not self._gate.goes_on:
            return False
        return self.num_drafted < self.max_tokens

    def proposal(self, catch_up_s: float = 0.0) -> Proposal:
        token_ids = tuple(self.tokens.ids[len(self.request.token_ids) :].tolist())
        laws = None if self.request.uniform is None else tuple(self._laws)
        sure = np.array(self._confidences) if len(self._confidences) == len(token_ids) else None
        return Proposal(token_ids, laws, catch_up_s=catch_up_s, confidences=sure)


def _confidence(row: F32) -> float:
    """Probability of the best token among the ten best, as llama.cpp measures ``p_min``."""
    ids, logits = best(row, _CONFIDENCE_CANDIDATES)
    return float(Distribution.softmax(ids, logits).probs[0])
