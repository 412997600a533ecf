"""A job that is a query of Spark's own: its checkpoints, savepoints and driver."""
