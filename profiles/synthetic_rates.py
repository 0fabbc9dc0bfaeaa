"""Rates of synthetic acceptance, as they are written on the command line."""

from __future__ import annotations


def synthetic_rates(text: str) -> tuple[float, ...]:
    """The numbers of ``0.8,0.6,0.4``; what they may be depends on the draft length.

    Raises:
        ValueError: not numbers; says what is allowed.
    """
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError("allowed: numbers separated by commas, such as 0.8,0.6,0.4") from None
