"""Reads Spark's checkpoints: operators, logs, schemas, state files, sources."""
