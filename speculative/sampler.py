"""Sampler: logits and history to the law that a token is drawn from."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from outrider.speculative.candidates import Adjustments, best
from outrider.speculative.distribution import Distribution
from outrider.speculative.errors import EngineError
from outrider.speculative.settings import SamplingSettings

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]

_FIRST_GUESS = 256


class Sampler:
    """llama.cpp's chain (common/sampling.cpp), in its order and with its defaults.

    Bias, penalties, top-k, top-p, min-p, temperature: the truncations see the law at
    temperature 1. Where top-k is on and at most a few thousand, no pass but the selection
    touches the whole row. Sums are float64; llama.cpp's are float32.
    """

    def __init__(self, settings: SamplingSettings) -> None:
        self.settings = settings
        self._bias_ids = np.array(sorted(settings.logit_bias), np.int64)
        self._bias = np.array([settings.logit_bias[int(i)] for i in self._bias_ids])
        self._penalises = settings.repeat_last_n != 0 and (
            settings.repeat_penalty != 1
            or settings.frequency_penalty != 0
            or settings.presence_penalty != 0
        )

    @property
    def is_greedy(self) -> bool:
        return self.settings.temp <= 0

    @property
    def history_length(self) -> int:
        """How many of the last tokens the law depends on."""
        if not self._penalises:
            return 0
        last = self.settings.repeat_last_n
        return last if last > 0 else 1 << 30

    def distribution(self, row: F32, history: I32) -> Distribution:
        """The law of the next token.

        Args:
            row: raw logits [vocab], not changed.
            history: the tokens before it, accepted draft tokens included; only the last
                :attr:`history_length` are read.

        Raises:
            EngineError: the model returned no finite logit.
        """
        if self.is_greedy:
            return Distribution.point(self.argmax(row, history))
        adjusted = self.adjustments(row, history)
        if 0 < self.settings.top_k < len(row):
            ids, logits = best(row, self.settings.top_k, adjusted)
            _require_finite(logits[0])
            weights = np.exp(logits - logits[0])
            kept = self._num_kept(logits, weights, float(weights.sum()))
            ids, logits = ids[:kept], logits[:kept]
        else:
            ids, logits = self._wide(row, adjusted)
        return Distribution.softmax(ids, logits / self.settings.temp)

    def argmax(self, row: F32, history: I32) -> int:
        """The best token after bias and penalties, the lowest id of equals."""
        adjusted = self.adjustments(row, history)
        token = int(row.argmax())
        logit = float(row[token])
        # the row's best is the answer if it is unchanged and no changed logit reaches it
        if adjusted is not None and (adjusted.logits.max() >= logit or token in adjusted.token_ids):
            ids, logits = best(row, 1, adjusted)
            token, logit = int(ids[0]), float(logits[0])
        _require_finite(logit)
        return token

    def adjustments(self, row: F32, history: I32) -> Adjustments | None:
        """Logits changed by bias and penalties; None if there are none."""
        if not self._penalises and not len(self._bias_ids):
            return None
        # a drafter's vocabulary may be shorter than the target's
        within = slice(*self._bias_ids.searchsorted((0, len(row))))
        bias_ids, bias = self._bias_ids[within], self._bias[within]
        if not self._penalises:
            return Adjustments(bias_ids, row[bias_ids] + bias) if len(bias_ids) else None
        window = history[-self.history_length :]
        seen, counts = np.unique(window, return_counts=True)
        ids = np.union1d(seen, bias_ids).astype(np.int64)
        if not len(ids):
            return None
        logits = row[ids].astype(np.float64)
        logits[ids.searchsorted(bias_ids)] += bias
        at = ids.searchsorted(seen)
        logits[at] = self._penalised(logits[at], counts)
        return Adjustments(ids, logits)

    def _penalised(self, logits: F64, counts: I64) -> F64:
        """llama.cpp's penalties (llama-sampler.cpp, penalties_apply)."""
        settings = self.settings
        repeated = np.where(
            logits <= 0, logits * settings.repeat_penalty, logits / settings.repeat_penalty
        )
        penalty = counts * settings.frequency_penalty + settings.presence_penalty
        return np.asarray(repeated - penalty)

    def _num_kept(self, logits: F64, weights: F64, total: float) -> int:
        """How many of the sorted candidates top-p and min-p leave.

        ``weights`` are exp(logit - best); ``total`` is the sum of all weights top-p sees.
        """
        kept = len(logits)
        if self.settings.top_p < 1:
            cumulative = weights.cumsum()
            kept = int(cumulative.searchsorted(self.settings.top_p * total)) + 1
        if self.settings.min_p > 0:
            threshold = logits[0] + math.log(self.settings.min_p)
            kept = min(kept, int((-logits).searchsorted(-threshold, side="right")))
        return max(1, min(kept, len(logits)))

    def _wide(self, row: F32, adjusted: Adjustments | None) -> tuple[I64, F64]:
        """Candidates without top-k."""
        _, top = best(row, 1, adjusted)
        _require_finite(top[0])
        if self.settings.top_p >= 1:
            return self._above_min_p(row, adjusted, float(top[0]))
        weights = np.exp(row.astype(np.float64) - top[0])
        if adjusted is not None:
            weights[adjusted.token_ids] = np.exp(adjusted.logits - top[0])
        total = float(weights.sum())
        count = _FIRST_GUESS
        while True:
            ids, head = best(row, min(count, len(row)), adjusted)
            kept = self._num_kept(head, np.exp(head - top[0]), total)
            if kept < len(ids) or len(ids) == len(row):
                return ids[:kept], head[:kept]
            count *= 16

    def _above_min_p(self, row: F32, adjusted: Adjustments | None, top: float) -> tuple[I64, F64]:
        """All tokens that min-p leaves, by id; the whole vocabulary when it is off."""
        min_p = self.settings.min_p
        floor = top + math.log(min_p) if min_p > 0 else -math.inf
        ids = np.flatnonzero(row >= _ceil_float32(floor)) if min_p > 0 else np.arange(len(row))
        logits = row[ids].astype(np.float64)
        if adjusted is not None:
            others = ~np.isin(ids, adjusted.token_ids)
            above = adjusted.logits >= floor
            ids = np.concatenate((ids[others], adjusted.token_ids[above]))
            logits = np.concatenate((logits[others], adjusted.logits[above]))
            order = ids.argsort()
            ids, logits = ids[order], logits[order]
        return ids, logits


def _ceil_float32(value: float) -> np.float32:
    """The smallest float32 not below ``value``: comparing with it is exact for float32 rows."""
    rounded = np.float32(value)
    return rounded if float(rounded) >= value else np.nextafter(rounded, np.float32(np.inf))


def _require_finite(logit: float) -> None:
    if not math.isfinite(logit):
        raise EngineError("the model returned no usable logits (all infinite or not a number)")
