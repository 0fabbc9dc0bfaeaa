"""The sampler chain in the plainest form: float64, full sorts, one list, no shortcuts.

Written from the descriptions of the samplers; ``tests/speculative/test_sampler.py`` holds it
against llama.cpp, and the sampler against it where float32 blurs llama.cpp's answer.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.settings import SamplingSettings

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

_INF = math.inf
_ROUNDING = 1e-12


def slow_law(
    row: F32,
    history: Sequence[int],
    settings: SamplingSettings,
    *,
    xtc_acts: bool = False,
    breakers: Sequence[Sequence[int]] = (),
) -> F64:
    """Probabilities of the whole vocabulary.

    ``breakers`` are token sequences; they are looked for as they are.
    """
    logits = row.astype(np.float64)
    for token, bias in settings.logit_bias.items():
        logits[token] += bias
    chain = _Chain(logits, list(history), settings, xtc_acts, breakers)
    for name in settings.samplers:
        getattr(chain, name)()
    probs = np.zeros(len(row))
    probs[chain.ids] = chain.probs()
    return probs


def slow_dry(
    history: Sequence[int], settings: SamplingSettings, breakers: Sequence[Sequence[int]] = ()
) -> dict[int, float]:
    """What DRY takes off each logit, by trying all lengths at all places."""
    window = list(history)[-settings.dry_penalty_last_n :]
    allowed, size = settings.dry_allowed_length, len(window)
    if size <= allowed:
        return {}
    most = _after_last_breaker(window, breakers)
    if most < allowed:
        return {}
    longest: dict[int, int] = {}
    for end in range(1, size):  # window[end] followed window[:end]
        lengths = range(min(most, end) + 1)
        found = max(n for n in lengths if window[end - n : end] == window[size - n :])
        if found >= allowed:
            longest[window[end]] = max(found, longest.get(window[end], 0))
    base, alone = settings.dry_base, {breaker[0] for breaker in breakers if len(breaker) == 1}
    # so that the power stays below the largest float32
    limit = int(np.float32(88.7228391) / np.log(np.float32(base))) if base > 1.000001 else 0
    exponents = {token: length - allowed for token, length in longest.items()}
    return {
        token: settings.dry_multiplier * base ** (min(power, limit) if limit > 0 else power)
        for token, power in exponents.items()
        if token not in alone
    }


def _after_last_breaker(window: list[int], breakers: Sequence[Sequence[int]]) -> int:
    """Tokens after the breaker that begins last; the longest of those that begin there."""
    for start in reversed(range(len(window))):
        found = [b for b in breakers if window[start : start + len(b)] == list(b)]
        if found:
            return len(window) - start - max(map(len, found))
    return len(window)


class _Chain:
    """A list of tokens, best first, equal ones by id; masked ones stay in it."""

    def __init__(
        self,
        logits: F64,
        history: list[int],
        settings: SamplingSettings,
        xtc_acts: bool,
        breakers: Sequence[Sequence[int]],
    ) -> None:
        self.settings = settings
        self.history = history
        self.xtc_acts = xtc_acts
        self.breakers = breakers
        self.ids = np.arange(len(logits))
        self.logits = logits
        self.sort()

    def sort(self) -> None:
        self.keep(np.lexsort((self.ids, -self.logits)))

    def keep(self, places: NDArray[np.int64] | slice) -> None:
        self.ids, self.logits = self.ids[places], self.logits[places]

    def probs(self) -> F64:
        weights = np.exp(self.logits - self.logits.max())
        return np.asarray(weights / weights.sum())

    def entropy(self) -> float:
        return -math.fsum(prob * math.log(prob) for prob in self.probs() if prob > 0)

    def penalties(self) -> None:
        settings = self.settings
        last = settings.repeat_last_n if settings.repeat_last_n >= 0 else len(self.history)
        seen = Counter(self.history[len(self.history) - last :] if last else [])
        for at in np.flatnonzero(np.isin(self.ids, list(seen))):
            count, logit = seen[int(self.ids[at])], self.logits[at]
            factor = 1 / settings.repeat_penalty if logit > 0 else settings.repeat_penalty
            penalty = count * settings.frequency_penalty + settings.presence_penalty
            self.logits[at] = logit * factor - penalty
        self.sort()

    def dry(self) -> None:
        settings = self.settings
        if not settings.dry_multiplier or settings.dry_base < 1 or settings.dry_penalty_last_n < 1:
            return
        for token, penalty in slow_dry(self.history, settings, self.breakers).items():
            self.logits[self.ids == token] -= penalty
        self.sort()

    def top_n_sigma(self) -> None:
        if self.settings.top_n_sigma > 0:
            sigma = self.logits[np.isfinite(self.logits)].std()
            floor = self.logits.max() - self.settings.top_n_sigma * sigma
            self.logits = np.where(self.logits < floor - _ROUNDING, -_INF, self.logits)

    def top_k(self) -> None:
        if self.settings.top_k > 0:
            self.keep(slice(self.settings.top_k))

    def typ_p(self) -> None:
        if self.settings.typical_p >= 1:
            return
        probs = self.probs()
        with np.errstate(divide="ignore"):
            distance = np.abs(-np.log(probs) - self.entropy())
        order = np.lexsort((self.ids, distance))
        before = probs[order].cumsum() - probs[order]
        self.keep(order[before <= self.settings.typical_p])
        self.sort()

    def top_p(self) -> None:
        if self.settings.top_p < 1:
            probs = self.probs()
            before = probs.cumsum() - probs
            kept = before < self.settings.top_p
            kept[0] = True
            self.keep(np.flatnonzero(kept))

    def min_p(self) -> None:
        if self.settings.min_p > 0:
            probs = self.probs()
            self.keep(np.flatnonzero(probs >= self.settings.min_p * probs[0] * (1 - _ROUNDING)))

    def xtc(self) -> None:
        if self.xtc_acts and self.settings.xtc_threshold <= 0.5:
            above = (self.probs() >= self.settings.xtc_threshold) & np.isfinite(self.logits)
            self.keep(slice(max(0, int(above.sum()) - 1), None))

    def temperature(self) -> None:
        settings = self.settings
        temp = settings.temp
        if settings.dynatemp_range > 0:
            if len(self.ids) < 2:
                return
            lowest = max(0.0, temp - settings.dynatemp_range)
            share = self.entropy() / math.log(len(self.ids))
            highest = temp + settings.dynatemp_range
            temp = lowest + (highest - lowest) * share**settings.dynatemp_exp
        if temp > 0:
            self.logits = self.logits / temp
        else:
            self.logits = np.where(np.arange(len(self.ids)) == 0, self.logits, -_INF)
