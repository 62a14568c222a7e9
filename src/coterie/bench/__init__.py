"""Benchmarks: each measures the real runtime in real processes, beside a yardstick."""
