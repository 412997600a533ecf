"""Checks the packages installed beside statecore, and names the remedy for a missing one."""

from __future__ import annotations

import sys
from importlib.metadata import distributions, version
from importlib.util import find_spec

from statecore.errors import ConfigurationError, MissingExtraError


def require(package: str, *, extra: str) -> None:
    """Require a package, given by its import name; MissingExtraError names the extra that installs it."""
    if find_spec(package) is None:
        raise MissingExtraError(
            f"the package {package} is not installed for {sys.executable}; expected statecore with its extra "
            f"{extra!r}; run `pip install 'statecore[{extra}]'`"
        )


def refuse_pyspark_client() -> None:
    """Refuse ``pyspark-client``, which Airflow's Spark provider requires: it overwrites files of PySpark."""
    # Without a distribution of PySpark, PySpark comes from SPARK_HOME, where nothing was overwritten.
    if not list(distributions(name="pyspark-client")) or not list(distributions(name="pyspark")):
        return
    raise ConfigurationError(
        f"found pyspark-client installed for {sys.executable}; expected only pyspark: both write the same files; "
        "run `pip uninstall --yes pyspark-client`, then "
        f"`pip install --force-reinstall --no-deps pyspark=={version('pyspark')}`"
    )
