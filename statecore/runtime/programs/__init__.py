"""The programs that spark-submit starts; each parses its arguments and calls the runtime."""
