"""Queries of Spark's own: read, copy, rescale and prove their checkpoints."""
