"""Sampler: logits and history to the law that a token is drawn from."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.candidates import Adjustments, best, require_finite
from outrider.speculative.distribution import CERTAIN, Distribution
from outrider.speculative.dry import NO_BREAKERS, DryBreakers, dry_penalties, is_dry_on
from outrider.speculative.settings import SamplingSettings
from outrider.speculative.shortlist import Candidates, LogitBias, Unranked
from outrider.speculative.truncation import (
    min_p,
    temperature,
    top_k,
    top_n_sigma,
    top_p,
    typical,
    xtc,
)

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]

_ALL = 1 << 30
_CHANGING = {"penalties", "dry"}
_MAY_MOVE_THE_BEST = {*_CHANGING, "typ_p", "xtc"}


class Sampler:
    """llama.cpp's chain (common/sampling.cpp): bias, then ``settings.samplers`` in their order.

    A pure function of the row, the history and XTC's coin. With ``mirostat`` set it is the law
    that :class:`outrider.speculative.mirostat.Mirostat` truncates: bias and temperature.
    """

    def __init__(self, settings: SamplingSettings, breakers: DryBreakers | None = None) -> None:
        self.settings = settings
        self._breakers = breakers or NO_BREAKERS
        self._bias = LogitBias(settings.logit_bias)
        self._spread = 0.0 if settings.mirostat else settings.dynatemp_range
        stages = _stages(settings)
        # dynamic temperature goes up to temp + spread
        self.is_greedy = "temperature" in stages and settings.temp + max(self._spread, 0.0) <= 0
        """True if every law is a point mass."""
        if self.is_greedy:  # what comes after finds one token
            stages = stages[: stages.index("temperature") + 1]
        self._changes = tuple(name for name in stages if name in _CHANGING)
        num_leading = next((i for i, name in enumerate(stages) if name not in _CHANGING), None)
        self._leading, self._stages = stages[:num_leading], stages[len(stages[:num_leading]) :]
        after_top_p = {after for name, after in pairwise((*stages, "")) if name == "top_p"}
        self._least = settings.min_p if after_top_p == {"min_p"} else 0.0
        self._is_argmax = self.is_greedy and not _MAY_MOVE_THE_BEST.intersection(self._stages)
        self._changes_logits = bool(self._changes or len(self._bias))
        # of tokens that are only made less likely the best of a row is none, or all are looked at
        self._lowered: frozenset[int] = frozenset()
        if not self._changes and self._bias.only_lowers:
            self._lowered = frozenset(settings.logit_bias)
        self.uses_coin = "xtc" in self._stages
        """True if the law depends on the coin."""
        self.history_length = max((self._window(name) for name in self._changes), default=0)
        """How many of the last tokens the law depends on."""

    def distribution(self, row: F32, history: I32, coin: float = 1.0) -> Distribution:
        """The law of the next token.

        Args:
            row: raw logits [vocab], not changed; -inf for tokens that must not come.
            history: the tokens before it, accepted draft tokens included; only the last
                :attr:`history_length` are read.
            coin: a uniform in [0, 1) that decides whether XTC acts.

        Raises:
            EngineError: the model returned no finite logit.
        """
        if self._is_argmax:
            return Distribution(self._best(row, history), CERTAIN)
        candidates, stages = self._head(row), self._stages[1:]
        if candidates is None:
            candidates, stages = self._start(row, history, self._leading), self._stages
        for name in stages:
            candidates = self._after(name, candidates, history, coin)
        return candidates.law()

    def argmax(self, row: F32, history: I32) -> int:
        """The best token after bias, penalties and DRY, the lowest id of equals."""
        return int(self._best(row, history)[0])

    def _best(self, row: F32, history: I32) -> I64:
        """The same as an array [1]."""
        ids: I64 = row.argmax(0, keepdims=True)
        token_id = ids.item()
        logit = row.item(token_id)
        if self._changes_logits and (not self._lowered or token_id in self._lowered):
            adjusted = self.adjustments(row, history)
            # the row's best is the answer if it is unchanged and no changed logit reaches it
            if adjusted and (adjusted.logits.max() >= logit or ids[0] in adjusted.token_ids):
                ids, logits = best(row, 1, adjusted)
                logit = float(logits[0])
        if not -math.inf < logit < math.inf:
            require_finite(logit)
        return ids

    def _head(self, row: F32) -> Candidates | None:
        """What top-k leaves, where it comes first and none of that is lowered by the bias."""
        count = self.settings.top_k
        if not self._lowered or self._stages[:1] != ("top_k",) or count >= len(row):
            return None
        head = Unranked.of(row).head(count)
        return head if self._lowered.isdisjoint(head.token_ids.tolist()) else None

    def adjustments(self, row: F32, history: I32) -> Adjustments | None:
        """Logits changed by bias, penalties and DRY; None if there are none."""
        if not self._changes_logits:
            return None
        return self._start(row, history, self._changes).adjusted

    def _start(self, row: F32, history: I32, changes: tuple[str, ...]) -> Unranked:
        """All tokens, after the bias and what else changes single logits."""
        candidates = self._bias.candidates(row)
        for name in changes:
            candidates = self._changed(name, candidates, history)
        return candidates

    def _window(self, name: str) -> int:
        """How far back a stage looks."""
        if name == "dry":
            return self.settings.dry_penalty_last_n
        last = self.settings.repeat_last_n
        return last if last > 0 else _ALL

    def _after(self, name: str, candidates: Candidates, history: I32, coin: float) -> Candidates:
        """What one stage leaves."""
        settings = self.settings
        match name:
            case "top_k":
                return top_k(candidates, settings.top_k)
            case "top_p":
                return top_p(candidates, settings.top_p, self._least)
            case "min_p":
                return min_p(candidates, settings.min_p)
            case "temperature":
                return temperature(candidates, settings.temp, self._spread, settings.dynatemp_exp)
            case "top_n_sigma":
                return top_n_sigma(candidates, settings.top_n_sigma)
            case "typ_p":
                return typical(candidates, settings.typical_p)
            case "xtc":
                acts = coin <= settings.xtc_probability
                return xtc(candidates, settings.xtc_threshold) if acts else candidates
        return self._changed(name, candidates.by_id(), history)

    def _changed(self, name: str, candidates: Unranked, history: I32) -> Unranked:
        """The candidates after penalties or DRY."""
        if name == "dry":
            ids, penalties = dry_penalties(history, self.settings, self._breakers)
            if not len(ids):
                return candidates
            found, places = candidates.find(ids)
            return candidates.with_logits(places, candidates.logits_at(places) - penalties[found])
        seen, counts = np.unique(history[-self._window(name) :], return_counts=True)
        found, places = candidates.find(seen.astype(np.int64))
        logits = self._penalised(candidates.logits_at(places), counts[found])
        return candidates.with_logits(places, logits)

    def _penalised(self, logits: F64, counts: I64) -> F64:
        """llama.cpp's penalties (llama-sampler.cpp, penalties_apply)."""
        settings = self.settings
        repeated = np.where(
            logits <= 0, logits * settings.repeat_penalty, logits / settings.repeat_penalty
        )
        penalty = counts * settings.frequency_penalty + settings.presence_penalty
        return np.asarray(repeated - penalty)


def _stages(settings: SamplingSettings) -> tuple[str, ...]:
    """The samplers that are on, in their order."""
    if settings.mirostat:
        return ("temperature",)
    is_on = {
        "penalties": settings.repeat_last_n != 0
        and (
            settings.repeat_penalty != 1
            or settings.frequency_penalty != 0
            or settings.presence_penalty != 0
        ),
        "dry": is_dry_on(settings),
        "top_n_sigma": settings.top_n_sigma > 0,
        "top_k": settings.top_k > 0,
        "typ_p": settings.typical_p < 1,
        "top_p": settings.top_p < 1,
        "min_p": settings.min_p > 0,
        "xtc": settings.xtc_probability > 0 and settings.xtc_threshold <= 0.5,
        "temperature": True,
    }
    return tuple(name for name in settings.samplers if is_on[name])
