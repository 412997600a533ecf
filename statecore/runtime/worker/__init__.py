"""One subtask on a Python worker: input, state in memory, outputs, writing; independent of catalog and driver."""
