"""State of the HDFS-backed provider, Spark's default: its files, read and written without Spark's state store."""
