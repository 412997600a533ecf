"""One subtask on a Python worker: input, state in memory, outputs, writing; knows neither catalog nor driver."""
