"""Benchmarks; the documentation's figures come from here."""
