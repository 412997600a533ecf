"""The programs that spark-submit starts; each parses arguments and calls the runtime."""
