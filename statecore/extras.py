"""What is installed beside statecore, and how to get what is missing."""

from __future__ import annotations

import sys
from importlib.metadata import distributions, version
from importlib.util import find_spec

from statecore.errors import ConfigurationError, MissingExtraError


def require(package: str, *, extra: str) -> None:
    """Make sure that a package of one of statecore's extras can be imported.

    Args:
        package: The package, as it is imported.
        extra: The extra that installs it.

    Raises:
        MissingExtraError: It is not installed.

    """
    if find_spec(package) is None:
        raise MissingExtraError(
            f"the package {package} is not installed for {sys.executable}; expected statecore with its extra "
            f"{extra!r}; run `pip install 'statecore[{extra}]'`"
        )


def refuse_pyspark_client() -> None:
    """Make sure that no other distribution has overwritten PySpark's files.

    Raises:
        ConfigurationError: ``pyspark-client`` is installed, too; Airflow's Spark provider asks for it.

    """
    # Without a distribution of PySpark, it comes from SPARK_HOME, where nothing was overwritten.
    if not list(distributions(name="pyspark-client")) or not list(distributions(name="pyspark")):
        return
    raise ConfigurationError(
        f"found pyspark-client installed for {sys.executable}; expected pyspark alone: both write the same files; "
        "run `pip uninstall --yes pyspark-client`, then "
        f"`pip install --force-reinstall --no-deps pyspark=={version('pyspark')}`"
    )
