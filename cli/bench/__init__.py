"""Benchmarks: what is measured, on which machine, and how sure it is."""
