"""Settings of the property tests: the same examples in every run, and no clock."""

from __future__ import annotations

from hypothesis import settings

PROPERTY = settings(derandomize=True, deadline=None, database=None, max_examples=200)
