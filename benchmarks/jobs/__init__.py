"""Job files that the benchmarks run."""
