"""FetchProgress: how far the fetching of a model file has come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Phase = Literal["wait", "download", "check", "join"]


@dataclass(frozen=True, slots=True)
class FetchProgress:
    """A moment of a fetch.

    ``wait``: another process fetches the same file. ``download``: bytes from the network,
    part ``part`` of ``parts``. ``check``: the hash is computed, or the file unpacked and
    hashed. ``join``: the same for a file of several parts. ``total`` None is unknown.
    """

    phase: Phase
    name: str
    origin: str
    done: int = 0
    total: int | None = None
    part: int = 1
    parts: int = 1


Report = Callable[[FetchProgress], None]


def no_report(progress: FetchProgress) -> None:
    """Ignore the progress."""
