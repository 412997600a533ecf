"""What is installed beside statecore, and how to get what is missing."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, distribution
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


def require_pyspark() -> None:
    """Make sure that PySpark is there, and that no other distribution has overwritten its files.

    Raises:
        MissingExtraError: PySpark is not installed.
        ConfigurationError: ``pyspark-client`` is installed, too; Airflow's Spark provider asks for it.

    """
    require("pyspark", extra="spark")
    try:
        found = distribution("pyspark-client")
    except PackageNotFoundError:
        return
    raise ConfigurationError(
        f"found pyspark-client {found.version} installed for {sys.executable}; expected pyspark alone: both write "
        "the same files; run `pip uninstall --yes pyspark-client`, then "
        "`pip install --force-reinstall --no-deps pyspark==4.3.0`"
    )
