"""Laws as plain dictionaries, and a text that never ends."""

from __future__ import annotations

from outrider.speculative.distribution import Distribution

Law = dict[int, float]


def as_dict(law: Distribution) -> Law:
    return dict(zip(law.token_ids.tolist(), law.probs.tolist(), strict=True))


def never(_token: int) -> bool:
    return False
