"""Proves that a copy holds the same state, and that its query restarts from it."""
