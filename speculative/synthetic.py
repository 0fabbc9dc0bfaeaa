"""Synthetic acceptance: coins in place of verification, to measure the machinery.

The semantics and the five refusals are llama.cpp's (common/speculative.cpp, synth_rates). The
text is not the model's; everything that shows such a run says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from outrider.speculative.errors import InputError

_BISECTIONS = 32


def acceptance_chances(
    n_max: int, rates: Sequence[float] | None, length: float | None
) -> tuple[float, ...]:
    """The chance of each position [n_max], given that all positions before it stood.

    Args:
        n_max: draft tokens a step.
        rates: entry i is the chance that draft tokens 0..i are *all* accepted.
        length: mean tokens a step emits, the target's own included.

    Raises:
        InputError: both or neither given, a wrong count, not finite, out of range, increasing.
    """
    if (rates is None) == (length is None):
        raise InputError("give one of --spec-synth-rates and --spec-synth-len")
    if rates is None:
        assert length is not None
        return (_chance_for_length(n_max, length),) * n_max
    if len(rates) != n_max:
        raise InputError(
            f"--spec-synth-rates: {len(rates)} values, needs one for each of"
            f" {n_max} draft tokens (--spec-draft-n-max)"
        )
    if not all(math.isfinite(rate) and 0 <= rate <= 1 for rate in rates):
        raise InputError(f"--spec-synth-rates {_listed(rates)}: each must be from 0 to 1")
    if any(later > earlier for earlier, later in pairwise(rates)):
        raise InputError(f"--spec-synth-rates {_listed(rates)}: must not increase")
    before = (1.0, *rates[:-1])
    return tuple(rate / prior if prior else 0.0 for rate, prior in zip(rates, before, strict=True))


def _chance_for_length(n_max: int, length: float) -> float:
    """The p with p + p^2 + .. + p^n_max = length - 1."""
    if not math.isfinite(length) or not 1 <= length <= n_max + 1:
        raise InputError(f"--spec-synth-len {length}: allowed 1 to {n_max + 1} with n_max {n_max}")
    if length in (1, n_max + 1):
        return float(length > 1)
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if sum(middle**i for i in range(1, n_max + 1)) < length - 1:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _listed(rates: Sequence[float]) -> str:
    return ",".join(f"{rate:g}" for rate in rates)
