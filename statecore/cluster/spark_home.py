"""Where Spark's own programs are, and the environment they are started in."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from statecore.errors import ConfigurationError


def spark_home() -> Path:
    """Return ``$SPARK_HOME``, or else the Spark inside the installed package ``pyspark``.

    Raises:
        ConfigurationError: There is no Spark at either place.

    """
    configured = os.environ.get("SPARK_HOME")
    if configured:
        home = Path(configured)
    else:
        # Found, not imported: only runtime/ may import pyspark.
        spec = importlib.util.find_spec("pyspark")
        if spec is None or spec.origin is None:
            raise ConfigurationError(
                f"the package pyspark is not installed for {sys.executable} and SPARK_HOME is not set; "
                "expected one of them; run `pip install 'statecore[spark]'` or set SPARK_HOME"
            )
        home = Path(spec.origin).parent
    if not (home / "bin" / "spark-class").is_file():
        raise ConfigurationError(
            f"there is no bin/spark-class in {home}; expected a Spark there; correct or unset SPARK_HOME"
        )
    return home


def spark_environment() -> dict[str, str]:
    """Return this process's environment, completed so that every Python is this one."""
    return {
        **os.environ,
        "SPARK_HOME": str(spark_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
