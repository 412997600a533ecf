"""Finds Spark's programs and the environment to start them in."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from statecore.errors import ConfigurationError


def spark_home() -> Path:
    """Return ``$SPARK_HOME``, or the Spark inside the installed ``pyspark``; ConfigurationError without either."""
    configured = os.environ.get("SPARK_HOME")
    if configured:
        home = Path(configured)
    else:
        # Not imported: only runtime/ may import pyspark.
        spec = importlib.util.find_spec("pyspark")
        if spec is None or spec.origin is None:
            raise ConfigurationError(
                f"found neither the package pyspark in {sys.executable} nor SPARK_HOME; "
                "expected one of them; run `pip install 'statecore[spark]'` or set SPARK_HOME"
            )
        home = Path(spec.origin).parent
    if not (home / "bin" / "spark-class").is_file():
        raise ConfigurationError(
            f"found no bin/spark-class in {home}; expected a Spark installation; correct or unset SPARK_HOME"
        )
    return home


# What only statecore's own programs need: the catalog's address, and the secrets of Airflow's tasks.
_OWN = ("STATECORE_CATALOG", "STATECORE_DRIVER_CATALOG", "AIRFLOW_")


def spark_environment() -> dict[str, str]:
    """Return this process's environment for Spark's programs: they use this Python, and get no catalog."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(_OWN)},
        "SPARK_HOME": str(spark_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
