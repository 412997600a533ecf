"""Spark's state store providers: read and rewrite their files."""
