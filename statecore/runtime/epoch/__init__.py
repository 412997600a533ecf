"""One epoch on the driver: Spark's plan, commits, progress of the sources, publishing."""
