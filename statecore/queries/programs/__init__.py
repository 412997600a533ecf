"""The programs for spark-submit."""
