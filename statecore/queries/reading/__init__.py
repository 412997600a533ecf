"""What a checkpoint of Spark says of itself: operators, logs, schemas, state files, sources."""
