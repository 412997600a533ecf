"""How a job is doing, and what to do about it."""
