"""Proof that a copy holds the same state, and that its query goes on from it."""
