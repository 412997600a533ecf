"""The rows, one module per family."""
