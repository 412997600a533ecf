"""What is installed beside statecore, and how to get what is missing."""

from __future__ import annotations

import sys
from importlib.metadata import distributions, version
from importlib.util import find_spec

from statecore.errors import ConfigurationError, MissingExtraError


def require(package: str, *, extra: str) -> None:
    """Make sure that a package, by the name it is imported under, is installed; MissingExtraError names the extra."""
    if find_spec(package) is None:
        raise MissingExtraError(
            f"the package {package} is not installed for {sys.executable}; expected statecore with its extra "
            f"{extra!r}; run `pip install 'statecore[{extra}]'`"
        )


def refuse_pyspark_client() -> None:
    """Refuse ``pyspark-client``, which Airflow's Spark provider asks for: it overwrites files of PySpark."""
    # Without a distribution of PySpark, it comes from SPARK_HOME, where nothing was overwritten.
    if not list(distributions(name="pyspark-client")) or not list(distributions(name="pyspark")):
        return
    raise ConfigurationError(
        f"found pyspark-client installed for {sys.executable}; expected pyspark alone: both write the same files; "
        "run `pip uninstall --yes pyspark-client`, then "
        f"`pip install --force-reinstall --no-deps pyspark=={version('pyspark')}`"
    )
