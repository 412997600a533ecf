"""Rows of state: how Spark encodes them, and which partition owns a key."""
