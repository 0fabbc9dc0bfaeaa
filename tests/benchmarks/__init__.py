"""Measurements whose figures are in docs/benchmarks.md; run by hand, never by the tests."""
