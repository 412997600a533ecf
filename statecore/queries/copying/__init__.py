"""Copies of checkpoints, file by file."""
