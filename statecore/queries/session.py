"""The default Spark session of tools."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession


def query_session() -> SparkSession:
    """Return a session on this machine, on all its cores unless Spark's own configuration says otherwise."""
    # Spark would take the first python3 on the PATH for its workers.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.appName("statecore checkpoint")
        .config("spark.ui.enabled", "false")
        # The shell shows progress of its own.
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark
