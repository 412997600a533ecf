"""Real jobs that a reader can run."""
