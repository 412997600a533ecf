"""Savepoints without a running job: bootstrap, rewrite, copies, savepoints as tables."""
