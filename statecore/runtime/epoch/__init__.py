"""One epoch on the driver: the plan that Spark runs, commits, progress of the sources, publishing."""
