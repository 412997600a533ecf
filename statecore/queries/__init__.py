"""Queries of Spark's own: what their checkpoints hold, copies, other numbers of state partitions, proof."""
