"""The driver of a job that is a query of Spark's own: one generation of it."""
