"""Real jobs a reader can run."""
